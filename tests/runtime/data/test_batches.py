"""Batches: every row once, within limits, in a resumable order."""

from __future__ import annotations

import threading
from itertools import count, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from weft.runtime.data.batches import prefetch
from weft.runtime.data.columns.registry import columns_of
from weft.runtime.data.plans.plan import generator
from weft.runtime.data.plans.planning import DataPosition, Lengths, plan_rows, plan_rows_in_order
from weft.runtime.data.plans.updates import lengths_in_updates
from weft.runtime.data.settings import BatchSettings
from weft.runtime.data.shards.corpus import Corpus, CorpusWriter
from weft.runtime.data.symbols import Symbols
from weft.runtime.data.table import Batch, Table
from weft.specs.findings import InputError

from .pairs import SIDES, lines, pairs

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


def ended(rows: list[tuple[int, int]]) -> tuple[NDArray[np.int64], ...]:
    """Return the lengths of both sides with the end token, as a table has them."""
    both = np.array(rows, dtype=np.int64).reshape(-1, 2) + 1
    return both[:, 0], both[:, 1]


def planned(
    sides: Lengths, settings: BatchSettings, seed: int = 0, epoch: int = 0
) -> list[list[int]]:
    """Return the rows of each training batch of an epoch."""
    plan = plan_rows(sides, settings, generator(seed, epoch), count=len(sides[0]))
    return [rows.tolist() for rows in plan]


def lognormal(rows: int) -> tuple[NDArray[np.int64], ...]:
    """Return lengths similar to news text: 30 and 32 tokens, correlation about 0.9."""
    noise = np.random.default_rng(0).multivariate_normal([0, 0], [[1, 0.92], [0.92, 1]], rows)
    source, target = (np.exp(mean + 0.55 * noise[:, i]) for i, mean in enumerate((3.25, 3.3)))
    return tuple(np.clip(side, 1, 250).astype(np.int64) + 1 for side in (source, target))


def waste(plan: list[list[int]], sides: Lengths) -> float:
    """Return the fraction of padding in all batches, both sides together."""
    real = sum(int(side[rows].sum()) for rows in plan for side in sides)
    padded = sum(len(rows) * int(side[rows].max()) for rows in plan for side in sides)
    return 1 - real / padded


