"""Epochs in chunks: rows that do not fit one are planned chunk by chunk."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from weft.runtime import api
from weft.runtime.checkpoint.checkpoint import read_tensors
from weft.runtime.data.plans import epochs
from weft.runtime.data.plans.epochs import EpochRows
from weft.runtime.data.plans.lengths import LengthSummary, summarized
from weft.runtime.data.plans.planning import START, DataPosition, PlannedBatch, stream_plans
from weft.runtime.data.settings import BatchSettings
from weft.runtime.train.run import Run
from weft.specs.findings import InputError

ROWS = 230
SETTINGS = BatchSettings(tokens=40, pool=2)


@dataclass
class Rows:
    """Rows with two time axes, and perhaps documents."""

    starts: NDArray[np.bool_] | None = None
    folder: Path = Path("data")

    @property
    def axes(self) -> dict[str, NDArray[np.int64]]:
        """Lengths of 2 to 12."""
        random = np.random.default_rng(1)
        return {name: random.integers(2, 13, size=ROWS) for name in ("source", "target")}

    @property
    def summary(self) -> LengthSummary:
        """What plans must know of all lengths."""
        return summarized(self.axes.values())

    def __len__(self) -> int:
        """Return the number of rows."""
        return ROWS


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> Iterator[None]:
    """Divide epochs into chunks of 60 rows and blocks of 7."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(epochs, "CHUNK", 60)
        patch.setattr(epochs, "BLOCK", 7)
        yield


def epoch_of(data: Rows, number: int = 0, limits: list[int] | None = None) -> list[PlannedBatch]:
    """Return the batches of an epoch."""
    batches = stream_plans(data, SETTINGS, 3, limits=None if limits is None else iter(limits))
    return [batch for batch in islice(batches, 400) if batch.at.epoch == number]


@pytest.mark.parametrize("epoch", [0, 2])
def test_each_row_occurs_once_in_an_epoch_of_four_chunks(epoch: int) -> None:
    """230 rows in chunks of about 60; each batch is within its limit on both axes."""
    data = Rows()

    batches = epoch_of(data, epoch)

    assert Counter(row for batch in batches for row in batch.rows.tolist()) == dict.fromkeys(
        range(ROWS), 1
    )
    assert {batch.at.chunk for batch in batches} == {0, 1, 2, 3}
    for batch in batches:
        longest = max(int(lengths[batch.rows].max()) for lengths in data.axes.values())
        assert longest * len(batch.rows) <= SETTINGS.tokens


