"""Processes of this machine: each is started once, runs one unit after another, and is replaced.

Workers are commands with a pipe, so a script needs no `if __name__ == "__main__"`.  A worker whose
parent ends, however it ends, gets SIGTERM: a training saves a checkpoint, and nothing goes on.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Literal, TypeVar

from ..processes import cores, gpus
from .executor import ATTEMPTS, ExecutorSettings, LostError, Opened, Outcome, attempted, portable

T = TypeVar("T")
POLL = 0.5
"""Seconds between two looks of a worker at the process that started it."""


class Local(ExecutorSettings):
    """Processes of this machine, each with its own cores and, if there are GPUs, one of them."""

    type: Literal["local"] = "local"

    def open(self, processes: int | None) -> Opened:
        """Return an executor of processes that are started as they are needed."""
        count = processes or len(cores())
        return Opened(LocalExecutor(count, gpus()), count)


def slots(processes: int, available: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the cores of each process: equally many, or shared ones if there are too few.

    >>> slots(2, [0, 1, 2, 3, 4])
    [(0, 1), (2, 3)]
    >>> slots(3, [0, 1])
    [(0,), (1,), (0,)]
    """
    share = max(1, len(available) // processes)
    starts = [(number * share) % (len(available) // share * share) for number in range(processes)]
    return [tuple(available[start : start + share]) for start in starts]


@dataclass(frozen=True, slots=True)
class ProcessSlot:
    """What one process has of the machine."""

    number: int
    cores: tuple[int, ...]
    pinned: bool = True
    """Whether the process runs on these cores alone, or on as many."""

    def environment(self, gpus: Sequence[str]) -> dict[str, str]:
        """Return the environment of the process; it sees one of the GPUs."""
        threads = str(len(self.cores))
        variables = {**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        if gpus:
            variables["CUDA_VISIBLE_DEVICES"] = gpus[self.number % len(gpus)]
        return variables


class _EndedError(Exception):
    """A worker process has ended; the message says how."""


class _Process:
    """A worker process, used by one thread."""

    def __init__(self, slot: ProcessSlot, gpus: Sequence[str]) -> None:
        self._pipe, theirs = Pipe()
        chosen = [*slot.cores] if slot.pinned else []
        command = f"from {__name__} import serve; serve({theirs.fileno()}, {os.getpid()}, {chosen})"
        try:
            # A session of its own: the terminal sends Ctrl-C only to the process of the command.
            self.process = subprocess.Popen(
                [sys.executable, "-c", command],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                env=slot.environment(gpus),
                start_new_session=True,
            )
        finally:
            theirs.close()

    def call(self, work: bytes) -> Any:
        """Do a unit, and return its result.

        Raises:
            _EndedError: the process ended before the unit was done.
        """
        try:
            self._pipe.send_bytes(work)
            succeeded, value = pickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError):
            code = self.process.wait()
            how = signal_name(-code) if code < 0 else f"exit code {code}"
            raise _EndedError(f"a worker process ended: {how}") from None
        if succeeded:
            return value
        raise value

    def stop(self) -> None:
        """Ask the process to end."""
        with suppress(OSError):
            self.process.terminate()

    def close(self) -> None:
        """Let the process end, and wait for it."""
        self._pipe.close()
        self.process.wait()


class LocalExecutor(ThreadPoolExecutor):
    """An executor of persistent processes; each thread of the pool has one.

    A process that ends before its unit is done is replaced, and the unit begun again, `ATTEMPTS`
    times in all; then the unit raises `LostError`.
    """

    def __init__(self, processes: int, gpus: Sequence[str] = (), *, pinned: bool = True) -> None:
        """Divide the cores.

        Args:
            processes: number of processes.
            gpus: numbers or names of the GPUs that are shared out, as in `CUDA_VISIBLE_DEVICES`.
            pinned: whether each process runs on its share of the cores alone.
        """
        super().__init__(processes, "weft worker")
        self._gpus, self._ending = gpus, False
        self._thread, self._processes = threading.local(), set[_Process]()
        self._slots: SimpleQueue[ProcessSlot] = SimpleQueue()
        for number, share in enumerate(slots(processes, cores())):
            self._slots.put(ProcessSlot(number, share, pinned))

    @property
    def pids(self) -> list[int]:
        """Ids of the processes that were started and have not ended."""
        return [worker.process.pid for worker in self._processes]

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Submit a unit; the function is one of a module."""
        return super().submit(self._called, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as of every executor
        """End the processes, after their units or, with `cancel_futures`, at once."""
        if cancel_futures:
            self._ending = True
            for worker in list(self._processes):
                worker.stop()
        super().shutdown(wait=True, cancel_futures=cancel_futures)
        for worker in self._processes:
            worker.close()
        self._processes.clear()
        del wait

    def _called(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        work, problem = pickle.dumps((function, args, kwargs)), ""
        for _ in range(ATTEMPTS):
            if self._ending:
                raise CancelledError
            worker = self._worker()
            try:
                return worker.call(work)
            except _EndedError as error:
                problem, self._thread.worker = str(error), None
                self._processes.discard(worker)
                worker.close()
        raise LostError(problem)

    def _worker(self) -> _Process:
        """Return the process of this thread, started if there is none."""
        if not hasattr(self._thread, "slot"):
            self._thread.slot = self._slots.get()
        worker: _Process | None = getattr(self._thread, "worker", None)
        if worker is None:
            worker = self._thread.worker = _Process(self._thread.slot, self._gpus)
            self._processes.add(worker)
        return worker


def serve(descriptor: int, parent: int, chosen: Sequence[int]) -> None:
    """Run a worker: do each unit that comes through a pipe, until the pipe closes.

    Args:
        descriptor: file descriptor of the pipe.
        parent: id of the process that started this one.
        chosen: cores to run on; none for all.
    """
    if chosen and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, chosen)
    threading.Thread(target=_stop_with, args=(parent,), daemon=True).start()
    with Connection(descriptor) as pipe, suppress(EOFError, BrokenPipeError, ConnectionError):
        while True:
            pipe.send_bytes(_answered(pipe.recv_bytes()))


def _answered(work: bytes) -> bytes:
    """Do a unit; return its pickled outcome."""
    try:
        function, args, kwargs = pickle.loads(work)
    except Exception as error:  # noqa: BLE001 - the other process raises it
        return pickle.dumps((False, portable(error)))
    outcome: Outcome = attempted(function, args, kwargs)
    try:
        return pickle.dumps(outcome)
    except Exception as error:  # noqa: BLE001 - as above
        return pickle.dumps((False, portable(error)))


def _stop_with(parent: int) -> None:
    """Send this process SIGTERM when the one that started it has ended."""
    while os.getppid() == parent:
        time.sleep(POLL)
    os.kill(os.getpid(), signal.SIGTERM)


def signal_name(number: int) -> str:
    """Return the name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