def opened(folder: Path) -> Table:
    """Open a corpus of pairs whose ids are those of 996 symbols."""
    split = lines(["a"], ["b"])
    vocabulary = Symbols([f"s{number}" for number in range(996)])
    settings = pairs(".", split, split).columns
    return Table(Corpus.open(folder), columns_of(settings, {"tokenizer": vocabulary}))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Return 200 pairs; the first id of each side is the row number."""
    random = np.random.default_rng(1)
    folder = tmp_path_factory.mktemp("corpus") / "c"
    with CorpusWriter(folder, vocab_size=1000) as writer:
        for row in range(200):
            lengths = random.integers(0, 20, size=2)
            writer.add([10 + row] + [5] * lengths[0], [500 + row] + [6] * lengths[1])
    return opened(folder)


@given(pairs_of_lengths, batch_settings, st.integers(-9, 9), st.integers(0, 3))
def test_every_row_comes_exactly_once_within_budget(
    rows: list[tuple[int, int]], settings: BatchSettings, seed: int, epoch: int
) -> None:
    """Rows times longest is within the limit on each side, including end tokens."""
    sides = ended(rows)

    plan = planned(sides, settings, seed, epoch)

    assert sorted(row for batch in plan for row in batch) == list(range(len(rows)))
    for batch in plan:
        assert all(len(batch) * side[batch].max() <= settings.tokens for side in sides)
        assert len(batch) <= (settings.max_sentences or len(batch))


@given(pairs_of_lengths, batch_settings, st.integers(-9, 9), st.integers(0, 3))
def test_a_plan_is_a_pure_function(
    rows: list[tuple[int, int]], settings: BatchSettings, seed: int, epoch: int
) -> None:
    """Earlier calls and the global generators have no effect."""
    sides = ended(rows)

    first = planned(sides, settings, seed, epoch)
    np.random.seed(3)  # noqa: NPY002 - the global generator must have no effect
    torch.manual_seed(3)
    planned(sides, settings, seed, epoch + 1)

    assert planned(sides, settings, seed, epoch) == first


def test_seed_and_epoch_change_the_order() -> None:
    """Epochs have different batches, and epoch 1 of seed 0 differs from epoch 0 of seed 1."""
    sides = lognormal(2000)

    plans = [
        planned(sides, BatchSettings(), seed, epoch)
        for seed, epoch in ((0, 0), (0, 1), (1, 0), (-1, 0))
    ]

    assert all(plans[i] != plans[j] for i in range(4) for j in range(i))


def test_batches_do_not_come_from_short_to_long() -> None:
    """Batches are not sorted by length, so that long sentences do not come last."""
    sides = lognormal(20_000)

    plan = planned(sides, BatchSettings())
    means = [float(sides[0][rows].mean()) for rows in plan]

    assert abs(float(np.corrcoef(means, np.arange(len(means)))[0, 1])) < 0.25


def test_padding_is_a_few_percent() -> None:
    """34,000 pairs: about 5 % at 4096 tokens, and 8 % in pools of 100 batches.

    In random order, more than two thirds would be padding.
    """
    sides = lognormal(34_000)

    assert waste(planned(sides, BatchSettings()), sides) < 0.06
    assert waste(planned(sides, BatchSettings(pool=100)), sides) < 0.10
    in_order = plan_rows_in_order(sides, BatchSettings(), count=34_000)
    assert waste([rows.tolist() for rows in in_order], sides) < 0.06


def test_batches_are_full() -> None:
    """A batch that has capacity for the next row is not closed early."""
    sides = lognormal(34_000)

    plan = planned(sides, BatchSettings())

    widest = [len(rows) * max(side[rows].max() for side in sides) for rows in plan]
    assert np.mean(widest) > 0.97 * 4096


def test_equal_lengths_fill_a_batch_exactly() -> None:
    """By hand: 4 tokens and the end are 5; 20 tokens fit 4 pairs; 10 pairs are 4+4+2."""
    plan = planned(ended([(4, 2)] * 10), BatchSettings(tokens=20))

    assert sorted(len(rows) for rows in plan) == [2, 4, 4]


def test_a_pair_longer_than_a_batch_is_refused_in_training() -> None:
    """The error comes before the first update and names both fixes; an exact fit is accepted."""
    sides = ended([(1, 1), (1, 20)])

    with pytest.raises(InputError) as caught:
        planned(sides, BatchSettings(tokens=20))

    assert str(caught.value) == (
        "pair 1 has 21 tokens, more than the batch limit of 20\n"
        "  help: set batch tokens to at least 21, or filter max_length to at most 19"
    )
    assert len(planned(sides, BatchSettings(tokens=21))) == 2


@given(pairs_of_lengths, batch_settings)
def test_evaluation_text_is_never_left_out(
    rows: list[tuple[int, int]], settings: BatchSettings
) -> None:
    """Every row comes once, from short to long, even above the limit."""
    sides = ended(rows)
    tight = settings.model_copy(update={"tokens": 5})

    plan = plan_rows_in_order(sides, tight, count=len(rows))
    widest = np.maximum(*sides)[np.concatenate(plan)] if plan else np.empty(0)

    assert sorted(row for batch in plan for row in batch) == list(range(len(rows)))
    assert (np.diff(widest) >= 0).all()
    assert all(
        len(batch) == 1 or len(batch) * max(side[batch].max() for side in sides) <= 5
        for batch in plan
    )


def test_a_batch_counts_its_tokens(table: Table) -> None:
    """End tokens count, padding does not; moving to a device keeps the counts."""
    rows = np.array([3, 1, 4])

    batch = table.batch(rows)

    assert {batch.inputs[side].dtype for side in SIDES} == {torch.int64}
    assert batch.inputs["source"][:, 0].tolist() == [13, 11, 14]
    assert batch.inputs["target"][:, 0].tolist() == [503, 501, 504]
    assert batch.tokens == {
        "source": int(table.corpus.arrays["source"].lengths()[rows].sum()) + 3,
        "target": int(table.corpus.arrays["target"].lengths()[rows].sum()) + 3,
    }
    moved = batch.to("meta")  # has no values to count
    assert moved.tokens == batch.tokens
    assert moved.inputs["source"].device.type == "meta"


def seen(batches: Iterator[tuple[DataPosition, Batch]], number: int) -> list[tuple[Any, ...]]:
    """Return the next batches as comparable values."""
    return [
        (after, batch.rows.tolist(), *(batch.inputs[side].tolist() for side in SIDES))
        for after, batch in islice(batches, number)
    ]


@pytest.mark.integration
@given(st.integers(0, 40))
def test_a_resumed_run_gets_the_remaining_batches(table: Table, stopped: int) -> None:
    """Stopping anywhere in three epochs, including between epochs, changes nothing."""
    settings = BatchSettings(tokens=200, pool=3)
    whole = seen(table.stream(settings, 5), 60)
    at = whole[stopped - 1][0] if stopped else DataPosition()

    assert seen(table.stream(settings, 5, at=at), 60 - stopped) == whole[stopped:]
    assert whole[-1][0].epoch >= 2


def test_positions_count_the_batches_of_an_epoch(table: Table) -> None:
    """Positions count from 1 to the number of batches in each epoch."""
    settings = BatchSettings(tokens=200)
    plan = planned([lengths[:] for lengths in table.lengths.values()], settings)

    places = [at[:3] for at, _ in islice(table.stream(settings, 0), len(plan) + 1)]

    assert places == [*((0, 0, n) for n in range(1, len(plan) + 1)), (1, 0, 1)]


def test_a_place_that_is_not_in_the_epoch_is_refused(table: Table) -> None:
    """Other settings give other batches; resuming silently would repeat or skip pairs."""
    with pytest.raises(InputError, match=r"cannot resume at batch 10000: epoch 0 has \d+"):
        next(table.stream(BatchSettings(), 0, at=DataPosition(batches=10_000)))


def test_an_empty_corpus_is_refused(tmp_path: Path) -> None:
    """An endless iterator over an empty corpus would hang."""
    with CorpusWriter(tmp_path / "c", vocab_size=1000):
        pass
    empty = opened(tmp_path / "c")

    with pytest.raises(InputError, match="no pairs to train on"):
        next(empty.stream(BatchSettings(), 0))
    assert list(empty.in_order(BatchSettings())) == []


def test_validation_batches_cover_the_corpus(table: Table) -> None:
    """The batches are the same each time, and every row is in one of them."""
    first = list(table.in_order(BatchSettings(tokens=100)))
    second = list(table.in_order(BatchSettings(tokens=100)))

    assert sorted(row for batch in first for row in batch.rows) == list(range(200))
    assert all(
        torch.equal(a.inputs["source"], b.inputs["source"])
        for a, b in zip(first, second, strict=True)
    )


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


@given(pairs_of_lengths, batch_settings)
def test_batches_of_real_tokens_hold_as_many_as_the_limit_allows(
    rows: list[tuple[int, int]], settings: BatchSettings
) -> None:
    """Lengths add up to the limit at most, on each side, whatever the order of the rows."""
    sides = ended(rows)

    plan = planned(sides, settings.model_copy(update={"count": "real"}))

    assert sorted(row for batch in plan for row in batch) == list(range(len(rows)))
    assert all(side[batch].sum() <= settings.tokens for batch in plan for side in sides)


def test_random_batches_of_real_tokens_are_full_and_mix_lengths() -> None:
    """As sorted ones are full; padded, a random batch holds fewer than two thirds of them."""
    sides = lognormal(34_000)
    random = BatchSettings(pool=1, count="real")

    real = [sides[1][rows].sum() for rows in planned(sides, random)]
    padded = [sides[1][rows].sum() for rows in planned(sides, BatchSettings(pool=1))]

    assert np.mean(real) > 0.95 * 4096
    assert np.mean(padded) < 0.5 * 4096


@pytest.mark.integration
def test_the_lengths_in_an_update_by_hand(tmp_path: Path) -> None:
    """Ten pairs of 3 tokens and ten of 5: sorted, an update of four holds one length."""
    with CorpusWriter(tmp_path / "c", vocab_size=9) as writer:
        for row in range(20):
            writer.add([4] * 2, [4] * (2 if row < 10 else 4))
    corpus = Corpus.open(tmp_path / "c")
    settings = BatchSettings(tokens=20, max_sentences=2)

    alike = lengths_in_updates(corpus, settings, 1, 1)
    mixed = lengths_in_updates(corpus, settings, 1, 10)

    assert alike is not None
    assert (alike.axis, alike.rows, alike.distinct) == ("target", 2.0, 1.0)
    assert (alike.deviation, alike.total) == (0.0, 1.0)
    assert alike.uniform
    assert mixed is not None
    assert (mixed.rows, mixed.tokens, mixed.distinct, mixed.deviation) == (20.0, 80.0, 2.0, 1.0)
    assert not mixed.uniform
