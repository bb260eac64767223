"""Logits processors and phrases: banned and required tokens, with models of random scores."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor
from weft.runtime.data.prompts import texts_of
from weft.runtime.decode.search.beams import Beams, length_penalty
from weft.runtime.decode.search.constraints import Avoidance, Inclusion, standing
from weft.runtime.decode.search.logits_processors import (
    Beginning,
    chained,
    no_repeat,
    repetition_penalty,
)
from weft.runtime.decode.search.sampling import Sampler, filtered
from weft.runtime.decode.search.search import _extended, beam_search, sample
from weft.runtime.decode.search.top_k import BannedTokens
from weft.runtime.decode.settings import (
    COLDEST,
    HOTTEST,
    BeamSearch,
    GenerateSettings,
    Hypothesis,
    SampleSettings,
    Sampling,
)
from weft.runtime.decode.stepper import EnsembleStepper
from weft.specs.wording import describe

pytestmark = pytest.mark.integration

PAD, EOS, UNK, BOS = range(4)
IDS = {"bos": BOS, "eos": (EOS,), "pad": PAD}
SIZE = 10


class Chance:
    """A model whose scores are random functions of the prefix and the sentence."""

    def __init__(self, sentences: int, beam: int, seed: int, likely_end: float = 0.0) -> None:
        """Begin every row with an empty prefix."""
        self.rows, self.beam, self.seed, self.likely_end = sentences, beam, seed, likely_end
        self.prefixes: list[tuple[int, ...]] = [()] * (sentences * beam)
        self.sentences = list(range(sentences))

    def scores(self, sentence: int, prefix: Sequence[int]) -> list[float]:
        """Return the scores of the next token."""
        source = random.Random(hash((self.seed, sentence, *prefix)))
        drawn = [source.gauss(0, 1.5) for _ in range(SIZE)]
        drawn[EOS] += self.likely_end
        return drawn

    def step(self, tokens_R: Tensor, position: int, /) -> Tensor:
        """Append the tokens; return the scores of the next."""
        self.prefixes = [
            (*prefix, token) for prefix, token in zip(self.prefixes, tokens_R.tolist(), strict=True)
        ]
        assert {len(prefix) for prefix in self.prefixes} == {position + 1}
        return torch.tensor(
            [
                self.scores(self.sentences[row // self.beam], prefix)
                for row, prefix in enumerate(self.prefixes)
            ]
        )

    def reorder(self, rows_R: Tensor, /) -> None:
        """Gather the prefixes."""
        self.prefixes = [self.prefixes[row] for row in rows_R.tolist()]

    def narrow(self, sentences_N: Tensor, /) -> None:
        """Keep some sentences."""
        kept, beam = sentences_N.tolist(), self.beam
        self.prefixes = [one for n in kept for one in self.prefixes[n * beam : (n + 1) * beam]]
        self.sentences = [self.sentences[n] for n in kept]
        self.rows = len(kept)

    def log_probability(self, sentence: int, tokens: Sequence[int], *, ended: bool) -> float:
        """Return what forced scoring gives; BOS and PAD are never chosen."""
        total, prefix = 0.0, [BOS]
        for token in [*tokens, *([EOS] if ended else [])]:
            total += torch.tensor(self.scores(sentence, prefix)).log_softmax(-1)[token].item()
            prefix.append(token)
        return total


def searched(
    model: Chance, limits: Sequence[int], search: BeamSearch, **more: object
) -> list[list[Hypothesis]]:
    """Return the results of a beam search."""
    return beam_search(
        model,
        settings=search,
        max_lengths_N=torch.tensor(limits),
        **IDS,
        **more,  # type: ignore[arg-type]
    )


seeds = st.integers(0, 10_000)
beams = st.sampled_from([1, 2, 4])


@given(seed=seeds, beam=beams, fewest=st.integers(0, 6))
def test_the_minimum_length_is_respected(seed: int, beam: int, fewest: int) -> None:
    """If the maximum length is smaller, outputs have the maximum length."""
    model, limits = Chance(2, beam, seed, likely_end=5.0), [4, 9]
    search = BeamSearch(beam=beam, nbest=beam, min_length=fewest)

    found = searched(model, limits, search)

    for limit, hypotheses in zip(limits, found, strict=True):
        assert all(len(one.tokens) >= min(fewest, limit - 1) for one in hypotheses)


@given(seed=seeds, beam=beams, size=st.integers(1, 3))
def test_no_ngram_is_repeated(seed: int, beam: int, size: int) -> None:
    """At any output length."""
    model = Chance(2, beam, seed, likely_end=-3.0)

    found = searched(model, [12, 7], BeamSearch(beam=beam, nbest=beam), processor=no_repeat(size))

    for one in (one for hypotheses in found for one in hypotheses):
        runs = [one.tokens[i : i + size] for i in range(len(one.tokens) - size + 1)]
        assert len(runs) == len(set(runs)) or one.log_probability == -torch.inf


@pytest.mark.parametrize("beam", [1, 2])
def test_the_full_table_is_computed_only_within_the_prefix(
    beam: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The complete table is computed at the first three positions only."""
    calls: list[int] = []
    whole = BannedTokens.log_probabilities

    def recorded(self: BannedTokens, logits_RV: Tensor, position: int, *more: Any) -> Tensor:
        calls.append(position)
        return whole(self, logits_RV, position, *more)

    monkeypatch.setattr(BannedTokens, "log_probabilities", recorded)
    model, processor = Chance(2, beam, 3, -9.0), Beginning([[5, 6, 7], [8]], beam)

    [[first], [second]] = searched(model, [9, 9], BeamSearch(beam=beam), processor=processor)

    assert calls == [0, 1, 2]
    assert first.tokens[:3] == (5, 6, 7)
    assert (second.tokens[0], len(second.tokens)) == (8, 9)


