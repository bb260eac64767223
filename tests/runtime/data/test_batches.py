"""Batches: every row once, within limits, in a resumable order."""

from __future__ import annotations

import threading
from itertools import count, islice
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from weft.runtime.data.batches import (
    Batch,
    Rows,
    collate,
    in_order,
    plan_epoch,
    plan_in_order,
    prefetch,
    stream,
)
from weft.runtime.data.settings import BatchSettings
from weft.runtime.data.shards.corpus import Corpus, CorpusWriter
from weft.specs.findings import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

pairs_of_lengths = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=60)
batch_settings = st.builds(
    BatchSettings,
    tokens=st.integers(31, 100),
    max_sentences=st.none() | st.integers(1, 5),
    pool=st.integers(1, 5),
)


def columns(pairs: list[tuple[int, int]]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return source and target lengths as arrays, as in a corpus."""
    table = np.array(pairs, dtype=np.int32).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def lognormal(pairs: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return lengths similar to news text: 30 and 32 tokens, correlation about 0.9."""
    noise = np.random.default_rng(0).multivariate_normal([0, 0], [[1, 0.92], [0.92, 1]], pairs)
    source, target = (np.exp(mean + 0.55 * noise[:, i]) for i, mean in enumerate((3.25, 3.3)))
    return tuple(np.clip(side, 1, 250).astype(np.int32) for side in (source, target))


def waste(plan: list[Rows], *sides: NDArray[np.int32]) -> float:
    """Return the fraction of padding in all batches, both sides together."""
    ended = [side.astype(np.int64) + 1 for side in sides]
    real = sum(int(side[rows].sum()) for rows in plan for side in ended)
    padded = sum(len(rows) * int(side[rows].max()) for rows in plan for side in ended)
    return 1 - real / padded


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Return 200 pairs; the first id of each side is the row number."""
    random = np.random.default_rng(1)
    folder = tmp_path_factory.mktemp("corpus") / "c"
    with CorpusWriter(folder, vocab_size=1000) as writer:
        for row in range(200):
            lengths = random.integers(0, 20, size=2)
            writer.add([10 + row] + [5] * lengths[0], [500 + row] + [6] * lengths[1])
    return Corpus.open(folder)


@given(pairs_of_lengths, batch_settings, st.integers(-9, 9), st.integers(0, 3))
def test_every_row_comes_exactly_once_within_budget(
    pairs: list[tuple[int, int]], settings: BatchSettings, seed: int, epoch: int
) -> None:
    """Rows times longest is within the limit on each side, including end tokens."""
    source, target = columns(pairs)

    plan = plan_epoch(source, target, settings, seed, epoch)

    assert sorted(row for rows in plan for row in rows) == list(range(len(pairs)))
    for rows in plan:
        assert len(rows) * (source[rows].max() + 1) <= settings.tokens
        assert len(rows) * (target[rows].max() + 1) <= settings.tokens
        assert len(rows) <= (settings.max_sentences or len(rows))


@given(pairs_of_lengths, batch_settings, st.integers(-9, 9), st.integers(0, 3))
def test_a_plan_is_a_pure_function(
    pairs: list[tuple[int, int]], settings: BatchSettings, seed: int, epoch: int
) -> None:
    """Earlier calls and the global generators have no effect."""
    source, target = columns(pairs)

    first = plan_epoch(source, target, settings, seed, epoch)
    np.random.seed(3)  # noqa: NPY002 - the global generator must have no effect
    torch.manual_seed(3)
    plan_epoch(source, target, settings, seed, epoch + 1)
    second = plan_epoch(source, target, settings, seed, epoch)

    assert [rows.tolist() for rows in first] == [rows.tolist() for rows in second]


def test_seed_and_epoch_change_the_order() -> None:
    """Epochs have different batches, and epoch 1 of seed 0 differs from epoch 0 of seed 1."""
    sides = lognormal(2000)

    plans = [
        [rows.tolist() for rows in plan_epoch(*sides, BatchSettings(), seed, epoch)]
        for seed, epoch in ((0, 0), (0, 1), (1, 0), (-1, 0))
    ]

    assert all(plans[i] != plans[j] for i in range(4) for j in range(i))


def test_batches_do_not_come_from_short_to_long() -> None:
    """Batches are not sorted by length, so that long sentences do not come last."""
    source, target = lognormal(20_000)

    plan = plan_epoch(source, target, BatchSettings(), 0, 0)
    means = [float(source[rows].mean()) for rows in plan]

    assert abs(float(np.corrcoef(means, np.arange(len(means)))[0, 1])) < 0.25


def test_padding_is_a_few_percent() -> None:
    """34,000 pairs: about 5 % at 4096 tokens, and 8 % in pools of 100 batches.

    In random order, more than two thirds would be padding.
    """
    sides = lognormal(34_000)

    assert waste(plan_epoch(*sides, BatchSettings(), 0, 0), *sides) < 0.06
    assert waste(plan_epoch(*sides, BatchSettings(pool=100), 0, 0), *sides) < 0.10
    assert waste(plan_in_order(*sides, BatchSettings()), *sides) < 0.06


def test_batches_are_full() -> None:
    """A batch that has capacity for the next row is not closed early."""
    source, target = lognormal(34_000)

    plan = plan_epoch(source, target, BatchSettings(), 0, 0)

    widest = [len(rows) * (max(source[rows].max(), target[rows].max()) + 1) for rows in plan]
    assert np.mean(widest) > 0.97 * 4096


def test_equal_lengths_fill_a_batch_exactly() -> None:
    """By hand: 4 tokens and the end are 5; 20 tokens fit 4 pairs; 10 pairs are 4+4+2."""
    lengths = np.full(10, 4, dtype=np.int32)

    plan = plan_epoch(lengths, lengths // 2, BatchSettings(tokens=20), 0, 0)

    assert sorted(len(rows) for rows in plan) == [2, 4, 4]


def test_a_pair_longer_than_a_batch_is_refused_in_training() -> None:
    """The error comes before the first update and names both fixes; an exact fit is accepted."""
    source, target = columns([(1, 1), (1, 20)])

    with pytest.raises(InputError) as caught:
        plan_epoch(source, target, BatchSettings(tokens=20), 0, 0)

    assert str(caught.value) == (
        "pair 1 has 21 tokens, more than the batch limit of 20\n"
        "  help: set batch tokens to at least 21, or filter max_length to at most 19"
    )
    assert len(plan_epoch(source, target, BatchSettings(tokens=21), 0, 0)) == 2


@given(pairs_of_lengths, batch_settings)
def test_evaluation_text_is_never_left_out(
    pairs: list[tuple[int, int]], settings: BatchSettings
) -> None:
    """Every row comes once, from short to long, even above the limit."""
    source, target = columns(pairs)
    tight = settings.model_copy(update={"tokens": 5})

    plan = plan_in_order(source, target, tight)
    widest = np.maximum(source, target)[np.concatenate(plan)] if plan else np.empty(0)

    assert sorted(row for rows in plan for row in rows) == list(range(len(pairs)))
    assert (np.diff(widest) >= 0).all()
    assert all(
        len(rows) == 1 or len(rows) * (max(source[rows].max(), target[rows].max()) + 1) <= 5
        for rows in plan
    )


def test_a_batch_counts_its_tokens(corpus: Corpus) -> None:
    """End tokens count, padding does not; moving to a device keeps the counts."""
    rows = np.array([3, 1, 4])

    batch = collate(corpus, rows, pad=0, eos=1)

    assert batch.source.dtype == batch.target.dtype == torch.int64
    assert batch.source[:, 0].tolist() == [13, 11, 14]
    assert batch.target[:, 0].tolist() == [503, 501, 504]
    assert batch.source_tokens == int(corpus.source_lengths[rows].sum()) + 3
    assert batch.target_tokens == int(corpus.target_lengths[rows].sum()) + 3
    moved = batch.to("meta")  # has no values to count
    assert (moved.source_tokens, moved.target_tokens) == (batch.source_tokens, batch.target_tokens)
    assert moved.source.device.type == "meta"


def seen(batches: Iterator[tuple[int, int, Batch]], number: int) -> list[tuple[object, ...]]:
    """Return the next batches as comparable values."""
    return [
        (epoch, position, batch.rows.tolist(), batch.source.tolist(), batch.target.tolist())
        for epoch, position, batch in islice(batches, number)
    ]


@given(st.integers(0, 40))
def test_a_resumed_run_gets_the_remaining_batches(corpus: Corpus, stopped: int) -> None:
    """Stopping anywhere in three epochs, including between epochs, changes nothing."""
    settings = BatchSettings(tokens=200, pool=3)
    whole = seen(stream(corpus, settings, 5, pad=0, eos=1), 60)
    epoch, position = (0, 0) if stopped == 0 else whole[stopped - 1][:2]

    rest = stream(corpus, settings, 5, epoch=epoch, position=position, pad=0, eos=1)  # type: ignore[arg-type]

    assert seen(rest, 60 - stopped) == whole[stopped:]
    assert whole[-1][0] >= 2  # type: ignore[operator]


def test_positions_count_the_batches_of_an_epoch(corpus: Corpus) -> None:
    """Positions count from 1 to the number of batches in each epoch."""
    settings = BatchSettings(tokens=200)
    plan = plan_epoch(corpus.source_lengths, corpus.target_lengths, settings, 0, 0)

    places = [
        (epoch, position)
        for epoch, position, _ in islice(stream(corpus, settings, 0, pad=0, eos=1), len(plan) + 1)
    ]

    assert places == [*((0, n) for n in range(1, len(plan) + 1)), (1, 1)]


def test_a_place_that_is_not_in_the_epoch_is_refused(corpus: Corpus) -> None:
    """Other settings give other batches; resuming silently would repeat or skip pairs."""
    with pytest.raises(InputError, match=r"cannot resume at batch 10000: epoch 0 has \d+"):
        next(stream(corpus, BatchSettings(), 0, position=10_000, pad=0, eos=1))


def test_an_empty_corpus_is_refused(tmp_path: Path) -> None:
    """An endless iterator over an empty corpus would hang."""
    with CorpusWriter(tmp_path / "c", vocab_size=10):
        pass
    empty = Corpus.open(tmp_path / "c")

    with pytest.raises(InputError, match="no pairs to train on"):
        next(stream(empty, BatchSettings(), 0, pad=0, eos=1))
    assert list(in_order(empty, BatchSettings(), 0, 1)) == []


def test_validation_batches_cover_the_corpus(corpus: Corpus) -> None:
    """The batches are the same each time, and every row is in one of them."""
    first = list(in_order(corpus, BatchSettings(tokens=100), 0, 1))
    second = list(in_order(corpus, BatchSettings(tokens=100), 0, 1))

    assert sorted(row for batch in first for row in batch.rows) == list(range(200))
    assert all(torch.equal(a.source, b.source) for a, b in zip(first, second, strict=True))


def test_prefetching_changes_no_order() -> None:
    """Items keep their order; an empty iterator ends immediately."""
    assert list(prefetch(iter(range(100)), depth=3)) == list(range(100))
    assert list(prefetch(iter(()))) == []


def test_prefetching_raises_at_the_place_of_the_error() -> None:
    """The items before the error are still yielded."""

    def broken() -> Iterator[int]:
        yield 1
        yield 2
        raise ZeroDivisionError

    ahead = prefetch(broken())

    assert [next(ahead), next(ahead)] == [1, 2]
    with pytest.raises(ZeroDivisionError):
        next(ahead)


def test_closing_ends_the_thread_and_its_work() -> None:
    """An endless iterator is not consumed after closing."""
    numbers = count()
    before = threading.active_count()
    ahead = prefetch(numbers, depth=2)
    next(ahead)

    ahead.close()  # type: ignore[attr-defined]

    assert threading.active_count() == before
    assert next(numbers) <= 5