def test_chunks_are_of_like_size_and_hold_blocks_from_everywhere() -> None:
    """By hand: 33 blocks in four chunks are 8 or 9 each, in another order in the next epoch."""
    rows = [EpochRows(ROWS, 1, epoch) for epoch in (0, 1)]

    for chunk in range(4):
        part = rows[0].rows(chunk)
        assert len(part) in range(8 * 7 - 1, 9 * 7 + 1)
        assert len({*(part // 7).tolist()}) in (8, 9)
        assert (np.diff(part) > 0).all()
        assert part[-1] - part[0] > ROWS / 2
        assert part.tolist() != rows[1].rows(chunk).tolist()


@given(st.integers(1, 120))
def test_any_place_is_resumed_with_the_batch_that_followed(number: int) -> None:
    """Also between chunks and epochs, and where the limit changes within a chunk."""
    limits = [40, 40, 90, 90, 24, *repeat(40, 25), *repeat(60, 90)]
    data = Rows()
    batches = [*stream_plans(data, SETTINGS, 3, limits=iter(limits))]

    after = batches[number - 1].at
    again = [*stream_plans(data, SETTINGS, 3, at=after, limits=iter(limits[number:]))]

    assert batches[-1].at.epoch > 0
    assert [batch.at for batch in again] == [batch.at for batch in batches[number:]]
    for one, other in zip(again, batches[number:], strict=True):
        np.testing.assert_array_equal(one.rows, other.rows)


def test_each_row_occurs_once_where_the_limit_changes() -> None:
    """The rows of a chunk that are not used are planned again."""
    batches = epoch_of(Rows(), limits=[24, 40, 90, 24, *repeat(40, 20), *repeat(60, 100)])

    assert sorted(np.concatenate([batch.rows for batch in batches]).tolist()) == [*range(ROWS)]
    assert len(batches[3].at.cuts) == 4


@given(st.lists(st.tuples(st.integers(1, 90), st.floats(0, 3)), min_size=1, max_size=3))
def test_after_some_epochs_every_row_was_seen_as_often_as_its_weight_says(
    weights: list[tuple[int, float]],
) -> None:
    """Rounded down or up, and each epoch has as many rows of a source as its weight says."""
    count = sum(rows for rows, _ in weights)
    counts = np.zeros(count)
    for epoch in range(4):
        of_epoch = EpochRows(count, 2, epoch, weights)
        drawn = [of_epoch.rows(chunk) for chunk in range(of_epoch.chunks)]
        counts += np.bincount(np.concatenate(drawn), minlength=count)

    begin = 0
    for rows, weight in weights:
        part = counts[begin : begin + rows]
        assert abs(part.sum() - 4 * weight * rows) <= 4
        assert part.max() - part.min() <= 1 or weight * 4 % 1 == 0
        assert np.abs(part - 4 * weight).max() < 1.1
        begin += rows


@pytest.mark.parametrize("document", [1, 4, 30])
def test_documents_continue_in_the_next_batch(document: int) -> None:
    """Each row is the first of its document, or follows a row of the batch before."""
    starts = np.random.default_rng(2).random(ROWS) < 1 / document
    starts[0] = True

    batches = epoch_of(Rows(starts))

    assert sorted(np.concatenate([batch.rows for batch in batches]).tolist()) == [*range(ROWS)]
    before: list[int] = []
    for batch in batches:
        assert all(starts[row] or row - 1 in before for row in batch.rows.tolist())
        before = batch.rows.tolist()


def test_a_chunk_that_is_not_in_the_data_is_refused() -> None:
    """As when a run is resumed with fewer rows."""
    with pytest.raises(InputError, match="cannot resume in chunk 9: epoch 0 has 4 chunks"):
        next(stream_plans(Rows(), SETTINGS, 3, at=DataPosition(chunk=9)))


class Stopper:
    """A listener that stops the run at its second validation with SIGINT, like Ctrl-C."""

    count = 0

    def log(self, text: str) -> None:
        """Ignore the line."""

    def progress(self, progress: Any) -> None:
        """Ignore it."""

    def validated(self, update: int, values: Any) -> None:  # noqa: ARG002
        """Count it."""
        self.count += 1
        if self.count == 2:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.integration
def test_a_training_over_chunks_is_resumed_with_the_same_bits(
    toy_run: Callable[..., Run], tmp_path: Path
) -> None:
    """Its state tells the chunk: 90 pairs are in chunks of about 45."""
    run = toy_run(batch={"tokens": 30, "pool": 3}, accumulate=4)
    whole = api.train(run, out=tmp_path / "whole")

    first = api.train(run, out=tmp_path / "parts", listener=Stopper())
    second = api.train(run, out=tmp_path / "parts", resume=True)

    assert not first.finished
    assert first.state.chunk or first.state.epoch
    assert second.state.chunk or second.state.epoch
    weights = [
        read_tensors(result.averaged / "weights.safetensors")
        for result in (whole, second)
        if result.averaged
    ]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_summary_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same in parts of two rows as at once."""
    lengths = [np.array([2, 9, 4, 3, 2]), np.array([5, 3, 9, 1, 1])]
    expected = LengthSummary((9, 9), (4.0, 3.8), 1, (5 + 9 + 9 + 3 + 2) / 5)

    assert summarized(lengths) == expected
    monkeypatch.setattr("weft.runtime.data.plans.lengths.STRIDE", 2)
    assert summarized(lengths) == expected
    assert DataPosition(0, 0, 0, ()) == START
