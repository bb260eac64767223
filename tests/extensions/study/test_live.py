"""Tests of the table that follows the jobs of a study, drawn on a console without a terminal."""

from __future__ import annotations

import io
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from rich.console import Console
from weft.extensions.study.jobs import LOCK, Job, PoolState, status_table, watched
from weft.runtime.cli.common.terminal import LONGEST

HEAD = ["row", "seed", "state", "update", "loss", "valid loss", "time"]
COSTS = {"updates": 2000, "training_flops": 2e9}
MEASURED = "0" * 16
"""Folder of the measurements of each job."""


class Folder:
    """A study of jobs that have the files of their states, and nothing else."""

    def __init__(self, out: Path, *rows: str) -> None:
        """Write a queued job for each row."""
        self.out = out
        self.record: dict[str, Any] = {"study": "toy", "rows": []}
        for row in rows:
            self.record["rows"].append({"name": row, "jobs": {"1": f"key-{row}"}, "costs": COSTS})
            self.write(row, "task.json", {"measured": MEASURED, "splits": [], "metrics": []})

    def job(self, row: str) -> Job:
        """Return the job of a row."""
        return Job(self.out / "jobs" / f"key-{row}", row, 1)

    def write(self, row: str, name: str, *values: Any) -> None:
        """Write JSON values, one on a line, to a file of the job of a row."""
        path = self.job(row).folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(value) + "\n" for value in values))

    def trained(self, row: str, update: int, seconds: float) -> None:
        """Write a history with the losses 1.5 and, on the validation data, 2.25."""
        self.write(
            row,
            "train/metrics.jsonl",
            {"type": "train", "update": update, "loss": 1.5, "seconds": seconds},
            {"type": "valid", "update": update, "loss": 2.25},
        )

    def shown(self, work: PoolState | None = None, width: int = 120) -> tuple[list[list[str]], str]:
        """Draw the table; return its cells, line by line, and its caption."""
        console = Console(file=io.StringIO(), width=width)
        console.print(status_table(self.record, self.out, work))
        return cells(console.file.getvalue())  # type: ignore[attr-defined]


def cells(drawn: str) -> tuple[list[list[str]], str]:
    """Return the cells of the lines of a drawn table, and the line below it."""
    lines = [line.rstrip() for line in drawn.splitlines()]
    inner = [line.strip("│┃") for line in lines if line.startswith(("│", "┃"))]
    found = [[cell.strip() for cell in line.replace("┃", "│").split("│")] for line in inner]
    return found, lines[-1]


@pytest.fixture
def study(tmp_path: Path) -> Folder:
    """Return a study with a job in each state."""
    study = Folder(tmp_path, "ready", "half", "wrong", "paused", "later")
    study.trained("ready", 2000, 100)
    study.write("ready", f"measured/{MEASURED}/result.json", {})
    study.trained("half", 500, 25)
    study.write("wrong", "error.json", {"problem": "the loss is not finite"})
    study.trained("paused", 1000, 30)
    (study.job("paused").folder / "train/checkpoints/001000").mkdir(parents=True)
    return study


def test_a_line_has_the_state_and_the_newest_values_of_its_job(study: Folder) -> None:
    """A result, an error, a checkpoint or the lock of its worker is in the folder."""
    work = PoolState([study.job("later")], running={"key-half": (study.job("half"), 0.0)})

    with FileLock(study.job("half").folder / LOCK):
        lines, caption = study.shown(work)

    assert lines == [
        HEAD,
        ["ready", "1", "done", "2,000/2,000", "1.50", "2.25", "100 s"],
        ["half", "1", "running", "500/2,000", "1.50", "2.25", "25 s"],
        ["wrong", "1", "failed", "0/2,000", "", "", ""],
        ["", "", "the loss is not finite", "", "", "", ""],
        ["paused", "1", "stopped", "1,000/2,000", "1.50", "2.25", "30 s"],
        ["later", "1", "queued", "0/2,000", "", "", ""],
    ]
    # 3,500 updates took 155 s; 1,500, 2,000, 1,000 and 2,000 are left: 288 s, with one process.
    assert caption == "1 of 5 done, 1 running, 1 failed; about 4.8 min left"


def test_before_anything_runs_all_jobs_wait(tmp_path: Path) -> None:
    """No speed is known yet, so no time is promised."""
    lines, caption = Folder(tmp_path, "a", "b").shown()

    assert lines[1:] == [[row, "1", "queued", "0/2,000", "", "", ""] for row in ("a", "b")]
    assert caption == "0 of 2 done"