@given(
    seed=seeds, beam=beams, prefixes=st.lists(st.lists(st.integers(4, 9)), min_size=2, max_size=2)
)
def test_outputs_begin_with_their_prefix(seed: int, beam: int, prefixes: list[list[int]]) -> None:
    """Their scores are the model's own."""
    model, limits = Chance(2, beam, seed), [len(prefix) + 3 for prefix in prefixes]

    found = searched(
        model, limits, BeamSearch(beam=beam, nbest=beam), processor=Beginning(prefixes, beam)
    )

    for sentence, hypotheses in enumerate(found):
        for one in hypotheses:
            assert list(one.tokens[: len(prefixes[sentence])]) == prefixes[sentence]
            forced = model.log_probability(sentence, one.tokens, ended=one.finished)
            assert one.log_probability == pytest.approx(forced, abs=1e-4)


phrases = st.lists(st.lists(st.integers(4, 8), min_size=1, max_size=3), max_size=3)


@given(
    seed=seeds, beam=st.sampled_from([1, 2, 4]), wanted=st.lists(phrases, min_size=2, max_size=2)
)
def test_outputs_contain_the_required_phrases(
    seed: int, beam: int, wanted: list[list[list[int]]]
) -> None:
    """Every hypothesis has every phrase, even at the smallest length; scores are the model's."""
    model = Chance(2, beam, seed, likely_end=2.0)
    limits = [sum(map(len, each)) + 1 + seed % 4 for each in wanted]
    include = Inclusion(wanted, beam, limits, (EOS,))

    found = searched(
        model, limits, BeamSearch(beam=beam, nbest=beam), processor=include, include=include
    )

    for sentence, hypotheses in enumerate(found):
        for one in hypotheses:
            assert standing(one.tokens, wanted[sentence]).missing == 0
            forced = model.log_probability(sentence, one.tokens, ended=one.finished)
            assert one.log_probability == pytest.approx(forced, abs=1e-4)


@pytest.mark.slow
def test_dividing_the_beam_finds_a_better_place_for_a_phrase() -> None:
    """Compared with every output of up to four tokens that has the phrase, for most models."""
    best, near = 0, 0
    for seed in range(30):
        model = Chance(1, 6, seed)
        include = Inclusion([[[5, 6]]], 6, [5], (EOS,))
        search = BeamSearch(beam=6, penalty="none")
        [[found]] = searched(model, [5], search, processor=include, include=include)
        outputs = _all_with([5, 6], 4)
        scores = {one: model.log_probability(0, one, ended=True) for one in outputs}
        finished = max(scores.values())
        best += found.log_probability >= finished - 1e-4
        near += found.log_probability >= finished - 1.0

    assert best >= 20
    assert near >= 27


