"""Search over scripted models: tables of scores by prefix, small enough for exhaustive search."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from functools import cache

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor
from weft.runtime.decode import active_rows
from weft.runtime.decode.search.beams import length_penalty
from weft.runtime.decode.search.search import beam_search, greedy
from weft.runtime.decode.settings import BeamSearch, Hypothesis

PAD, BOS, EOS, A, B, C = range(6)
IDS = {"bos": BOS, "eos": (EOS,), "pad": PAD}
Table = Callable[[tuple[int, ...]], Sequence[float]]
"""Scores of the next token after the tokens so far, `BOS` not among them."""


class Scripted:
    """A model that looks up each sentence's next scores in its own table.

    Its state is the prefix of every row.  It checks its arguments and records its calls.
    """

    def __init__(self, tables: Sequence[Table], beam: int) -> None:
        """Begin every row with an empty prefix."""
        self.tables, self.beam, self.rows = list(tables), beam, len(tables)
        self.prefixes: list[tuple[int, ...]] = [()] * (len(tables) * beam)
        self.steps, self.orders, self.sizes = 0, list[list[int]](), [len(tables)]

    def step(self, tokens_R: Tensor, position: int, /) -> Tensor:
        """Append the tokens; return the scores of the next."""
        assert position == self.steps
        assert len(tokens_R) == len(self.prefixes)
        self.steps += 1
        self.prefixes = [
            (*prefix, token) for prefix, token in zip(self.prefixes, tokens_R.tolist(), strict=True)
        ]
        return torch.tensor(
            [self.tables[row // self.beam](prefix[1:]) for row, prefix in enumerate(self.prefixes)]
        )

    def reorder(self, rows_R: Tensor, /) -> None:
        """Gather the prefixes."""
        self.orders.append(rows_R.tolist())
        self.prefixes = [self.prefixes[row] for row in rows_R.tolist()]

    def narrow(self, sentences_N: Tensor, /) -> None:
        """Keep some sentences."""
        kept = sentences_N.tolist()
        places = [sentence * self.beam + place for sentence in kept for place in range(self.beam)]
        self.prefixes = [self.prefixes[row] for row in places]
        self.tables = [self.tables[sentence] for sentence in kept]
        self.rows = len(kept)
        self.sizes.append(self.rows)


def drawn(seed: int) -> Table:
    """Return a table of random scores that depend on the complete prefix."""

    @cache
    def scores(prefix: tuple[int, ...]) -> list[float]:
        source = random.Random(hash((seed, *prefix)))
        return [source.gauss(0.0, 2.0) for _ in range(6)]

    return scores


def scripted(probabilities: dict[tuple[int, ...], dict[int, float]]) -> Table:
    """Return a table of the given probabilities; other prefixes end with probability 1."""

    def scores(prefix: tuple[int, ...]) -> list[float]:
        given_ = probabilities.get(prefix, {EOS: 1.0})
        return [math.log(given_[token]) if token in given_ else -math.inf for token in range(6)]

    return scores


def log_probabilities(table: Table, prefix: tuple[int, ...]) -> list[float]:
    """Return the log probabilities of the next token in float64."""
    scores = torch.tensor(table(prefix), dtype=torch.float64)
    row: list[float] = scores.log_softmax(0).tolist()
    return row


def penalty(length: int, alpha: float) -> float:
    """Return the length penalty of Wu et al. 2016."""
    return float(((5 + length) / 6) ** alpha)


def best_of_all(table: Table, longest: int, alpha: float, words: Sequence[int]) -> Hypothesis:
    """Score every sequence that ends within the maximum length; return the best."""
    found = []
    for length in range(longest):
        for tokens in itertools.product(words, repeat=length):
            whole = (*tokens, EOS)
            log_p = sum(log_probabilities(table, whole[:i])[token] for i, token in enumerate(whole))
            found.append((log_p / penalty(length + 1, alpha), log_p, tokens))
    score, log_p, tokens = max(found)
    return Hypothesis(tokens=tokens, log_probability=log_p, score=score, finished=True)


def plain_beam(
    table: Table, longest: int, beam: int, alpha: float, *, ends: str = "any"
) -> list[Hypothesis]:
    """Beam search for one sentence in lists and loops, always up to the maximum length."""
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[tuple[float, float, tuple[int, ...]]] = []
    for length in range(1, longest + 1):
        candidates = sorted(
            (
                (log_p + more, (*prefix, token))
                for log_p, prefix in live
                for token, more in enumerate(log_probabilities(table, prefix))
                if token not in (PAD, BOS)
            ),
            reverse=True,
        )[: 2 * beam]
        finished += [
            (log_p / penalty(length, alpha), log_p, tokens[:-1])
            for log_p, tokens in (candidates if ends == "any" else candidates[:beam])
            if tokens[-1] == EOS
        ]
        finished = sorted(finished, reverse=True)[:beam]
        live = [one for one in candidates if one[1][-1] != EOS][:beam]
    unfinished = [(log_p / penalty(longest, alpha), log_p, tokens) for log_p, tokens in live]
    if ends == "best":
        together = [(*one, True) for one in finished] + [(*one, False) for one in unfinished]
        return [
            Hypothesis(tokens=tokens, log_probability=log_p, score=score, finished=ended)
            for score, log_p, tokens, ended in sorted(together, reverse=True)[:beam]
        ]
    return [
        Hypothesis(tokens=tokens, log_probability=log_p, score=score, finished=bool(finished))
        for score, log_p, tokens in finished or unfinished
    ]


def agree(got: Hypothesis, wanted: Hypothesis) -> bool:
    """Return whether two hypotheses are equal, with numbers up to float32 precision."""
    return (got.tokens, got.finished) == (wanted.tokens, wanted.finished) and (
        math.isclose(got.score, wanted.score, rel_tol=1e-4, abs_tol=1e-5)
        and math.isclose(got.log_probability, wanted.log_probability, rel_tol=1e-4, abs_tol=1e-5)
    )


def search(
    tables: Sequence[Table], lengths: Sequence[int], **keys: float | str
) -> tuple[list[list[Hypothesis]], Scripted]:
    """Run a beam search; return its results and the stepper it used."""
    chosen = BeamSearch.model_validate(keys)
    stepper = Scripted(tables, chosen.beam)
    found = beam_search(stepper, settings=chosen, max_lengths_N=torch.tensor(lengths), **IDS)
    return found, stepper


FEW = settings(max_examples=max(1, settings.default.max_examples // 4))
"""A quarter of the usual number of examples: each is a whole search."""
seeds = st.integers(0, 2**32)
alphas = st.sampled_from([0.0, 0.6, 1.0])
sentences_ = st.lists(st.tuples(seeds, st.integers(1, 6)), min_size=1, max_size=3)
"""A seed for the table and a longest length, for each sentence."""


@given(sentences_)
@FEW
def test_greedy_takes_the_best_token_each_time(sentences: list[tuple[int, int]]) -> None:
    """The result equals a loop over one sentence, for every sentence of a batch."""
    tables, lengths = [drawn(seed) for seed, _ in sentences], [n for _, n in sentences]

    found = greedy(Scripted(tables, 1), max_lengths_N=torch.tensor(lengths), **IDS, alpha=0.6)

    for table, longest, got in zip(tables, lengths, found, strict=True):
        tokens: tuple[int, ...] = ()
        log_p = 0.0
        while len(tokens) < longest and EOS not in tokens:
            row = log_probabilities(table, tokens)
            best = max(range(EOS, 6), key=lambda token: row[token])
            log_p += row[best]
            tokens = (*tokens, best)
        wanted = Hypothesis(
            tokens=tuple(token for token in tokens if token != EOS),
            log_probability=log_p,
            score=log_p / penalty(len(tokens), 0.6),
            finished=EOS in tokens,
        )
        assert agree(got, wanted)


@given(seeds, alphas)
@FEW
def test_a_beam_of_one_is_greedy(seed: int, alpha: float) -> None:
    """Tokens and scores are equal to the last bit."""
    tables, lengths = [drawn(seed), drawn(seed + 1)], [5, 3]

    found, _ = search(tables, lengths, beam=1, alpha=alpha)

    stepper = Scripted(tables, 1)
    wanted = greedy(stepper, max_lengths_N=torch.tensor(lengths), **IDS, alpha=alpha)
    assert found == [[hypothesis] for hypothesis in wanted]


@given(seeds, alphas)
@FEW
def test_a_beam_as_wide_as_all_prefixes_finds_the_best_of_all(seed: int, alpha: float) -> None:
    """Three words and four tokens make 27 prefixes; a beam of 27 loses none."""
    table = drawn(seed)

    [[got]], _ = search([table], [4], beam=27, alpha=alpha)

    assert agree(got, best_of_all(table, 4, alpha, (A, B, C)))


@given(sentences_, st.integers(2, 4), alphas)
@FEW
def test_early_stopping_does_not_change_the_result(
    sentences: list[tuple[int, int]], beam: int, alpha: float
) -> None:
    """The best equals that of a plain search to the maximum length, batched or alone."""
    tables, lengths = [drawn(seed) for seed, _ in sentences], [n for _, n in sentences]

    found, _ = search(tables, lengths, beam=beam, alpha=alpha)

    for table, longest, [got] in zip(tables, lengths, found, strict=True):
        assert agree(got, plain_beam(table, longest, beam, alpha)[0])


@given(seeds, st.integers(2, 4), alphas)
@FEW
def test_the_n_best_equal_those_of_the_full_search(seed: int, beam: int, alpha: float) -> None:
    """With `nbest` equal to the beam, the search continues until none of them can change."""
    table = drawn(seed)

    [got], _ = search([table], [5], beam=beam, alpha=alpha, nbest=beam)

    wanted = plain_beam(table, 5, beam, alpha)
    assert len(got) == len(wanted)
    assert all(itertools.starmap(agree, zip(got, wanted, strict=True)))


@given(sentences_, alphas, st.integers(2, 4))
@FEW
def test_ends_best_lets_only_the_best_hypotheses_end(
    sentences: list[tuple[int, int]], alpha: float, beam: int
) -> None:
    """With `ends` set to `best`, truncated hypotheses compete; compared with `plain_beam`."""
    tables, lengths = [drawn(seed) for seed, _ in sentences], [n for _, n in sentences]

    found, _ = search(tables, lengths, beam=beam, nbest=beam, alpha=alpha, ends="best")

    for table, longest, got in zip(tables, lengths, found, strict=True):
        wanted = plain_beam(table, longest, beam, alpha, ends="best")
        assert all(agree(*both) for both in zip(got, wanted, strict=True))


@given(sentences_)
@example([(5, 1), (6, 6), (7, 3)])
@FEW
def test_other_sentences_of_the_batch_change_nothing(sentences: list[tuple[int, int]]) -> None:
    """Alone, or with sentences that end sooner and later: equal to the last bit."""
    tables, lengths = [drawn(seed) for seed, _ in sentences], [n for _, n in sentences]

    together, _ = search(tables, lengths, beam=3, nbest=3)

    for table, longest, got in zip(tables, lengths, together, strict=True):
        assert search([table], [longest], beam=3, nbest=3)[0] == [got]


def test_tied_hypotheses_keep_their_order() -> None:
    """Tied hypotheses of a stopped sentence keep their order while other sentences continue."""
    words = {A: 0.25, B: 0.25, C: 0.25, EOS: 0.25}
    ties = scripted({(): words, (A,): words, (B,): words, (C,): words})

    alone, _ = search([ties], [2], beam=4, nbest=4, alpha=0.0)
    together, _ = search([ties, drawn(1)], [2, 30], beam=4, nbest=4, alpha=0.0)

    assert together[0] == alone[0]


def test_two_steps_by_hand() -> None:
    """The longer sequence is less probable and wins by the length penalty.

    Beam 2, at most 3 tokens.

    Step 1, from nothing: A 0.5, EOS 0.4, B 0.1.  EOS ends with log 0.4 over
    ((5 + 1) / 6)^1 = 1, that is -0.9163.  A and B are continued.
    Step 2: A EOS has 0.5 * 0.75 = 0.375, over (5 + 2) / 6 that is -0.8407: better.
    A C has 0.5 * 0.25 = 0.125; it could still reach log 0.125 over (5 + 3) / 6, that
    is -1.5596, which is below -0.8407, so the search stops without a third step.
    """
    table = scripted(
        {
            (): {A: 0.5, EOS: 0.4, B: 0.1},
            (A,): {EOS: 0.75, C: 0.25},
            (B,): {C: 1.0},
            (A, C): {EOS: 1.0},
        }
    )

    [[first, second]], stepper = search([table], [3], beam=2, alpha=1.0, nbest=2)
    [[alone]], quick = search([table], [3], beam=2, alpha=1.0)

    assert (first.tokens, second.tokens) == ((A,), ())
    assert first.score == pytest.approx(math.log(0.375) / (7 / 6))
    assert first.log_probability == pytest.approx(math.log(0.375))
    assert second.score == pytest.approx(math.log(0.4))
    assert first.finished
    assert alone == first
    assert quick.steps == 2
    assert stepper.steps == 2


def test_a_long_output_may_still_overtake() -> None:
    """A hypothesis that is worse at its present length can be best at its final length.

    Alpha 1: the empty output has log 0.6 = -0.511.  Seven certain words after 0.4
    have log 0.4 = -0.916 at first, and over (5 + 8) / 6 at the end -0.423.
    """
    table = scripted({(): {EOS: 0.6, A: 0.4}, **{(A,) * n: {A: 1.0} for n in range(1, 7)}})

    [[best]], _ = search([table], [10], beam=2, alpha=1.0)

    assert best.tokens == (A,) * 7
    assert best.score == pytest.approx(math.log(0.4) * 6 / 13)


def test_without_penalty_the_most_probable_wins() -> None:
    """The same table with alpha 0: the empty output, 0.4 against 0.375."""
    table = scripted({(): {A: 0.5, EOS: 0.4, B: 0.1}, (A,): {EOS: 0.75, C: 0.25}})

    [[best]], _ = search([table], [3], beam=2, alpha=0.0)

    assert best.tokens == ()
    assert best.score == pytest.approx(math.log(0.4))


def test_a_beam_sees_past_the_best_first_token() -> None:
    """Greedy search takes A (0.6 * 0.5); the beam keeps B (0.4 * 1.0)."""
    table = scripted({(): {A: 0.6, B: 0.4}, (A,): {EOS: 0.5, C: 0.5}, (B,): {EOS: 1.0}})

    [led] = greedy(Scripted([table], 1), max_lengths_N=torch.tensor([3]), **IDS)
    [[kept]], _ = search([table], [3], beam=2, alpha=0.0)

    assert led.tokens[0] == A
    assert kept.tokens == (B,)
    assert kept.log_probability == pytest.approx(math.log(0.4))


def test_the_end_stops_the_search_when_nothing_can_beat_it() -> None:
    """A certain output takes as many steps as it has tokens, not the maximum length."""
    _, stepper = search([scripted({(): {A: 1.0}})], [50], beam=4)

    assert stepper.steps == 2


@pytest.mark.parametrize("beam", [1, 3])
def test_the_longest_length_counts_the_end(beam: int) -> None:
    """With a maximum of two tokens A is followed by its end; with one it is truncated."""
    tables = [scripted({(): {A: 1.0}})] * 2

    [[whole], [cut]], _ = search(tables, [2, 1], beam=beam)

    assert (whole.tokens, whole.finished) == ((A,), True)
    assert (cut.tokens, cut.finished, cut.log_probability) == ((A,), False, 0.0)


@given(sentences_, st.integers(1, 3))
@FEW
def test_no_output_is_longer_than_its_bound(sentences: list[tuple[int, int]], beam: int) -> None:
    """Each sentence has its own maximum, and no step is taken after the largest."""
    tables, lengths = [drawn(seed) for seed, _ in sentences], [n for _, n in sentences]

    found, stepper = search(tables, lengths, beam=beam)

    for longest, [hypothesis] in zip(lengths, found, strict=True):
        assert len(hypothesis.tokens) + hypothesis.finished <= longest
        assert hypothesis.finished or len(hypothesis.tokens) == longest
    assert stepper.steps <= max(lengths)


@pytest.mark.parametrize("beam", [1, 2])
def test_an_output_that_never_ends_is_returned_unfinished(beam: int) -> None:
    """The best live hypothesis at the maximum length, scored by its own length."""
    again = {A: 0.75, B: 0.25}
    table = scripted({(): again, (A,): again, (B,): again})

    [[best]], _ = search([table], [2], beam=beam, alpha=1.0)

    assert best.tokens == (A, A)
    assert not best.finished
    assert best.log_probability == pytest.approx(math.log(0.75**2))
    assert best.score == pytest.approx(math.log(0.75**2) / (7 / 6))


@pytest.mark.parametrize("beam", [1, 2])
def test_the_start_and_padding_are_never_chosen(beam: int) -> None:
    """However probable they are."""

    def table(prefix: tuple[int, ...]) -> list[float]:
        return [9.0, 8.0, float(len(prefix)), 1.0, 0.0, 0.0]

    [[best]], _ = search([table], [6], beam=beam, alpha=0.0)

    assert set(best.tokens) <= {A, B, C}


def test_the_start_may_be_the_end() -> None:
    """Models that begin with the end token, as fairseq's do, can still end."""
    stepper = Scripted([scripted({(): {A: 1.0}})], 2)
    ids = {"bos": EOS, "eos": (EOS,), "pad": EOS}
    chosen, lengths_N = BeamSearch(beam=2), torch.tensor([4])

    [[best]] = beam_search(stepper, settings=chosen, max_lengths_N=lengths_N, **ids)

    assert (best.tokens, best.finished) == ((A,), True)


