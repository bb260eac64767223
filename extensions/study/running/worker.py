"""One job of a study: train its run, or continue it, and measure the trained model."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock

from ....runtime.api import train
from ....runtime.data.preparing.prepare import prepare
from ....runtime.train.context import Progress, Result
from ....runtime.train.retention import checkpoints
from ....specs.findings import InputError, SpecError
from ..planning.base import Run, read_run
from .jobs import (
    ERROR,
    LOCK,
    RESULT,
    TASK,
    TRAINED,
    Job,
    Trained,
    error_of,
    read_json,
    write_json,
)
from .measuring import measure

POLL = 0.5
"""Seconds between two looks at the process that started this one."""

Outcome = Literal["done", "SIGINT", "SIGTERM"]


def run_job(folder: Path, *, parent: int | None = None, kind: str = TASK) -> Outcome:
    """Train the run of a job and measure it, or do what remains of that.

    Another process that works on the job is waited for.  An error is written into the folder, so
    that the study can report it.

    Args:
        folder: folder of the job.
        parent: id of the process that started this one; when it ends, the training stops as by
            SIGTERM, with a checkpoint.  None: the process is independent.
        kind: file of the task, which says what is measured.

    Returns:
        `done`, or the signal that stopped the training.

    Raises:
        InputError: the data or the run is wrong.
        OSError: a file cannot be written.
    """
    job = Job(folder, "", 0, kind)
    with FileLock(folder / LOCK):
        if parent is not None:
            _stop_with(parent)
        (folder / ERROR).unlink(missing_ok=True)
        try:
            return _run(job)
        except (InputError, OSError) as error:
            _note(folder, _problem(error))
            raise
        except Exception as error:
            _note(folder, f"{type(error).__name__}: {error}")
            raise


def _problem(error: InputError | OSError) -> str:
    """Return why a job failed, on one line."""
    if isinstance(error, SpecError):
        return error.findings[0].problem
    return error.problem if isinstance(error, InputError) else str(error)


def _note(folder: Path, problem: str) -> None:
    """Write why a job failed, if the disk permits it."""
    try:
        write_json(folder / ERROR, error_of(problem))
    except InputError:
        return


def _run(job: Job) -> Outcome:
    task, source = job.task, str(job.folder / "run.json")
    run = read_run(read_json(Path(source)), source)
    weights = job.folder / "train" / str(task["checkpoint"])
    if not (job.folder / TRAINED).is_file() or not weights.is_dir():
        result = _trained(job, run, task)
        if not result.finished:
            return "SIGINT" if result.reason == "SIGINT" else "SIGTERM"
        state = result.state
        trained = Trained(state.update, state.seconds, result.reason, state.best_update)
        write_json(job.folder / TRAINED, asdict(trained))
    if not (job.measured / RESULT).is_file():
        measure(job, run)
    return "done"


def _trained(job: Job, run: Run, task: dict[str, Any]) -> Result:
    """Train the run of a job, or continue it."""
    folder = job.folder / "train"
    shared = job.folder.parents[1] / "prepared" / str(task["prepared"])
    prepare(run.data, run.tokenizers, shared)
    begun = bool(checkpoints(folder))
    if not begun and folder.is_dir():  # stopped before its first checkpoint
        shutil.rmtree(folder)
    folder.mkdir(exist_ok=True)
    link = folder / "prepared"
    if not link.is_symlink():
        link.symlink_to(os.path.relpath(shared, folder), target_is_directory=True)
    return train(job.folder / "run.json", out=folder, resume=begun, listener=_Quiet())


class _Quiet:
    """A listener that prints single lines, for the log of the job."""

    def log(self, text: str) -> None:
        """Print a log line."""
        print(text, flush=True)  # noqa: T201 - goes to the log of the job

    def progress(self, progress: Progress) -> None:
        """Ignore progress, which the history has."""

    def validated(self, update: int, values: Any) -> None:
        """Ignore a validation, which the history has."""


def _stop_with(parent: int) -> None:
    """Stop this process with a checkpoint when the process that started it ends."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