def _all_with(phrase: Sequence[int], longest: int) -> list[tuple[int, ...]]:
    """Return every sequence of tokens that contains a phrase."""
    words = (UNK, *range(4, SIZE))
    found: list[tuple[int, ...]] = []
    layer: list[tuple[int, ...]] = [()]
    for _ in range(longest):
        layer = [(*one, word) for one in layer for word in words]
        found += [one for one in layer if not standing(one, [phrase]).missing]
    return found


PIECES = ["<pad>", "</s>", "<unk>", "<s>", "▁dog", "ma", "▁", "d", "og", ".", "▁a", "<0x64>", "s"]
TEXTS = texts_of(PIECES, (PAD, EOS, BOS))


def text_of(tokens: Sequence[int]) -> str:
    """Return the text of tokens of the toy vocabulary."""
    return "".join(TEXTS[token] or "?" for token in tokens)


@given(
    seed=seeds,
    beam=st.sampled_from([1, 3]),
    avoided=st.lists(st.sampled_from(["dog", "a dog", "d", "dog.", ". a", "s"]), min_size=1),
)
def test_no_output_contains_a_banned_phrase(seed: int, beam: int, avoided: list[str]) -> None:
    """Banned phrases match text in any tokenization, like a regular expression on words."""
    model = Wordy(1, beam, seed)
    avoidance = Avoidance(avoided, TEXTS, (EOS,))
    processor = avoidance.processor(torch.tensor([7]).repeat_interleave(beam))

    [found] = searched(model, [7], BeamSearch(beam=beam, nbest=beam), processor=processor)

    for one in found:
        if one.log_probability == -torch.inf:
            continue
        for phrase in avoided:
            first = r"(?<![^\W_])" if phrase[0].isalnum() else ""
            last = r"(?![^\W_])" if phrase[-1].isalnum() else ""
            assert not re.search(first + re.escape(phrase) + last, text_of(one.tokens))


class Wordy(Chance):
    """A random model over the toy vocabulary."""

    def scores(self, sentence: int, prefix: Sequence[int]) -> list[float]:
        """Return the scores of the next token."""
        source = random.Random(hash((self.seed, sentence, *prefix)))
        return [source.gauss(0, 1.5) for _ in PIECES]


def test_a_banned_phrase_matches_complete_words_only() -> None:
    """`dog` is banned before a full stop and at the end, but not within `dogma`."""
    log_p_RV = torch.zeros(1, len(PIECES))
    avoidance = Avoidance(["dog"], TEXTS, (EOS,))
    after_dog = avoidance.processor(torch.tensor([9]))(log_p_RV.clone(), torch.tensor([[4]]))
    at_last = avoidance.processor(torch.tensor([1]))(log_p_RV.clone(), torch.empty(1, 0).long())

    forbidden = [PIECES[i] for i in (after_dog[0] == -torch.inf).nonzero()[:, 0].tolist()]
    assert forbidden == ["</s>", "<unk>", "▁dog", "▁", ".", "▁a"]
    assert [PIECES[i] for i in (at_last[0] == -torch.inf).nonzero()[:, 0].tolist()] == ["▁dog"]


def test_the_progress_of_phrases_by_hand() -> None:
    """Complete phrases, the longest begun phrase at the end, and the next tokens."""
    assert standing([], [[1, 2], [3]]) == (0, 0, 3, {1, 3})
    assert standing([1], [[1, 2], [3]]) == (1, 1, 3, {2})
    assert standing([1, 1], [[1, 1, 2]]) == (2, 2, 3, {2})
    assert standing([1, 3, 1, 2], [[1, 2], [3]]) == (3, 0, 0, frozenset())


def test_a_repetition_is_penalized_by_the_setting() -> None:
    """The log probability of a token that was written before is multiplied."""
    log_p_RV = torch.tensor([[-1.0, -2.0, -3.0]])

    found = repetition_penalty(1.5)(log_p_RV, torch.tensor([[1, 1]]))

    assert found.tolist() == [[-1.0, -3.0, -3.0]]
    assert chained([]) is None