@given(sentences_, st.integers(2, 4))
@FEW
def test_state_never_moves_between_sentences(sentences: list[tuple[int, int]], beam: int) -> None:
    """A row continues a row of its own sentence, and no call leaves all rows in place."""
    tables, lengths = [drawn(seed) for seed, _ in sentences], [n for _, n in sentences]

    _, stepper = search(tables, lengths, beam=beam)

    for rows in stepper.orders:
        own = list(range(len(rows)))
        assert [row // beam for row in rows] == [row // beam for row in own]
        assert rows != own


def test_an_unchanged_order_of_rows_moves_no_state() -> None:
    """A single best path needs no gathering, and neither does the first step."""
    table = scripted(
        {
            (): {A: 0.9, B: 0.1},
            **{(word,) * n: {word: 1.0} for word in (A, B) for n in range(1, 4)},
        }
    )

    _, stepper = search([table], [5], beam=2)

    assert stepper.steps == 5
    assert stepper.orders == []


def test_a_stopped_sentence_is_fed_padding_and_moves_nothing() -> None:
    """Its rows are part of the step, but get padding and are not reordered."""
    two_paths = {(word,) * n: {word: 1.0} for word in (A, B) for n in range(1, 4)}
    tables = [scripted({}), *[scripted({(): {A: 0.9, B: 0.1}, **two_paths})] * 2]
    stepper = Scripted(tables, 2)

    lengths_N = torch.tensor([4, 4, 4])
    beam_search(stepper, settings=BeamSearch(beam=2), max_lengths_N=lengths_N, **IDS)

    goes_on = [(A,) * 3, (B,) * 3]
    assert [prefix[1:] for prefix in stepper.prefixes] == [*[(PAD,) * 3] * 2, *goes_on, *goes_on]
    assert stepper.orders == []


@given(
    sentences_,
    st.sampled_from([1, 2, 4]),
    st.sampled_from(["any", "best"]),
    st.sampled_from([0, 5]),
)
@FEW
def test_dropping_finished_sentences_does_not_change_the_result(
    sentences: list[tuple[int, int]], beam: int, ends: str, least: int
) -> None:
    """Equal to the last bit to a search that never drops finished sentences."""
    sentences = [*sentences, *((seed + 1, length + 3) for seed, length in sentences)]
    tables, lengths = [drawn(seed) for seed, _ in sentences], [n for _, n in sentences]
    keys: dict[str, float | str] = {"beam": beam, "nbest": beam, "ends": ends, "min_length": least}

    found, stepper = search(tables, lengths, **keys)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(active_rows, "NARROW", math.inf)
        expected, whole = search(tables, lengths, **keys)

    assert found == expected
    assert whole.sizes == [len(tables)]
    for before, after in itertools.pairwise(stepper.sizes):
        assert 2 * after <= before


@pytest.mark.parametrize("beam", [1, 2])
def test_the_model_computes_only_unfinished_sentences(beam: int) -> None:
    """Of four sentences of 1, 2, 4 and 8 words, two remain after the second ends, then one."""
    tables = [scripted({(A,) * n: {A: 1.0} for n in range(words)}) for words in (1, 8, 2, 4)]

    found, stepper = search(tables, [12] * 4, beam=beam)

    assert [len(best.tokens) for [best, *_] in found] == [1, 8, 2, 4]
    assert stepper.sizes == [4, 2, 1]
    assert stepper.steps == 9


@pytest.mark.parametrize("beam", [1, 2])
def test_cancelled_sentences_are_not_decoded(beam: int) -> None:
    """Two of three sentences are cancelled before the fourth step; the third is unchanged."""
    tables = [scripted({(A,) * n: {A: 1.0} for n in range(9)})] * 3
    stepper = Scripted(tables, beam)
    chosen = BeamSearch(beam=beam)

    found = beam_search(
        stepper,
        settings=chosen,
        max_lengths_N=torch.tensor([20] * 3),
        cancelled=lambda: [0, 2] if stepper.steps > 3 else [],
        **IDS,
    )

    assert stepper.sizes == [3, 1]
    assert (found[1][0].tokens, found[1][0].finished) == ((A,) * 9, True)
    assert stepper.steps == 10


def test_the_search_stops_if_all_sentences_are_cancelled() -> None:
    """The search stops at once if all sentences are cancelled."""
    stepper = Scripted([drawn(1), drawn(2)], 2)
    lengths_N, chosen = torch.tensor([9, 9]), BeamSearch(beam=2)

    found = beam_search(
        stepper, settings=chosen, max_lengths_N=lengths_N, cancelled=lambda: [0, 1], **IDS
    )

    assert stepper.steps == 1
    assert len(found) == 2


def test_bfloat16_scores_are_added_in_float32() -> None:
    """The sum of two hundred equal steps is exact, which bfloat16 could not represent."""

    class Steady(Scripted):
        def step(self, tokens_R: Tensor, position: int, /) -> Tensor:
            return super().step(tokens_R, position).bfloat16()

    def table(prefix: tuple[int, ...]) -> list[float]:
        del prefix
        return [0.0, 0.0, -math.inf, 2.0, 0.0, 0.0]

    chosen = BeamSearch(beam=2, alpha=0.0)
    [[best]] = beam_search(
        Steady([table], 2), settings=chosen, max_lengths_N=torch.tensor([200]), **IDS
    )

    assert best.log_probability == pytest.approx(-200 * math.log1p(4 * math.exp(-2.0)), rel=1e-4)


def test_the_length_penalty_equals_that_of_gnmt() -> None:
    """((5 + 7) / 6)^0.6 = 2^0.6; one token has none."""
    assert length_penalty(7, 0.6).item() == pytest.approx(2**0.6)
    assert length_penalty(torch.tensor([1, 7]), 1.0).tolist() == [1.0, 2.0]


def test_the_defaults_are_those_of_the_paper() -> None:
    """Beam 4, alpha 0.6, input length plus 50."""
    assert BeamSearch() == BeamSearch(beam=4, alpha=0.6, max_extra=50)


@pytest.mark.parametrize("wrong", [{"beam": 0}, {"alpha": -0.1}, {"beam": 2, "nbest": 3}, {"k": 4}])
def test_invalid_search_settings_are_refused(wrong: dict[str, float]) -> None:
    """A negative alpha would invalidate the stopping criterion."""
    with pytest.raises(ValidationError):
        BeamSearch.model_validate(wrong)


@pytest.mark.parametrize(("lengths", "message"), [([3, 3], "have shape"), ([0], "at least 1")])
def test_lengths_that_fit_no_batch_are_refused(lengths: list[int], message: str) -> None:
    """There must be one length per sentence, each at least 1."""
    with pytest.raises(ValueError, match=message):
        search([drawn(0)], lengths, beam=2)
