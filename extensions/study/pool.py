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

from ...plugin import InputError
from ...runtime.checkpoint.manifest import RESERVE
from .jobs import ERROR, Job, Work, error_of, write_json

POLL = 0.2
"""Seconds between two looks at the processes."""
LOG = "log"
"""File of a job with the output of its processes."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one process."""

    number: int
    cores: tuple[int, ...]

    def environment(self, gpus: Sequence[str]) -> dict[str, str]:
        """Return the environment of a process in this place; it sees one of the GPUs."""
        variables = {**os.environ, "OMP_NUM_THREADS": str(len(self.cores))}
        if gpus:
            variables["CUDA_VISIBLE_DEVICES"] = gpus[self.number % len(gpus)]
        return variables


def cores() -> list[int]:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


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


def run_pool(
    jobs: Sequence[Job],
    processes: int,
    *,
    gpus: Sequence[str] = (),
    look: Callable[[Work], None] = lambda _: None,
) -> Work:
    """Run jobs, several at a time; the failure of one does not stop the others.

    SIGINT and SIGTERM stop all processes with a checkpoint; the next call continues them.  If this
    process is killed, the others stop in the same way.

    Args:
        jobs: the jobs that are not done, in order.
        processes: number of jobs that run at the same time.
        gpus: numbers or names of the GPUs that are shared out, as in `CUDA_VISIBLE_DEVICES`.
        look: called several times a second.

    Returns:
        What was done.
    """
    work = Work([*jobs])
    free = [
        Slot(number, slot_cores) for number, slot_cores in enumerate(slots(processes, cores()))
    ][::-1]
    active: dict[str, tuple[subprocess.Popen[bytes], Slot]] = {}
    with collected_signals() as received:
        while work.waiting or active:
            if received and work.stopped_by is None:
                work.stopped_by = received[0]
                work.waiting.clear()
                for process, _ in active.values():
                    process.send_signal(signal.SIGINT)
            while free and work.waiting and work.stopped_by is None:
                job, slot = work.waiting.pop(0), free.pop()
                try:
                    active[job.key] = (start_job(job, slot, gpus), slot)
                except OSError as error:
                    free.append(slot)
                    _failed(work, job, f"it cannot be started: {error.strerror}")
                else:
                    work.running[job.key] = (job, time.monotonic())
            for key, (process, slot) in list(active.items()):
                code = process.poll()
                if code is not None:
                    del active[key]
                    free.append(slot)
                    _ended(work, work.running.pop(key)[0], code)
            look(work)
            time.sleep(POLL)
    return work


def _ended(work: Work, job: Job, code: int) -> None:
    """Note how the process of a job ended."""
    if job.state() == "done":
        work.done.append(job)
    elif work.stopped_by is None:
        _failed(work, job, why_failed(job, code))


def _failed(work: Work, job: Job, why: str) -> None:
    """Note that a job failed, also in its folder unless its process did, or the disk is full."""
    work.failed[job.key] = why
    if not job.error():  # the system has killed it, say
        with suppress(InputError):
            write_json(job.folder / ERROR, error_of(why))


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


def start_job(job: Job, slot: Slot, gpus: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the process of a job, and return it.

    Args:
        job: the job, whose files are written.
        slot: the cores that it uses.
        gpus: as of `run_pool`.
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
    """Collect SIGINT and SIGTERM inside this context."""
    received: list[signal.Signals] = []

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        received.append(signal.Signals(number))

    before: Mapping[int, Any] = {
        number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