@pytest.mark.parametrize(
    ("form", "value"), [("gnmt", (12 / 6) ** 0.5), ("length", 7**0.5), ("none", 1.0)]
)
def test_length_penalties_by_hand(form: str, value: float) -> None:
    """Seven tokens at alpha 0.5."""
    assert length_penalty(7, 0.5, form).item() == pytest.approx(value)  # type: ignore[arg-type]


def test_groups_keep_apart() -> None:
    """By hand: the second group avoids the first group's tokens; scores stay the model's own."""

    class Fixed(Chance):
        def scores(self, sentence: int, prefix: Sequence[int]) -> list[float]:  # noqa: ARG002
            first = {4: 0.5, 5: 0.4, 6: 0.1}
            table = first if len(prefix) == 1 else {EOS: 1.0}
            return [float(torch.tensor(table.get(i, 1e-9)).log()) for i in range(SIZE)]

    plain = BeamSearch(beam=2, nbest=2, groups=2, diversity=0.0, penalty="none")
    apart = plain.model_copy(update={"diversity": 1.0})

    [alike] = searched(Fixed(1, 2, 0), [3], plain)
    [other] = searched(Fixed(1, 2, 0), [3], apart)

    assert [one.tokens for one in alike] == [(4,)]
    assert [one.tokens for one in other] == [(4,), (5,)]
    assert other[1].log_probability == pytest.approx(torch.tensor(0.4).log().item(), abs=1e-4)


def test_a_group_that_is_settled_takes_no_tokens_from_the_others() -> None:
    """By hand: the first of two groups is closed, so the second takes the best tokens."""
    settings = BeamSearch(beam=4, groups=2, diversity=5.0, penalty="none")
    beams = [Beams(torch.tensor([9]), settings, eos=(EOS,)) for _ in range(2)]
    log_p_RV = torch.full((4, SIZE), -1.0)
    log_p_RV[:, 3], log_p_RV[:, 4] = -0.1, -0.2
    empty = torch.zeros(4, 0, dtype=torch.long)

    both, _ = _extended([beams[0], beams[1]], log_p_RV, empty)
    assert set(both[0, :2].tolist()) == {3, 4}
    assert not {3, 4} & set(both[0, 2:].tolist())

    beams = [Beams(torch.tensor([9]), settings, eos=(EOS,)) for _ in range(2)]
    beams[0].open_N[:] = False
    closed, _ = _extended(beams, log_p_RV, empty)
    assert set(closed[0, 2:].tolist()) == {3, 4}


@given(seed=seeds, groups=st.sampled_from([1, 2, 4]))
def test_scores_of_groups_equal_forced_scoring(seed: int, groups: int) -> None:
    """Diversity affects the search, not the scores."""
    model = Chance(2, 4, seed)

    found = searched(model, [6, 4], BeamSearch(beam=4, nbest=4, groups=groups, diversity=0.8))

    for sentence, hypotheses in enumerate(found):
        assert len({one.tokens for one in hypotheses}) == len(hypotheses)
        for one in hypotheses:
            forced = model.log_probability(sentence, one.tokens, ended=one.finished)
            assert one.log_probability == pytest.approx(forced, abs=1e-4)


def test_sampling_filters_by_hand() -> None:
    """Probabilities 0.5, 0.3, 0.15, 0.05; rounding decides at no threshold."""
    log_p = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()

    def kept(**values: float) -> list[int]:
        scores = filtered(log_p, SampleSettings(**values))  # type: ignore[arg-type]
        return (scores[0] > -torch.inf).nonzero()[:, 0].tolist()

    assert kept() == [0, 1, 2, 3]
    assert kept(top_k=2) == [0, 1]
    assert kept(top_p=0.45) == [0]
    assert kept(top_p=0.6) == [0, 1]
    assert kept(min_p=0.25) == [0, 1, 2]
    sharp = filtered(log_p, SampleSettings(temperature=0.5)).softmax(-1)[0]
    assert sharp[0].item() == pytest.approx(0.25 / (0.25 + 0.09 + 0.0225 + 0.0025))


