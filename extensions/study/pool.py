"""Processes that run the jobs of a study, each with its own cores and a GPU if there is one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import disk_usage
from types import FrameType
from typing import Any

from ...plugin import InputError, cores
from ...runtime.checkpoint.manifest import RESERVE
from ...runtime.system.signals import stopping_signals
from .jobs import ERROR, Job, PoolState, error_of, write_json

POLL = 0.2
"""Seconds between two looks at the processes."""
LOG = "log"
"""File of a job with the output of its processes."""


@dataclass(frozen=True, slots=True)
class ProcessSlot:
    """The place of one process."""

    number: int
    cores: tuple[int, ...]

    def environment(self, gpus: Sequence[str]) -> dict[str, str]:
        """Return the environment of a process in this place; it sees one of the GPUs."""
        variables = {**os.environ, "OMP_NUM_THREADS": str(len(self.cores))}
        if gpus:
            variables["CUDA_VISIBLE_DEVICES"] = gpus[self.number % len(gpus)]
        return variables


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


class JobPool:
    """Processes that run jobs, several at a time; the failure of one does not stop the others.

    SIGINT and SIGTERM stop all processes with a checkpoint; the next call continues them.  If this
    process is killed, the others stop in the same way.
    """

    def __init__(self, processes: int, gpus: Sequence[str] = ()) -> None:
        """Share out the cores.

        Args:
            processes: number of jobs that run at the same time.
            gpus: numbers or names of the GPUs that are shared out, as in `CUDA_VISIBLE_DEVICES`.
        """
        shares = enumerate(slots(processes, cores()))
        self._free = [ProcessSlot(number, slot_cores) for number, slot_cores in shares][::-1]
        self._gpus = gpus
        self._active: dict[Job, tuple[subprocess.Popen[bytes], ProcessSlot]] = {}
        self._interrupted: set[Job] = set()
        self.stopped_by: signal.Signals | None = None

    def run(
        self,
        next_job: Callable[[], Job | None],
        ended: Callable[[Job, str], None],
        look: Callable[[], None],
    ) -> None:
        """Run jobs until there is none, or a signal.

        Args:
            next_job: called for a job to start; None if none can start now.
            ended: called with each job that ended and why it failed; "" if it is done, or was
                interrupted.
            look: called several times a second, and at the end.
        """
        with collected_signals() as received:
            while True:
                if received and self.stopped_by is None:
                    self.stopped_by = received[0]
                    for active in self._active:
                        self.interrupt(active)
                while self._free and self.stopped_by is None and (job := next_job()) is not None:
                    self._start(job, ended)
                if not self._active:
                    break
                time.sleep(POLL)
                look()
                for job, (process, slot) in list(self._active.items()):
                    code = process.poll()
                    if code is not None:
                        del self._active[job]
                        self._free.append(slot)
                        expected = job in self._interrupted or job.state() == "done"
                        ended(job, "" if expected else _noted(job, why_failed(job, code)))
        look()

    def interrupt(self, job: Job) -> None:
        """Stop a job that runs, with a checkpoint."""
        self._interrupted.add(job)
        self._active[job][0].send_signal(signal.SIGINT)

    def _start(self, job: Job, ended: Callable[[Job, str], None]) -> None:
        slot = self._free.pop()
        try:
            self._active[job] = (start_job(job, slot, self._gpus), slot)
        except OSError as error:
            self._free.append(slot)
            ended(job, _noted(job, f"it cannot be started: {error.strerror}"))


def _noted(job: Job, why: str) -> str:
    """Note why a job failed in its folder, unless its process did, and return it."""
    if not job.error():  # the system has killed it, say; the disk may be full
        with suppress(InputError):
            write_json(job.folder / ERROR, error_of(why))
    return why


def run_pool(
    jobs: Sequence[Job],
    processes: int,
    *,
    gpus: Sequence[str] = (),
    look: Callable[[PoolState], None] = lambda _: None,
) -> PoolState:
    """Run jobs, several at a time.

    Args:
        jobs: the jobs that are not done, in order.
        processes: as of `JobPool`.
        gpus: as of `JobPool`.
        look: called several times a second.

    Returns:
        What was done.
    """
    work, pool = PoolState([*jobs]), JobPool(processes, gpus)

    def next_job() -> Job | None:
        if not work.waiting:
            return None
        job = work.waiting.pop(0)
        work.running[job.key] = (job, time.monotonic())
        return job

    def ended(job: Job, problem: str) -> None:
        del work.running[job.key]
        if problem:
            work.failed[job.key] = problem
        elif job.state() == "done":
            work.done.append(job)

    def looked() -> None:
        work.stopped_by = pool.stopped_by
        look(work)

    pool.run(next_job, ended, looked)
    return work


def why_failed(job: Job, code: int) -> str:
    """Return why the process of a job ended without a result.

    Args:
        job: the job.
        code: exit code of its process.
    """
    how = f"killed by {_signal(-code)}" if code < 0 else f"ended with exit code {code}"
    if not disk_usage(job.folder).free >> 20:
        how += ", and its disk has no space left"
    return job.error() or f"{how}; see {job.folder / LOG}"


def advice(failed: int, folder: Path) -> str:
    """Return what to do about jobs that failed: free disk space if it is short, and try again.

    Args:
        failed: their number.
        folder: folder of the study.
    """
    count = f"{failed} job{'s' * (failed != 1)} failed"
    free = disk_usage(folder).free
    if free < RESERVE:
        count += f", and the disk of {folder} has {free >> 20} MiB left: free disk space"
    return f"{count}; the same command tries again what failed, and repeats nothing that is done"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def start_job(job: Job, slot: ProcessSlot, gpus: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the process of a job, and return it.

    Args:
        job: the job, whose files are written.
        slot: the cores that it uses.
        gpus: as of `JobPool`.
    """
    command = [
        *job_command(job.folder),
        "--task",
        job.kind,
        "--cores",
        ",".join(map(str, slot.cores)),
    ]
    command += ["--parent", str(os.getpid())]
    with (job.folder / LOG).open("ab") as log:
        # A session of its own: the terminal sends Ctrl-C only to the process of the study.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=slot.environment(gpus),
            start_new_session=True,
        )


def job_command(folder: Path) -> list[str]:
    """Return the command that runs a job."""
    return [sys.executable, "-m", "weft", "study", "job", str(folder)]


@contextmanager
def collected_signals() -> Iterator[list[signal.Signals]]:
    """Collect SIGINT, SIGTERM and SIGHUP inside this context."""
    received: list[signal.Signals] = []

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        received.append(signal.Signals(number))

    before: Mapping[int, Any] = {
        number: signal.signal(number, note) for number in stopping_signals()
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
