"""`benchmarks/train.py`: figures in its table follow from what it measured."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that imports a benchmark; its modules are forgotten after the test."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module
    for name in [one.stem for one in FOLDER.glob("*.py")]:
        sys.modules.pop(name, None)


class Pipe:
    """A contestant of `train.py` whose updates take known times."""

    def __init__(self) -> None:
        """Start with the updates still to come: seconds, tokens, CPU seconds, MB."""
        self.updates = iter([(2.0, 100, 3.0, 50.0), (4.0, 100, 7.0, 60.0), (1.0, 100, 1.5, 60.0)])

    def send(self, request: object) -> None:
        """Take a request."""

    def recv(self) -> tuple[float, int, float, float]:
        """Return the figures of an update."""
        return next(self.updates)


@pytest.mark.integration
def test_a_row_of_training_has_the_median_of_its_cpu_seconds(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Updates of 100 tokens in 2, 4 and 1 seconds, 3, 7 and 1.5 of the processor; peak 1,000."""
    train = module("train")
    how = train.How(half=False, best=False, threads=1, size=train.SIZES["trial"])
    monkeypatch.setattr(train, "peak_flops", lambda _: 1000.0)
    monkeypatch.setattr(train, "flops", lambda *_: [(1000.0, 100)])
    monkeypatch.setattr(train.multiprocessing, "get_context", lambda _: None)
    made = train.Contest

    def contest(names: list[str], how: Any) -> Any:
        found = made([], how)
        found.pipes = {name: Pipe() for name in names}
        found.cold = dict.fromkeys(names, 9.0)
        return found

    monkeypatch.setattr(train, "Contest", contest)

    [row] = train.meet(["weft"], how, [100], 3, ("base", "float32", "shipped"))

    assert (row["median"], row["cpu"], row["peak"], row["share"]) == (50.0, 3.0, 60.0, 0.5)
    cells = "| float32 | 100 | weft | weft train | 50 | 25 to 100 | 1.00 | 50 | 3.00 | 60 | 9 |"
    head, rule, line = train.table([row]).splitlines()
    assert line == cells
    assert head.count("|") == rule.count("|") == cells.count("|")
