"""Mixtures: how often the rows of each source occur, by stages of the training."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.runtime.data.plans.epochs import rows_of_epoch
from weft.runtime.data.plans.mixture import described, stages_of, weights_of
from weft.runtime.data.plans.planning import DataPosition
from weft.runtime.data.prepare import Prepared, prepare
from weft.runtime.data.settings import BatchSettings, Stage
from weft.runtime.train.distributed.sampler import MicroBatches, stream_micro_batches
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
    seen = Counter(
        row for epoch in range(epochs) for row in rows_of_epoch(parts, seed, epoch).tolist()
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
    parts = [(8, 0.25)]
    first = [rows_of_epoch(parts, 1, epoch).tolist() for epoch in range(4)]

    assert [len(rows) for rows in first] == [2, 2, 2, 2]
    assert sorted(row for rows in first for row in rows) == list(range(8))
    assert first == [rows_of_epoch(parts, 1, epoch).tolist() for epoch in range(4)]
    assert first != [rows_of_epoch(parts, 2, epoch).tolist() for epoch in range(4)]


def test_weights_that_leave_no_row_are_refused() -> None:
    """Epoch after epoch would be empty, so the training would wait for a batch for ever."""
    stages = (Stage(until=3, weights={"a": 2.0}), Stage(weights={"a": 0.05}))

    assert len(stages_of(stages, {"a": 20}, 9)) == 2
    with pytest.raises(InputError, match="less than one row") as caught:
        stages_of(stages, {"a": 10}, 9)
    assert caught.value.location == "#/data/mixture/1/weights"


def test_a_temperature_gives_shares_by_hand() -> None:
    """At 2, sources of 900 and 100 rows have shares of 30 : 10; 1,000 rows are an epoch."""
    weights = weights_of(Stage(temperature=2.0), {"large": 900, "small": 100})

    assert [rows * weight for rows, weight in weights] == pytest.approx([750, 250])
    assert [rows for rows, _ in weights] == [900, 100]


@pytest.mark.parametrize(
    ("done", "left"),
    [
        (0, [(4, 2.0, False), (2, 1.0, True), (None, 0.5, True)]),
        (3, [(1, 2.0, False), (2, 1.0, True), (None, 0.5, True)]),
        (4, [(2, 1.0, True), (None, 0.5, True)]),
        (5, [(1, 1.0, False), (None, 0.5, True)]),
        (6, [(None, 0.5, True)]),
        (9, [(None, 0.5, False)]),
        (30, [(None, 0.5, False)]),
    ],
)
def test_a_resumed_training_has_the_stages_that_are_left(
    done: int, left: list[tuple[int | None, float, bool]]
) -> None:
    """By hand, for stages that end with updates 4 and 6, 0.6 of the run."""
    stages = (Stage(until=4, weights={"a": 2.0}), Stage(until=0.6), Stage(weights={"a": 0.5}))

    remaining = stages_of(stages, {"a": 10}, 10, done)

    assert [(count, weights[0][1], begins) for count, weights, begins in remaining] == left


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    """Return six gold pairs with weight 2 and ten silver pairs, one too long, with weight 1/3."""
    for name, rows in (("gold", 6), ("silver", 10)):
        content = [f"{name} {'abcdefghij'[row]}" for row in range(rows)]
        if name == "silver":
            content[3] = "silver " * 60
        (tmp_path / f"{name}.a").write_text("".join(line + "\n" for line in content))
    sources = {name: lines([f"{name}.a"], [f"{name}.a"]) for name in ("gold", "silver")}
    data = pairs(
        tmp_path, {"sources": sources}, lines(["gold.a"], ["gold.a"]), filter={"max_length": 20}
    )
    return prepare(data, bpe(26), tmp_path / "out")


WEIGHTS = [(6, 2.0), (9, 1 / 3)]


def test_epochs_hold_gold_twice_and_a_third_of_silver(prepared: Prepared) -> None:
    """Counts are taken from the batches over three epochs; validation has no weights."""
    table = prepared.train
    assert table.sources == {"gold": 6, "silver": 9}
    assert prepared.valid.sources == {}

    seen: dict[int, Counter[int]] = {}
    for at, batch in table.stream(BatchSettings(tokens=40), 1, weights=WEIGHTS):
        if at.epoch == 3:
            break
        seen.setdefault(at.epoch, Counter()).update(batch.rows.tolist())

    assert all(sum(counts[row] for row in range(6)) == 12 for counts in seen.values())
    assert all(sum(counts[row] for row in range(6, 15)) == 3 for counts in seen.values())
    assert Counter(row for counts in seen.values() for row in counts if row >= 6) == Counter(
        range(6, 15)
    )


def test_a_mixture_resumes_at_a_position(prepared: Prepared) -> None:
    """Called with a yielded position, the stream continues with the next batch."""

    def rows(at: DataPosition, count: int) -> list[tuple[DataPosition, list[int]]]:
        batches = prepared.train.stream(BatchSettings(tokens=40), 1, at=at, weights=WEIGHTS)
        return [(at, batch.rows.tolist()) for at, batch in islice(batches, count)]

    whole = rows(DataPosition(), 12)
    assert rows(whole[4][0], 7) == whole[5:]
    assert len({at.epoch for at, _ in whole}) > 1


def test_sources_of_different_readers_are_one_table(tmp_path: Path) -> None:
    """Lines, then JSON lines; a changed mixture does not prepare again."""
    (tmp_path / "gold.a").write_text("sun moon\nsun\n")
    records = [{"source": "moon", "target": "star"}, {"source": "sun", "target": "moon\nsun"}]
    (tmp_path / "silver.jsonl").write_text("".join(json.dumps(row) + "\n" for row in records))
    sources = {
        "gold": lines(["gold.a"], ["gold.a"]),
        "silver": {"jsonl": {"files": ["silver.jsonl"]}},
    }
    data = pairs(tmp_path, {"sources": sources}, {"sources": sources})
    messages: list[str] = []

    made = prepare(data, bpe(24), tmp_path / "out", log=messages.append)
    mixed = data.model_copy(update={"mixture": (Stage(temperature=2.0),)})
    prepare(mixed, bpe(24), tmp_path / "out", log=messages.append)

    assert made.train.sources == made.valid.sources == {"gold": 2, "silver": 2}
    assert [row["target"] for row in made.text("valid")] == ["sun moon", "sun", "star", "moon\nsun"]
    assert made.digest == prepare(mixed, bpe(24), tmp_path / "out").digest
    assert not messages


@pytest.mark.parametrize("processes", [1, 2])
def test_stages_change_what_updates_draw_from(prepared: Prepared, processes: int) -> None:
    """Gold alone for three updates, then silver alone; resumed anywhere, the rows are the same."""
    stages = (Stage(until=3, weights={"silver": 0.0}), Stage(weights={"gold": 0.0}))

    def drawn(done: int, at: DataPosition, which: int) -> Iterator[MicroBatches]:
        remaining = stages_of(stages, prepared.train.sources, 8, done)
        return stream_micro_batches(
            prepared.train,
            BatchSettings(tokens=40),
            1,
            accumulate=2,
            at=at,
            share=(which, processes),
            stages=remaining,
        )

    def rows(update: MicroBatches) -> list[list[int]]:
        return [batch.rows.tolist() for _, batch in update.batches]

    for which in range(processes):
        whole = list(islice(drawn(0, DataPosition(), which), 8))
        for number, update in enumerate(whole):
            assert {row < 6 for batch in rows(update) for row in batch} == {number < 3}
        for done in range(1, 8):
            again = list(islice(drawn(done, whole[done - 1].at, which), 8 - done))
            assert list(map(rows, again)) == list(map(rows, whole[done:]))


def test_a_source_without_rows_is_refused(tmp_path: Path) -> None:
    """Its loss would be 0, which would select the best checkpoint."""
    (tmp_path / "gold.a").write_text("sun moon\nsun\n")
    (tmp_path / "blank.a").write_text("\n\n")
    sources = {name: lines([f"{name}.a"], [f"{name}.a"]) for name in ("gold", "blank")}
    data = pairs(tmp_path, lines(["gold.a"], ["gold.a"]), {"sources": sources})

    with pytest.raises(InputError, match="none of the rows of the source 'blank' of 'valid'"):
        prepare(data, bpe(20), tmp_path / "out")


def test_stages_are_described_by_hand() -> None:
    """As `weft show RUN` prints them."""
    stages = (Stage(until=0.5, weights={"b": 0.0}), Stage(temperature=5.0))

    assert described(stages, ["a", "b"], 10) == [
        {"updates": [1, 5], "weights": {"a": 1.0, "b": 0.0}, "temperature": None},
        {"updates": [6, 10], "weights": {}, "temperature": 5.0},
    ]