def test_without_a_pool_nothing_that_is_not_locked_runs(study: Folder) -> None:
    """`weft study status`: a training without a process and a checkpoint begins anew."""
    lines, caption = study.shown()

    assert lines[2][:3] == ["half", "1", "queued"]
    assert "running" not in caption


def test_what_the_pool_says_is_newer_than_the_files(study: Folder) -> None:
    """On a full disk, a job that failed cannot say so in its folder."""
    work = PoolState([], failed={"key-later": "ended with exit code 1"})

    lines, caption = study.shown(work)

    assert lines[-2][:3] == ["later", "1", "failed"]
    assert lines[-1][2] == "ended with exit code 1"
    assert caption.startswith("1 of 5 done, 2 failed")


def test_a_long_error_ends_at_a_word_and_wraps_on_a_narrow_terminal(tmp_path: Path) -> None:
    """The report has all of it; the table stays within the terminal."""
    study = Folder(tmp_path, "a")
    study.write("a", "error.json", {"problem": " ".join(["twelve bytes"] * 12)})

    for width in (60, 120):
        console = Console(file=io.StringIO(), width=width)
        console.print(status_table(study.record, study.out))
        drawn = console.file.getvalue()  # type: ignore[attr-defined]
        lines, _ = cells(drawn)
        state = next(number for number, line in enumerate(lines) if line[2] == "failed")
        error = " ".join(line[2] for line in lines[state + 1 :])
        assert max(map(len, drawn.splitlines())) <= width
        assert error.removesuffix("…").split() == (["twelve", "bytes"] * 12)[: len(error.split())]
        assert len(error) <= LONGEST
        assert error.endswith("…")


def test_an_error_is_no_markup(tmp_path: Path) -> None:
    """Its brackets are shown, and style nothing; names of rows have none."""
    study = Folder(tmp_path, "a")
    study.write("a", "error.json", {"problem": "no [key] in it"})

    lines, _ = study.shown()

    assert lines[2][2] == "no [key] in it"


def test_states_have_colors_on_a_terminal(study: Folder) -> None:
    """Green, cyan, red and yellow, by the numbers of ANSI; a queued job has none."""
    work = PoolState([], running={"key-half": (study.job("half"), 0.0)})
    console = Console(
        file=io.StringIO(), width=120, force_terminal=True, color_system="standard", no_color=False
    )

    with FileLock(study.job("half").folder / LOCK):
        console.print(status_table(study.record, study.out, work))

    drawn = console.file.getvalue()  # type: ignore[attr-defined]
    for state, number in (("done", 32), ("running", 36), ("failed", 31), ("stopped", 33)):
        assert f"\x1b[{number}m{state}" in drawn
    assert "mqueued" not in drawn


def test_the_live_table_ends_with_the_last_states(tmp_path: Path) -> None:
    """It is drawn again at once when nothing runs or waits any more."""
    study = Folder(tmp_path, "a", "b")
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system=None)
    work = PoolState([], running={row: (study.job(row), 0.0) for row in ("key-a", "key-b")})
    with watched(study.record, study.out, console, live=True) as look:
        look(work)
        first = len(console.file.getvalue())  # type: ignore[attr-defined]
        work.running.clear()
        study.trained("a", 2000, 100)
        study.write("a", f"measured/{MEASURED}/result.json", {})
        work.done.append(study.job("a"))
        work.failed["key-b"] = "killed by SIGKILL"
        look(work)
        last = console.file.getvalue()[first:]  # type: ignore[attr-defined]

    assert "0 of 2 done" in console.file.getvalue()[:first]  # type: ignore[attr-defined]
    lines, _ = cells(last[last.index("┏") :])
    assert [line[2] for line in lines[1:]] == ["done", "failed", "killed by SIGKILL"]
    assert "1 of 2 done, 1 failed" in last


def test_without_a_terminal_each_job_that_ends_is_a_line(tmp_path: Path) -> None:
    """Once, also if the pool looks again."""
    study = Folder(tmp_path, "a", "b")
    console = Console(file=io.StringIO(), width=120)
    work = PoolState([], stopped_by=signal.SIGINT)
    with watched(study.record, study.out, console, live=False) as look:
        look(work)
        work.done.append(study.job("a"))
        look(work)
        work.failed["key-b"] = "no [space] left"
        look(work)
        look(work)

    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line.partition(" s  ")[2] for line in lines] == [
        "a, seed 1: done",
        "b, seed 1: failed, no [space] left",
    ]
