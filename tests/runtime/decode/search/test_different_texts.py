"""N-best lists: other tokens may spell the same text, and each text counts once."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from weft.runtime.decode.predictors.predictor import Answer, best_of
from weft.runtime.decode.search.search import beam_search
from weft.runtime.decode.settings import BeamSearch, Hypothesis, different

from .test_search import EOS, IDS, A, B, C, Scripted, Table, drawn, log_probabilities, penalty

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
