"""One job of a study: train its run, or continue it, and measure the trained model."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from ... import Progress, Result, train
from ...plugin import (
    METRICS,
    InputError,
    LossMetric,
    Metric,
    SumMetric,
    keep_freed_memory,
    losses_of,
    open_model,
    prepare,
    records_of,
    settings_of_process,
    values_of,
    watching,
    write_beside,
)
from ...runtime.model.answering import as_json
from ...runtime.train.device import RunDevice, choose
from ...runtime.train.retention import checkpoints
from .jobs import (
    ERROR,
    LOCK,
    LOG,
    RESULT,
    STOP,
    TASK,
    TRAINED,
    Job,
    Trained,
    error_of,
    problem_of,
    read_json,
    write_json,
)
from .planning.base import Run, read_run
from .results import LENGTHS, JobResult, SplitScores, file_of


def measure(job: Job, run: Run) -> None:
    """Measure the trained model of a job, and write scores, answers and sums by example.

    Raises:
        InputError: a test set cannot be read, or a metric does not fit the answers.
    """
    placement = choose(run)
    with settings_of_process(run, placement):
        _measure(job, run, placement)


def _measure(job: Job, run: Run, placement: RunDevice) -> None:
    task = job.task
    folder = job.folder / "train" / str(task["checkpoint"])
    model = open_model(
        folder, device=str(placement.device), precision="bfloat16" if placement.half else "float32"
    )
    columns = model.answering.columns
    metrics = [METRICS.parse(metric, "metrics") for metric in task["metrics"]]
    needed = [metric for metric in metrics if metric.needs == "predictions"]
    predictor = None
    if needed:
        predictor = model.predictor(task["predict"] or None, answers=task["answers"])
    scores: dict[str, SplitScores] = {}
    for split in task["splits"]:
        records = records_of(run.data, split, columns)
        rows = [values_of(columns, record) for record in records]
        losses = losses_of(model, rows)
        answers = predictor.predict(rows) if predictor is not None else []
        values, signatures, sums = _measured(metrics, rows, answers, losses, str(task["answers"]))
        scores[split] = SplitScores(len(rows), dict(losses), values, signatures)
        _write(job.measured, split, answers, sums)
    trained = Trained(**read_json(job.folder / TRAINED, Trained))
    write_json(job.measured / RESULT, asdict(JobResult(trained, scores)))


def _measured(
    metrics: Sequence[Metric],
    rows: Sequence[Mapping[str, Any]],
    answers: Sequence[Any],
    losses: Mapping[str, float],
    column: str,
) -> tuple[dict[str, float], dict[str, str], dict[str, NDArray[np.float64]]]:
    """Return the values and the signatures of a split by metric, and the sums of each example."""
    values, signatures = dict[str, float](), dict[str, str]()
    sums = dict[str, NDArray[np.float64]]()
    for metric in metrics:
        if isinstance(metric, LossMetric):
            if not losses:
                continue
            measurement = metric.measure_losses(losses)
        else:
            references = metric.references(rows, column)
            measurement = metric.measure(answers, references)
            if isinstance(metric, SumMetric):
                sums[metric.name] = metric.statistics(answers, references)
            if LENGTHS not in sums and all(isinstance(text, str) for text in references):
                sums[LENGTHS] = np.array([[len(text.split())] for text in references], np.float64)
        values[metric.name] = measurement.value
        if measurement.signature:
            signatures[metric.name] = measurement.signature
    return values, signatures, sums


def _write(
    folder: Path, split: str, answers: Sequence[Any], sums: Mapping[str, NDArray[np.float64]]
) -> None:
    """Write the answers of a split as JSON lines, and the sums of its examples."""
    lines = (json.dumps(as_json(answer), ensure_ascii=False) + "\n" for answer in answers)
    write_beside(folder / f"{split}.answers.jsonl", "".join(lines).encode(), "file")
    content = io.BytesIO()
    np.savez_compressed(content, **{file_of(name): array for name, array in sums.items()})  # type: ignore[arg-type]
    write_beside(folder / f"{split}.sums.npz", content.getvalue(), "file")


POLL = 0.5
"""Seconds between two looks for the file that asks a job to stop."""

Outcome = Literal["done", "SIGINT", "SIGTERM"]


def work(folder: Path, kind: str) -> Outcome:
    """Run a job in a worker: what it prints goes to its log, and the file `stop` ends it.

    Args:
        folder: folder of the job.
        kind: as of `run_job`.

    Raises:
        Exception: the job failed; its log and its folder say why.
    """
    keep_freed_memory()
    with _logged(folder / LOG):
        try:
            with watching(lambda: _interrupted_by(folder / STOP), POLL):
                return run_job(folder, kind=kind)
        except KeyboardInterrupt:
            return "SIGINT"
        except (InputError, OSError) as error:
            print(f"error: {error}", file=sys.stderr)  # noqa: T201 - goes to the log
            raise
        except Exception:
            traceback.print_exc()
            raise


@contextmanager
def _logged(path: Path) -> Iterator[None]:
    """Append what this process prints, also in C, to a file, if it can be opened."""
    with ExitStack() as stack:
        try:
            log = stack.enter_context(path.open("ab"))
        except OSError:  # the disk is full, and what fails next says so
            yield
            return
        before = [(number, os.dup(number)) for number in (1, 2)]
        try:
            sys.stdout.flush()
            for number, _ in before:
                os.dup2(log.fileno(), number)
            yield
        finally:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError):  # the disk is full
                    stream.flush()
            for number, copy in before:
                os.dup2(copy, number)
                os.close(copy)


def _interrupted_by(path: Path) -> bool:
    """Send this process SIGINT if a file is there; a training then saves and stops."""
    if not path.exists():
        return False
    os.kill(os.getpid(), signal.SIGINT)
    return True


def run_job(folder: Path, *, kind: str = TASK) -> Outcome:
    """Train the run of a job and measure it, or do what remains of that.

    Another process that works on the job is waited for.  An error is written into the folder, so
    that the study can report it.

    Args:
        folder: folder of the job.
        kind: file of the task, which says what is measured.

    Returns:
        `done`, or the signal that stopped the training.

    Raises:
        InputError: the data or the run is wrong.
        OSError: a file cannot be written.
    """
    job = Job(folder, "", 0, kind)
    with FileLock(folder / LOCK):
        (folder / ERROR).unlink(missing_ok=True)
        try:
            return _run(job)
        except (InputError, OSError) as error:
            _note(folder, problem_of(error))
            raise
        except Exception as error:
            _note(folder, problem_of(error))
            raise


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
    shared = prepare(run.data, run.tokenizers, shared).folder
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