def drawn(
    sources: list[list[int]], model: Callable[[int], Chance], **values: float
) -> list[list[int]]:
    """Return three samples of each sentence."""
    search = Sampling(samples=3, **values)  # type: ignore[arg-type]
    found = sample(
        model(len(sources)),
        sampler=Sampler(search, sources, 3),
        settings=search,
        max_lengths_N=torch.full((len(sources),), 5),
        **IDS,
    )
    return [[list(one.tokens) for one in row] for row in found]


def test_samples_depend_only_on_seed_and_source() -> None:
    """Other lines of the batch change nothing; another seed does."""

    def same(count: int) -> Chance:
        model = Chance(count, 3, 1)
        own = model.scores
        model.scores = lambda _, prefix: own(0, prefix)  # type: ignore[method-assign]
        return model

    both = drawn([[7, 8], [9]], same)

    assert drawn([[9], [7, 8]], same) == both[::-1]
    assert drawn([[7, 8]], same) == both[:1]
    assert drawn([[7, 8]], same, seed=2) != both[:1]


def test_draws_have_the_frequencies_of_the_model() -> None:
    """A token of probability 0.7 is drawn about 0.7 of 3,000 times."""
    log_p = torch.tensor([[0.7, 0.2, 0.1]]).log().expand(3000, 3)
    sampler = Sampler(SampleSettings(), [[1]], 3000)

    counts = sampler.choose(log_p).bincount(minlength=3) / 3000

    assert counts.tolist() == pytest.approx([0.7, 0.2, 0.1], abs=0.03)


def test_an_ensemble_gives_the_mean_of_probabilities() -> None:
    """For each token, for models of any scores."""
    models = [Chance(1, 2, seed) for seed in (1, 2)]
    tokens = torch.tensor([BOS, BOS])

    found = EnsembleStepper(models).step(tokens, 0).exp()  # type: ignore[arg-type]

    wanted = sum(torch.tensor(m.scores(0, [BOS])).softmax(-1) for m in models) / 2
    torch.testing.assert_close(found, torch.stack([wanted, wanted]))  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"beam": 4, "groups": 3}, "'beam' 4 is not divisible by 'groups' 3"),
        ({"avoid": [""]}, "avoid"),
    ],
)
def test_settings_that_clash_are_refused(values: dict[str, object], problem: str) -> None:
    """Settings that conflict raise before anything is loaded."""
    with pytest.raises(ValueError, match=problem):
        BeamSearch.model_validate(values)


def test_top_k_breaks_ties_by_the_lowest_id() -> None:
    """Exactly `top_k` tokens remain, with any ties at the border, and never impossible ones."""
    never = -torch.inf
    log_p = torch.tensor([[1.0, 2.0, 2.0, 2.0], [never, 0.0, never, never], [3.0, 3.0, 3.0, 3.0]])

    kept = filtered(log_p, SampleSettings(top_k=2)).isfinite().tolist()

    assert kept == [
        [False, True, True, False],
        [False, True, False, False],
        [True, True, False, False],
    ]


def test_the_lowest_temperature_is_greedy() -> None:
    """And the highest is uniform; no value is nan, even where no token is allowed."""
    log_p = torch.tensor([[-3.0, -0.4, -9.0], [-torch.inf, -torch.inf, -torch.inf]])

    coldest = filtered(log_p, SampleSettings(temperature=COLDEST)).exp()
    hottest = filtered(log_p, SampleSettings(temperature=HOTTEST)).exp()

    assert coldest.tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    assert hottest[0].min() > 0.9
    assert hottest[1].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("temperature", [1e-30, 0.009, 101.0, 1e30, float("nan"), float("inf")])
def test_extreme_temperatures_are_refused(temperature: float) -> None:
    """In float32 they give infinite scores, or no difference between tokens."""
    with pytest.raises(ValidationError):
        SampleSettings(temperature=temperature)
    with pytest.raises(ValidationError) as caught:
        GenerateSettings(temperature=temperature)

    assert describe(caught.value.errors()[0]) in (
        "must be 0 or at least 0.01",
        "must be at most 100",
        "must be a finite number",
    )
