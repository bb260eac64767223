"""The command line of programs that check many generated files in several processes."""

# ruff: noqa: T201 - prints the progress of these programs

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

CHUNK = 500
"""Number of files that one task of a process checks."""
Task = tuple[int, int, float]
"""Seed, number of the chunk, and permitted seconds of one file."""
Checked = tuple[Counter[str], float, list[Any]]
"""Counts, the seconds of the slowest file, and the files that are wrong, in any form."""


def run(
    doc: str | None,
    *,
    check: Callable[[Task], Checked],
    write: Callable[[Path, int, Any], None],
    counted: str,
    files: int,
    out: str,
) -> int:
    """Check the files in several processes; return the exit code, 1 if any is wrong.

    Args:
        doc: docstring of the program.
        check: checks the files of one task; a function of a module.
        write: writes a wrong file, given the folder and its number.
        counted: name of the counts in the report.
        files: number of files, unless `--files` is given.
        out: folder for wrong files, unless `--out` is given.
    """
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--files", type=int, default=files, help="number of files")
    parser.add_argument("--processes", type=int, default=2, help="number of processes")
    parser.add_argument("--seed", type=int, default=1, help="random seed")
    parser.add_argument("--seconds", type=float, default=1.0, help="CPU time of one file")
    parser.add_argument("--out", type=Path, default=Path(out), help="folder for wrong files")
    options = parser.parse_args()
    tasks = [(options.seed, chunk, options.seconds) for chunk in range(options.files // CHUNK)]
    counts, slowest, wrong, done = Counter[str](), 0.0, 0, 0
    begin = time.monotonic()
    with ProcessPoolExecutor(options.processes) as pool:
        for chunk, seconds, failures in pool.map(check, tasks):
            counts += chunk
            slowest, done = max(slowest, seconds), done + CHUNK
            for failure in failures:
                wrong += 1
                options.out.mkdir(parents=True, exist_ok=True)
                write(options.out, wrong, failure)
            print(
                f"\r{done:,} files, {wrong} wrong, slowest {slowest:.2f} s,"
                f" {time.monotonic() - begin:.0f} s",
                end="",
                file=sys.stderr,
                flush=True,
            )
    print(file=sys.stderr)
    report = {"files": done, "wrong": wrong, "slowest": round(slowest, 2), "seed": options.seed}
    print(json.dumps(report | {counted: dict(sorted(counts.items()))}))
    return int(wrong > 0)
