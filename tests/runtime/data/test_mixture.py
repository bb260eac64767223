"""Mixture weights: how often the pairs of each file occur."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.runtime.data.planning import stream_plans
from weft.runtime.data.prepare import Prepared, prepare
from weft.runtime.data.readers.split import Split
from weft.runtime.data.settings import BatchSettings
from weft.runtime.data.shards.mixture import MixturePart, rows_of_epoch
from weft.specs.findings import InputError

from .pairs import bpe, lines, pairs

pytestmark = pytest.mark.integration


@given(
    parts=st.lists(
        st.tuples(st.integers(0, 12), st.sampled_from([0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.3])),
        min_size=1,
        max_size=4,
    ),
    seed=st.integers(-3, 3),
    epochs=st.integers(1, 12),
)
def test_after_some_epochs_every_pair_was_seen_as_often_as_its_weight_says(
    parts: list[tuple[int, float]], seed: int, epochs: int
) -> None:
    """The count is rounded down or up after any number of epochs."""
    given_ = [MixturePart(*part) for part in parts]
    seen = Counter(
        row for epoch in range(epochs) for row in rows_of_epoch(given_, seed, epoch).tolist()
    )

    row = 0
    for count, weight in parts:
        wanted = epochs * weight
        for _ in range(count):
            assert abs(seen.pop(row, 0) - wanted) < 1 + 1e-6
            row += 1
    assert not seen


def test_a_part_of_a_file_is_another_one_in_each_epoch() -> None:
    """Four epochs of a quarter are the complete file, in an order determined by the seed."""
    parts = [MixturePart(8, 0.25)]
    first = [rows_of_epoch(parts, 1, epoch).tolist() for epoch in range(4)]

    assert [len(rows) for rows in first] == [2, 2, 2, 2]
    assert sorted(row for rows in first for row in rows) == list(range(8))
    assert first == [rows_of_epoch(parts, 1, epoch).tolist() for epoch in range(4)]
    assert first != [rows_of_epoch(parts, 2, epoch).tolist() for epoch in range(4)]


def test_weights_that_leave_no_row_are_refused(tmp_path: Path) -> None:
    """Epoch after epoch would be empty, so the training would wait for a batch for ever."""

    class Rows(SimpleNamespace):
        def __len__(self) -> int:
            return 10

    axes = {"x": np.full(10, 3)}
    rows = Rows(folder=tmp_path, parts=[MixturePart(10, 0.1)], starts=None, axes=axes)
    assert len(next(stream_plans(rows, BatchSettings(tokens=90), 1))[2]) == 1
    rows.parts = [MixturePart(10, 0.05)]
    with pytest.raises(InputError, match="less than one row"):
        next(stream_plans(rows, BatchSettings(tokens=90), 1))


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    """Return six gold pairs with weight 2 and ten silver pairs, one too long, with weight 1/3."""
    for name, rows in (("gold", 6), ("silver", 10)):
        content = [f"{name} {'abcdefghij'[row]}" for row in range(rows)]
        if name == "silver":
            content[3] = "silver " * 60
        (tmp_path / f"{name}.a").write_text("".join(line + "\n" for line in content))
    files = ["gold.a", "silver.a"]
    data = pairs(
        tmp_path,
        {**lines(files, files), "weights": [2, 1 / 3]},
        lines(["gold.a"], ["gold.a"]),
        filter={"max_length": 20},
    )
    return prepare(data, bpe(26), tmp_path / "out")


def test_epochs_hold_gold_twice_and_a_third_of_silver(prepared: Prepared) -> None:
    """Counts are taken from the batches over three epochs; validation has no weights."""
    table = prepared.train
    assert [tuple(part) for part in table.parts] == [(6, 2.0), (9, 1 / 3)]
    assert prepared.valid.parts == []

    seen: dict[int, Counter[int]] = {}
    for epoch, _, batch in table.stream(BatchSettings(tokens=40), 1):
        if epoch == 3:
            break
        seen.setdefault(epoch, Counter()).update(batch.rows.tolist())

    assert all(sum(counts[row] for row in range(6)) == 12 for counts in seen.values())
    assert all(sum(counts[row] for row in range(6, 15)) == 3 for counts in seen.values())
    assert Counter(row for counts in seen.values() for row in counts if row >= 6) == Counter(
        range(6, 15)
    )


def test_a_mixture_resumes_at_a_position(prepared: Prepared) -> None:
    """Called with a yielded position, the stream continues with the next batch."""

    def rows(epoch: int, position: int, count: int) -> list[tuple[int, int, list[int]]]:
        batches = prepared.train.stream(BatchSettings(tokens=40), 1, epoch=epoch, position=position)
        return [
            (e, p, batch.rows.tolist())
            for (e, p, batch), _ in zip(batches, range(count), strict=False)
        ]

    whole = rows(0, 0, 12)
    epoch, position, _ = whole[4]
    assert rows(epoch, position, 7) == whole[5:]
    assert np.unique([one[0] for one in whole]).size > 1


def test_weights_are_one_for_each_file() -> None:
    """A wrong number of weights would assign them to the wrong files."""
    with pytest.raises(ValueError, match="1 weights for 2 files"):
        Split.model_validate({"trees": {"files": ["a", "b"]}, "weights": [1]})
