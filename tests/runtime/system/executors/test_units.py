"""Units of a command on processes of this machine: their states, results and errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from weft.runtime.system.executors.executor import LostError, opened
from weft.runtime.system.executors.units import LOCKS, WorkUnit, WorkUnits, results_of
from weft.specs.findings import InputError

pytestmark = pytest.mark.integration

DIES = "import os; os.kill(os.getpid(), 9)"
WAITS = """
import time
from pathlib import Path
while not Path({!r}).exists():
    time.sleep(0.02)
"""
"""Statements that a worker runs in place of a command's work."""


def ignore(units: WorkUnits[str]) -> None:
    """Show nothing."""


def run(
    programs: list[str],
    folder: Path,
    watch: Callable[[WorkUnits[str]], None] = ignore,
    *,
    go_on: bool = True,
) -> list[int]:
    """Run programs, each for ten lines, in two processes; return which are done."""
    units = (
        WorkUnit(number, f"lines {10 * number + 1}", 10, f"in.txt:{10 * number + 1}", program)
        for number, program in enumerate(programs)
    )
    done = list[int]()
    with opened("local", 2) as engine:
        results = results_of(
            lambda: next(units, None),
            lambda program: (exec, program),
            engine,
            folder,
            watch=watch,
            go_on=go_on,
        )
        for unit, _ in results:
            done.append(unit.number)
            (folder / "done").write_text(str(len(done)))
    return sorted(done)


def test_units_are_queued_then_run_and_are_done(tmp_path: Path) -> None:
    """Two processes do two at a time, and one more waits; at the end no lock file remains."""
    path, shown = tmp_path / "go", list[tuple[list[str], int, int]]()

    def watch(units: WorkUnits[str]) -> None:
        states = [unit.state for unit in units.pending]
        shown.append((states, units.done, units.rows))
        if states.count("running") == 2:
            path.touch()

    assert run([WAITS.format(str(path))] * 4, tmp_path, watch) == [0, 1, 2, 3]

    assert (["running", "running", "queued"], 0, 0) in shown
    assert shown[-1] == ([], 4, 40)
    assert not (tmp_path / LOCKS).exists()


def test_after_a_lost_unit_the_others_are_done(tmp_path: Path) -> None:
    """The error names the first line of its input, and how many others are lost."""
    states = list[dict[str, int]]()

    with pytest.raises(LostError) as error:
        run(["", DIES, "", DIES, ""], tmp_path, lambda units: states.append(dict(units.states)))

    assert error.value.location == "in.txt:11"
    assert error.value.problem == (
        "lines 11 and 1 more could not be done: a worker process ended: SIGKILL"
    )
    assert states[-1] == {"lost": 2, "done": 3}


def test_after_a_failed_unit_none_is_begun(tmp_path: Path) -> None:
    """A checkpoint that cannot be opened fails each unit; the error of the first one is raised."""
    shown = list[WorkUnits[str]]()
    wrong = "from weft.specs.findings import InputError; raise InputError('no file', location='x')"

    with pytest.raises(InputError, match="no file") as error:
        run([wrong] * 20, tmp_path, shown.append)

    assert error.value.location == "x"
    assert 1 <= shown[-1].states["failed"] <= 4
    assert shown[-1].wrong[0].problem == "no file"


def test_where_results_are_written_in_order_a_lost_unit_ends_the_work(tmp_path: Path) -> None:
    """What was begun with it is done, and no other."""
    with pytest.raises(LostError):
        run([DIES, DIES] + [""] * 20, tmp_path, go_on=False)

    assert int((tmp_path / "done").read_text()) <= 2


def test_an_error_of_weft_itself_tells_its_input_and_where_it_arose(tmp_path: Path) -> None:
    """The traceback of another process would be lost."""
    with pytest.raises(ZeroDivisionError) as error:
        run(["", "1 / 0"], tmp_path)

    notes = "\n".join(error.value.__notes__)
    assert "in lines 11, from in.txt:11" in notes
    assert 'File "<string>", line 1' in notes
