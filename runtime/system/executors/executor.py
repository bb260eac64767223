"""Contract of an executor: settings that open a `concurrent.futures.Executor`, and its registry.

A unit of work is a function of Weft and its settings.  Doing it twice gives the same files, so an
executor may repeat a unit whose worker was lost.  Functions travel by their names.
"""

from __future__ import annotations

import importlib
import json
import pickle
import traceback
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, TypeVar

from ....specs.findings import InputError
from ..plugins import Named, Plugins

T = TypeVar("T")
ATTEMPTS = 3
"""Times that a unit is begun before it counts as lost."""
Outcome = tuple[bool, Any]
"""Whether a unit succeeded, and its result or its error."""


class LostError(InputError):
    """The workers of a unit ended each time before it was done: killed, or out of memory."""

    passing = True
    """Whether the error is transient, so that what is done stays."""

    def __init__(self, problem: str, location: str = "") -> None:
        """Store how the last worker ended, and the file and line of its input."""
        super().__init__(
            problem,
            location=location,
            help="run the same command again to continue; fewer --processes need less memory",
        )

    def __reduce__(self) -> tuple[type[LostError], tuple[str, str]]:
        """Pickle the arguments."""
        return type(self), (self.problem, self.location)


class ExecutorSettings(Named):
    """Base class of the settings of an executor."""

    @abstractmethod
    def open(self, processes: int | None) -> Opened:
        """Start or reach the workers.

        Args:
            processes: number of units that run at the same time; None for what the executor has.

        Raises:
            InputError: its library is not installed, or the cluster cannot be reached.
        """


On = str | Mapping[str, Any] | ExecutorSettings
"""Where units run: `NAME`, `NAME:ADDRESS`, or settings with their `type`."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An executor that takes units."""

    executor: Executor
    at_once: int
    """Units that run at the same time."""
    ahead: int = 1
    """Short units to submit besides, so that no worker waits for the next."""


EXECUTORS: Plugins[ExecutorSettings] = Plugins(
    "executor",
    "weft.executors",
    ExecutorSettings,  # type: ignore[type-abstract]  # plug-ins are subclasses of it
    {
        "local": ".local:Local",
        "ray": ".clusters:Ray",
        "dask": ".clusters:Dask",
        "slurm": ".clusters:Slurm",
    },
    __package__,
)
"""All executors; `EXECUTORS.parse("local", place)` returns the settings of one."""


class Inline(Executor):
    """An executor that does each unit at once, in this process."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Call a function, and return its result or its error; an interrupt is raised."""
        future = Future[T]()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - as of every future
            future.set_exception(error)
        return future


@contextmanager
def opened(
    on: On = "local", processes: int | None = None, *, inline: bool = True
) -> Iterator[Opened]:
    """Open an executor; at an error its units are stopped, and those that wait are discarded.

    Args:
        on: the executor, as `--on` has it.
        processes: units at the same time; default: one on this machine, and on a cluster as many as
            it takes.
        inline: whether one process on this machine is this one.

    Raises:
        InputError: there is no such executor, a setting is wrong, or it cannot be opened.
    """
    settings = settings_of(on)
    if processes is not None and processes < 1:
        raise InputError(f"{processes} is not a valid number of processes", help="give 1 or more")
    if settings.type == "local":
        processes = processes or 1
        if inline and processes == 1:
            yield Opened(Inline(), 1, ahead=0)
            return
    engine = settings.open(processes)
    try:
        yield engine
    except BaseException:
        engine.executor.shutdown(wait=False, cancel_futures=True)
        raise
    engine.executor.shutdown()


def settings_of(on: On) -> ExecutorSettings:
    """Return the settings of an executor.

    Raises:
        InputError: there is no such executor, or a setting is wrong.
    """
    value: object = on
    if isinstance(on, str) and on.lstrip().startswith("{"):
        try:
            value = json.loads(on)
        except ValueError as error:
            raise InputError(
                f"this is not JSON: {error}", location="--on", help='write {"type": "slurm", ...}'
            ) from None
    return EXECUTORS.parse(value, "--on")


def completed(
    next_item: Callable[[], T | None],
    submit: Callable[[T], Future[Any]],
    at_once: int,
    *,
    every: float | None = None,
) -> Iterator[tuple[T, Future[Any]] | None]:
    """Yield the items of units with their futures as they end.

    Args:
        next_item: returns an item to begin; None if there is none now, or no more.
        submit: submits the unit of an item.
        at_once: maximum number of units that are submitted and have not ended.
        every: seconds after which None is yielded if no unit has ended.
    """
    futures: dict[Future[Any], T] = {}
    try:
        while True:
            while len(futures) < at_once and (item := next_item()) is not None:
                futures[submit(item)] = item
            if not futures:
                return
            done, _ = wait(futures, timeout=every, return_when=FIRST_COMPLETED)
            if every is not None:
                yield None
            for future in done:
                yield futures.pop(future), future
    finally:
        for future in futures:
            future.cancel()


def attempted(
    function: Callable[..., Any], arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> Outcome:
    """Call a function in a worker; return its result or its error, which an engine could change."""
    try:
        return True, function(*arguments, **keywords)
    except BaseException as error:  # noqa: BLE001 - the other process raises it
        if not isinstance(error, InputError):
            error.add_note("".join(["in a worker:\n", *traceback.format_tb(error.__traceback__)]))
        return False, portable(error)


def portable(error: BaseException) -> BaseException:
    """Return an error that can be sent to another process, and says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever its class does
        substitute = RuntimeError(f"{type(error).__name__}: {error}")
        for note in getattr(error, "__notes__", ()):
            substitute.add_note(note)
        return substitute
    return error


class _Passed(Future[Any]):
    """The future of a unit whose engine returns an `Outcome`."""

    def __init__(self, inner: Future[Any], lost: tuple[type[BaseException], ...]) -> None:
        super().__init__()
        self._inner, self._lost = inner, lost
        inner.add_done_callback(self._pass)

    def cancel(self) -> bool:
        """Cancel the unit, unless it runs."""
        return self._inner.cancel() and super().cancel()

    def _pass(self, inner: Future[Any]) -> None:
        if self.cancelled() or inner.cancelled():
            super().cancel()
            self.set_running_or_notify_cancel()
            return
        error = inner.exception()
        if error is not None:
            lost = isinstance(error, self._lost)
            problem = (str(error).splitlines() or [type(error).__name__])[0]
            self.set_exception(LostError(problem) if lost else error)
            return
        succeeded, value = inner.result()
        (self.set_result if succeeded else self.set_exception)(value)


class Cluster(Executor):
    """An executor whose engine starts functions, and repeats those of lost workers."""

    def __init__(
        self,
        start: Callable[..., Future[Any]],
        lost: tuple[type[BaseException], ...],
        close: Callable[[], object],
    ) -> None:
        """Store the engine.

        Args:
            start: starts a function with arguments on a worker.
            lost: its errors if it gives up because workers were lost.
            close: leaves the engine; what runs there is stopped.
        """
        self._start, self._lost, self._close = start, lost, close

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Submit a unit."""
        return _Passed(self._start(partial(attempted, fn, args, kwargs)), self._lost)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as of every executor
        """Leave the engine."""
        del wait, cancel_futures
        self._close()


def library(name: str, extra: str) -> ModuleType:
    """Return the library of an engine.

    Args:
        name: its module.
        extra: the extra that installs it.

    Raises:
        InputError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            f"the executor '{extra}' needs {name.partition('.')[0]}, which is not installed",
            location="--on",
            help=f"run pip install 'weft[{extra}]'",
        ) from error
