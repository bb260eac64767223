"""The best tokens of a step, and outputs with different texts."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from weft.runtime.decode.predictors.predictor import Answer, best_of
from weft.runtime.decode.search import top_k as candidates
from weft.runtime.decode.search.search import beam_search
from weft.runtime.decode.search.top_k import RUNS, BannedTokens
from weft.runtime.decode.settings import BeamSearch, Hypothesis, different

from .test_search import EOS, IDS, A, B, C, Scripted, Table, drawn, log_probabilities, penalty

TOP_K_EOS = 1
WIDE = RUNS * RUNS + 77
"""Tokens that are divided into runs, and some are left over."""


def banned(rows: int, *, min_length: int = 0, limit: int = 9) -> BannedTokens:
    """Return `BannedTokens` that ban tokens 0 and 3, and the end token up to a minimum length."""
    return BannedTokens({0, 3}, (TOP_K_EOS,), min_length, torch.full((rows,), limit))


@given(seed=st.integers(0, 99), count=st.integers(1, 9), wide=st.booleans(), half=st.booleans())
def test_the_top_k_equal_those_of_the_complete_table(
    seed: int, count: int, wide: bool, half: bool
) -> None:
    """They equal the first of the sorted row, including values near the ends of runs."""
    size = WIDE if wide else 11
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(5, size, generator=generator)
    far = torch.randint(0, size, (5, 2), generator=generator)
    logits = logits.scatter(1, far, 9.0 + torch.rand(5, 2, generator=generator))
    logits[0, -1] = logits[1, size // RUNS * RUNS - 1] = 12.0
    logits = logits.bfloat16() if half else logits
    expected = logits.float().log_softmax(1)
    expected[:, [0, 3]] = -torch.inf

    best, tokens = banned(5).best(logits, 0, count)

    torch.testing.assert_close(best, expected.sort(1, descending=True).values[:, :count])
    torch.testing.assert_close(expected.gather(1, tokens), best)
    assert all(len(set(row)) == count for row in tokens.tolist())


def test_ties_go_to_the_lowest_index() -> None:
    """Ties within one run, between runs and in the remainder go to the first, as in `argmax`."""
    logits = torch.zeros(3, WIDE)
    logits[0, [700, 800, 9000]] = 5.0
    logits[1, [WIDE - 2, WIDE - 1]] = 5.0
    logits[2, [5000, WIDE - 1]] = 5.0

    _, tokens = banned(3).best(logits, 0, 1)

    assert tokens[:, 0].tolist() == [700, WIDE - 2, 5000]


@pytest.mark.parametrize("size", [11, WIDE])
def test_the_end_is_banned_below_the_minimum_length(size: int) -> None:
    """Below the minimum length the end is banned, except for the last token of a row."""
    logits = torch.zeros(2, size)
    logits[:, TOP_K_EOS] = 9.0
    rules = BannedTokens({0}, (TOP_K_EOS,), 4, torch.tensor([3, 9]))

    taken = [rules.best(logits, position, 1)[1][:, 0] == TOP_K_EOS for position in range(5)]
    whole = [rules.log_probabilities(logits, place).argmax(1) == TOP_K_EOS for place in range(5)]

    assert torch.stack(taken)[2:].tolist() == [[True, False], [True, False], [True, True]]
    assert not torch.stack(taken)[:2].any()
    assert torch.equal(torch.stack(taken), torch.stack(whole))


def test_rows_are_normed_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result does not depend on how rows are divided."""
    logits = torch.randn(7, 11, generator=torch.Generator().manual_seed(1))
    logits[:, TOP_K_EOS] = 9.0
    rules = BannedTokens({0}, (TOP_K_EOS,), 2, torch.tensor([1, 5, 1, 5, 1, 5, 1]))
    whole = rules.best(logits, 0, 3)

    monkeypatch.setattr(candidates, "TOGETHER", 25)
    parts = rules.best(logits, 0, 3)

    torch.testing.assert_close(parts, whole)
    assert (whole[1][:, 0] == TOP_K_EOS).tolist() == [True, False, True, False, True, False, True]


SPELLING = {A: "a", B: "b", C: "ab"}


def text_of(tokens: tuple[int, ...]) -> str:
    """Return the text of tokens; `C` spells what `A`, `B` spell."""
    return "".join(SPELLING[token] for token in tokens)


def searched(table: Table, longest: int, **search: object) -> list[Hypothesis]:
    """Return the hypotheses of one sentence."""
    beams = BeamSearch.model_validate(search)
    [found] = beam_search(
        Scripted([table], beams.beam),
        settings=beams,
        max_lengths_N=torch.tensor([longest]),
        text_of=text_of,
        **IDS,
    )
    return found


def best_of_each_text(table: Table, longest: int, alpha: float) -> dict[str, float]:
    """Return every text that ends within a length, with its best score."""
    best: dict[str, float] = {}
    for length in range(longest):
        for tokens in itertools.product(SPELLING, repeat=length):
            ended = (*tokens, EOS)
            log_p = sum(log_probabilities(table, ended[:i])[t] for i, t in enumerate(ended))
            text, score = text_of(tokens), log_p / penalty(length + 1, alpha)
            best[text] = max(score, best.get(text, score))
    return best


@settings(max_examples=15)
@given(st.integers(0, 1000), st.sampled_from([0.0, 0.6, 1.0]))
@example(0, 0.6)
def test_a_wide_beam_returns_the_best_hypotheses_of_different_texts(
    seed: int, alpha: float
) -> None:
    """All 40 sequences of up to 3 tokens are compared with the definition."""
    table = drawn(seed)
    wanted = sorted(best_of_each_text(table, 4, alpha).items(), key=lambda one: -one[1])[:5]

    found = searched(table, 4, beam=40, nbest=5, alpha=alpha)

    assert [text_of(one.tokens) for one in found] == [text for text, _ in wanted]
    assert [one.score for one in found] == pytest.approx([score for _, score in wanted], abs=1e-4)


@pytest.mark.parametrize(
    "search", [{"beam": 3}, {"beam": 4, "groups": 2, "nbest": 4}, {"beam": 3, "ends": "best"}]
)
def test_no_search_returns_a_text_twice(search: dict[str, object]) -> None:
    """A narrow beam, groups that search apart, and hypotheses cut at the maximum length."""
    for seed in range(20):
        found = searched(drawn(seed), 6, **{"nbest": 3, **search})

        texts = [text_of(one.tokens) for one in found]
        assert len(set(texts)) == len(texts)
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


def test_the_first_of_each_key_stays_where_it_is() -> None:
    """An item that comes again later does not move the first one."""
    assert different("aba", str) == ["a", "b"]


def test_an_answer_has_no_alternative_with_its_own_value() -> None:
    """Such as a text of CTC that two sequences of pieces spell."""
    answers = [Answer("ab", -1.0), Answer("ab", -2.0), Answer("b", -3.0), Answer("b", -4.0)]

    assert best_of(answers) == Answer("ab", -1.0, others=(Answer("b", -3.0),))
