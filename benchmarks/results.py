"""Results of a benchmark, written one by one, and its turn among benchmarks that share a machine.

Several benchmarks prepare at the same time and measure one at a time (`measure_gpu.py`): with
`--in-turn` a benchmark says that it is prepared by a file beside its rows, and waits for another.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

READY, TURN = ".ready", ".turn"
"""Suffixes of the files, beside the rows, that say that a benchmark is prepared and may measure.
The second holds the names of those that were not prepared yet, one a line."""
IDENTITY = ("name", "precision", "tokens", "form", "beam", "kernel", "case", "layers", "mode")
"""Fields that say what a row measures."""
_disturbed_by: list[str] = []
_BEGAN = time.monotonic()


def add_rows_option(parser: argparse.ArgumentParser) -> None:
    """Add the options `--rows`, whose value `write_row` takes, `--in-turn` and `--seconds`."""
    parser.add_argument("--rows", type=Path, help="file to which each row is appended as JSON")
    parser.add_argument(
        "--in-turn", action="store_true", help="wait until the file of the turn is beside --rows"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=math.inf,
        help="begin no second turn of anything after this many seconds",
    )


def is_late(seconds: float) -> bool:
    """Return whether the program has run for this many seconds."""
    return time.monotonic() - _BEGAN > seconds


def turns(count: int, seconds: float) -> Iterator[int]:
    """Yield the numbers of turns, two or more while time lasts; the first is a warm-up."""
    for turn in range(count):
        if turn > 1 and is_late(seconds):
            return
        yield turn


def wait_for_turn(options: argparse.Namespace) -> None:
    """Say that the benchmark is prepared, and wait until it may measure; once is enough."""
    if not options.in_turn:
        return
    turn, parent = options.rows.with_suffix(TURN), os.getppid()
    options.rows.with_suffix(READY).touch()
    while not turn.exists():
        if os.getppid() != parent:
            raise SystemExit("the program that gives turns has ended")
        time.sleep(0.05)
    _disturbed_by[:] = turn.read_text(encoding="utf-8").splitlines()


def write_row(path: Path | None, row: Mapping[str, Any]) -> None:
    """Append a row to a file of JSON lines; do nothing without a path."""
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**row, "disturbed_by": _disturbed_by}) + "\n")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the complete rows of a file, the last about each thing; none if it does not exist."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return list({tuple(row.get(key) for key in IDENTITY): row for row in rows}.values())
