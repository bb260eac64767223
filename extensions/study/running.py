"""Run the jobs of a study or of its search on an executor, until all are done or a signal comes."""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import disk_usage
from types import FrameType
from typing import Any

from ...plugin import InputError
from ...runtime.checkpoint.manifest import RESERVE
from ...runtime.system.executors.executor import ATTEMPTS, LostError, On, Opened, completed, opened
from ...runtime.system.processes import stopping_signals
from .jobs import ERROR, LOG, STOP, Job, PoolState, error_of, problem_of, write_json

POLL = 0.2
"""Seconds between two looks at the jobs."""


class JobRunner:
    """Runs jobs, several at a time; the failure of one does not stop the others.

    SIGINT and SIGTERM stop all trainings with a checkpoint; the next call continues them.  If this
    process is killed, those on this machine stop in the same way.
    """

    def __init__(self, on: On = "local", processes: int | None = None) -> None:
        """Store where jobs run.

        Args:
            on: the executor.
            processes: number of jobs that run at the same time; default: one on this machine, and
                on a cluster as many as it takes.
        """
        self._on, self._processes = on, processes
        self._futures: dict[Job, Future[Any]] = {}
        self._interrupted: set[Job] = set()
        self._begun: Counter[Job] = Counter()
        self._again: list[Job] = []
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

        Raises:
            InputError: the executor cannot be opened.
        """

        def begin() -> Job | None:
            if self.stopped_by is not None:
                return None
            return self._again.pop() if self._again else next_job()

        with (
            collected_signals() as received,
            opened(self._on, self._processes, inline=False) as engine,
        ):
            submit = self._submitter(engine)
            for event in completed(begin, submit, engine.at_once, every=POLL):
                if event is not None:
                    self._end(*event, ended)
                    continue
                look()
                if received and self.stopped_by is None:
                    self.stopped_by = received[0]
                    for job in self._futures:
                        self.interrupt(job)
            for job in self._again:  # stopped from outside, and then by a signal
                ended(job, "")
        look()

    def interrupt(self, job: Job) -> None:
        """Stop a job that was submitted, with a checkpoint if it runs."""
        self._interrupted.add(job)
        if not self._futures[job].cancel():
            (job.folder / STOP).touch()

    def _submitter(self, engine: Opened) -> Callable[[Job], Future[Any]]:
        from .worker import work  # noqa: PLC0415 - loads torch, which checks do not need

        def submit(job: Job) -> Future[Any]:
            self._begun[job] += 1
            (job.folder / STOP).unlink(missing_ok=True)
            self._futures[job] = engine.executor.submit(work, job.folder, job.kind)
            return self._futures[job]

        return submit

    def _end(self, job: Job, future: Future[Any], ended: Callable[[Job, str], None]) -> None:
        """Tell how a job ended, or begin it again if something else has stopped its worker."""
        del self._futures[job]
        if job in self._interrupted or job.state() == "done":
            ended(job, "")
            return
        error = future.exception()
        if error is None and self._begun[job] < ATTEMPTS:
            self._again.append(job)
            return
        if error is None:
            error = LostError(f"its worker was stopped by {future.result()}")
        ended(job, _noted(job, error))


def _noted(job: Job, error: BaseException) -> str:
    """Note why a job failed in its folder, unless its worker did, and return it."""
    lost = isinstance(error, LostError)
    why = job.error()
    if not why or lost:
        why = f"{problem_of(error)}; see {job.folder / LOG}"
        if not disk_usage(job.folder).free >> 20:
            why = f"its disk has no space left: {why}"
        with suppress(InputError):  # the disk may be full
            write_json(job.folder / ERROR, error_of(why, lost=lost))
    return why


def run_jobs(
    jobs: Sequence[Job],
    processes: int | None = None,
    *,
    on: On = "local",
    look: Callable[[PoolState], None] = lambda _: None,
) -> PoolState:
    """Run jobs, several at a time.

    Args:
        jobs: the jobs that are not done, in order.
        processes: as of `JobRunner`.
        on: as of `JobRunner`.
        look: called several times a second.

    Returns:
        What was done.

    Raises:
        InputError: the executor cannot be opened.
    """
    state, runner = PoolState([*jobs]), JobRunner(on, processes)

    def next_job() -> Job | None:
        if not state.waiting:
            return None
        job = state.waiting.pop(0)
        state.running[job.key] = (job, time.monotonic())
        return job

    def ended(job: Job, problem: str) -> None:
        del state.running[job.key]
        if problem:
            state.failed[job.key] = problem
        elif job.state() == "done":
            state.done.append(job)

    def looked() -> None:
        state.stopped_by = runner.stopped_by
        look(state)

    if jobs:
        runner.run(next_job, ended, looked)
    looked()
    return state


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


def job_command(job: Job) -> list[str]:
    """Return the command that runs a job."""
    return [sys.executable, "-m", "weft", "study", "job", str(job.folder.resolve())]


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
