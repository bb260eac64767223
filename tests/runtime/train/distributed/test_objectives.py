"""Tests that an objective of several losses trains alike with one process and with many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from weft.runtime.train.history import read

from ..objective.conftest import DECODER, MASKED, MODEL, TWO_LOSSES, write_run
from .conftest import Bench, curve

pytestmark = pytest.mark.slow

WAYS = {
    "ddp": (2, {"parallel__data": "ddp"}),
    "fsdp": (2, {"parallel__data": "fsdp"}),
    "fsdp on 3": (3, {"parallel__data": "fsdp"}),
}
OBJECTIVES: dict[str, dict[str, Any]] = {
    "two losses": {
        "objective": TWO_LOSSES,
        "params": {"model": MODEL, "reader": {"spec": "gpt2", "params": DECODER}},
    },
    "frozen": {
        "objective": TWO_LOSSES,
        "params": {"model": MODEL, "reader": {"spec": "gpt2", "params": DECODER}},
        "freeze": ["model.encoder.*"],
    },
    "masked": {
        "objective": MASKED,
        "params": {"model": {"spec": "gpt2", "params": DECODER}},
        "columns": {"text": "src"},
    },
}


def bench_of(folder: Path, name: str) -> Bench:
    """Return the run of an objective on disk."""
    file = write_run(folder, optimizer={"clip": 0.5}, **OBJECTIVES[name])
    bench = Bench.__new__(Bench)
    bench.folder, bench.file = folder, file
    return bench


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_each_loss_equals_that_of_one_process(tmp_path: Path, name: str, way: str) -> None:
    """All losses and scores agree to 1e-5 in float32, with dropout, noise and clipping."""
    bench = bench_of(tmp_path, name)
    processes, settings = WAYS[way]

    alone, many = bench.train("alone", 0), bench.train("many", processes, **settings)

    assert curve(many) == [(*head, pytest.approx(loss, abs=1e-5)) for *head, loss in curve(alone)]
    for left, right in zip(*(read(each) for each in (alone, many)), strict=True):
        for key in left.keys() - {"seconds", "tokens_per_second", "data_wait_share"}:
            assert right[key] == pytest.approx(left[key], abs=1e-5), key
