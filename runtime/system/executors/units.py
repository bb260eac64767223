"""Units of a command on an executor: the state of each, its result, and what is wrong with it.

A worker locks a file of its unit while it does it, in a folder that all workers see.  So the state
is known on every engine, also that of a unit whose worker was lost and which waits again.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from filelock import FileLock, Timeout

from ....specs.findings import InputError
from ..lock import is_locked
from .executor import Inline, LostError, Opened, completed

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
State = Literal["queued", "running", "lost", "failed", "done"]
"""`lost`: its workers ended each time before it was done; `failed`: it raised an error."""
LOCKS = ".units"
"""Folder of the lock files of units, in the folder of the command."""
POLL = 0.5
"""Seconds between two looks at the units."""


@dataclass(slots=True, eq=False)
class WorkUnit(Generic[T]):
    """A part of the work of a command, which one worker does at a time."""

    number: int
    """Its place among all units."""
    name: str
    """What people call it, such as `lines 1-1,000`."""
    rows: int
    location: str
    """File and line at which its input begins."""
    item: T
    """What the command knows it by."""
    state: State = "queued"
    since: float = field(default_factory=time.monotonic)
    """When it entered this state, by `time.monotonic`."""
    problem: str = ""
    """What is wrong with it, if it is lost or failed."""

    def enter(self, state: State) -> None:
        """Change the state."""
        if state != self.state:
            self.state, self.since = state, time.monotonic()


@dataclass(slots=True)
class WorkUnits(Generic[T]):
    """All units of a command that were submitted."""

    pending: list[WorkUnit[T]] = field(default_factory=list)
    """Those that are queued or running, in order."""
    wrong: list[WorkUnit[T]] = field(default_factory=list)
    """Those that are lost or failed."""
    done: int = 0
    rows: int = 0
    """Rows of the units that are done."""

    @property
    def states(self) -> Counter[State]:
        """How many units are in each state."""
        states = Counter[State](unit.state for unit in (*self.pending, *self.wrong))
        states["done"] = self.done
        return states

    def count(self, rows: int) -> None:
        """Count a unit that is done."""
        self.done, self.rows = self.done + 1, self.rows + rows


Watch = Callable[[WorkUnits[Any]], object]
"""Called with the units of a command again and again, at least twice a second."""


def results_of(
    next_unit: Callable[[], WorkUnit[T] | None],
    work: Callable[[T], tuple[Any, ...]],
    engine: Opened,
    folder: Path,
    *,
    units: WorkUnits[T] | None = None,
    watch: Watch | None = None,
    go_on: bool = True,
) -> Generator[tuple[WorkUnit[T], Any]]:
    """Do units on an executor; yield each with its result, as they end.

    After a unit that failed no other is begun, since the next would fail as well; after one that is
    lost, the others are done.  What was begun ends, and then the first wrong unit raises its error.

    Args:
        next_unit: returns a unit to begin; None if there is no more.
        work: returns the function of a unit, which a module has, and its arguments.
        engine: the executor.
        folder: folder of the command, which all workers see.
        units: the units so far.
        watch: called with the units, if other processes do them.
        go_on: whether others are done after one that is lost.

    Raises:
        LostError: the workers of a unit were lost; the error names its input.
        Exception: a unit failed.  If it is no `InputError`, a note names its input.
    """
    units, locks = units or WorkUnits(), folder / LOCKS
    apart, errors = not isinstance(engine.executor, Inline), dict[WorkUnit[T], BaseException]()
    ending: tuple[State, ...] = ("failed",) if go_on else ("failed", "lost")

    def begin() -> WorkUnit[T] | None:
        return None if any(unit.state in ending for unit in units.wrong) else next_unit()

    def submit(unit: WorkUnit[T]) -> Future[Any]:
        units.pending.append(unit)
        function, *arguments = work(unit.item)
        if apart:
            arguments, function = [locks / f"{unit.number}", function, *arguments], done_locked
        return engine.executor.submit(function, *arguments)

    def look() -> None:
        for unit in units.pending if apart else ():
            unit.enter("running" if is_locked(locks / f"{unit.number}") else "queued")
        if apart and watch is not None:
            watch(units)

    with ExitStack() as stack:
        if apart:
            locks.mkdir(parents=True, exist_ok=True)
            stack.callback(shutil.rmtree, locks, ignore_errors=True)
        for event in completed(begin, submit, engine.at_once + engine.ahead, every=POLL):
            if event is None:
                look()
                continue
            unit, future = event
            units.pending.remove(unit)
            error = future.exception()
            if error is None:
                units.count(unit.rows)
                yield unit, future.result()
                continue
            unit.enter("lost" if isinstance(error, LostError) else "failed")
            unit.problem = getattr(error, "problem", f"{type(error).__name__}: {error}")
            units.wrong.append(unit)
            errors[unit] = error
        look()
    if errors:
        first = min(errors, key=lambda unit: unit.number)
        raise _error_of(first, errors[first], len(errors) - 1)


def done_locked(lock: Path, function: Callable[..., T], *arguments: Any) -> T:
    """Do a unit in a worker, which locks a file as long as it does so."""
    with ExitStack() as stack:
        with suppress(OSError, Timeout):  # the command has ended, and removed the folder
            stack.enter_context(FileLock(lock, timeout=POLL))
        return function(*arguments)


def _error_of(unit: WorkUnit[Any], error: BaseException, others: int) -> BaseException:
    """Return the error of a unit with the place of its input."""
    if isinstance(error, LostError):
        more = f" and {others} more" * bool(others)
        return LostError(f"{unit.name}{more} could not be done: {error.problem}", unit.location)
    if not isinstance(error, InputError):
        error.add_note(f"in {unit.name}, from {unit.location}")
    return error
