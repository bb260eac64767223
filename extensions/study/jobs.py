"""Folder of a study: its plan, its jobs, and how far each of them is.

plan.json            rows, costs and the keys of their jobs
prepared/DIGEST      tokenizers and tables, shared by the jobs with the same data
jobs/KEY/run.json    a run that `weft train` reads, without other files of the study
jobs/KEY/task.json   where its data is, and what is measured
jobs/KEY/search.json the same for a search or a tuning, which measures the validation data alone
jobs/KEY/train/      folder of the training, as of `weft train`
jobs/KEY/measured/DIGEST/    scores, answers and sums by test set
jobs/KEY/trained.json  how the training ended
jobs/KEY/error.json  why the last attempt failed
"""

from __future__ import annotations

import copy
import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter, ValidationError

from ...plugin import (
    InputError,
    SpecError,
    duration,
    is_locked,
    objective_file,
    significant,
    state_table,
    states_text,
    write_beside,
)
from ...runtime.system.strangers import LARGEST_FILE, read_in
from ...runtime.train.history import read
from ...specs.form import holds_spec
from ...specs.load import inlined, load
from ...specs.reader import SHIPPED
from .document import StudySettings
from .planning.base import Base
from .planning.identity import DataDigests, digest_of
from .planning.plan import JobPlan
from .planning.planned import Planned
from .planning.stored import DIGITS, LocalPlan, StoredTask
from .planning.tune import chosen_metric

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PLAN = "plan.json"
TASK = "task.json"
SEARCH_TASK = "search.json"
"""Task of a job of a search or a tuning, which measures the validation data alone."""
RESULT = "result.json"
ERROR = "error.json"
OBJECTIVE = "objective.json"
TRAINED = "trained.json"
"""File of a job whose training is complete."""
LOCK = ".job.lock"
"""Lock file of a job, held by the process that trains or measures it."""
LOG = "log"
"""File of a job with what its workers print."""
STOP = "stop"
"""File that asks the worker of a job, wherever it is, to stop with a checkpoint."""
State = Literal["done", "running", "failed", "lost", "stopped", "queued"]


@dataclass(frozen=True, slots=True)
class Trained:
    """How a training ended, as `trained.json` has it."""

    update: int
    seconds: float
    reason: str
    best_update: int | None


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a study: a row with a seed."""

    folder: Path
    row: str
    seed: int
    kind: str = TASK
    """File of its task: `task.json`, or `search.json` of a search or a tuning."""
    trial: str = ""
    """Values that it tries, in words; `""` if it is a job of the row itself."""

    @property
    def title(self) -> str:
        """Row, tried values and seed in words."""
        tried = f" [{self.trial}]" if self.trial else ""
        return f"{self.row}{tried}, seed {self.seed}"

    @property
    def key(self) -> str:
        """Key of the job, which is the name of its folder."""
        return self.folder.name

    @property
    def task(self) -> dict[str, Any]:
        """What is measured, and where the prepared data is."""
        return dict(read_json(self.folder / self.kind, StoredTask))

    @property
    def measured(self) -> Path:
        """Folder of the measurements that the current document asks for."""
        return self.folder / "measured" / str(self.task["measured"])

    def state(self) -> State:
        """Return how far the job is, by the files in its folder and their lock."""
        if not (self.folder / self.kind).is_file():
            return "queued"  # the plan is from another machine
        if (self.measured / RESULT).is_file():
            return "done"
        if self.locked():
            return "running"
        if (self.folder / ERROR).is_file():
            return "lost" if self._failure().get("lost") else "failed"
        return "stopped" if any((self.folder / "train/checkpoints").glob("[0-9]*")) else "queued"

    def locked(self) -> bool:
        """Return whether a process, which may belong to another call, works on the job."""
        return is_locked(self.folder / LOCK)

    def progress(self) -> dict[str, Any]:
        """Return the newest events of the training: `train` and `valid`, as far as there are."""
        latest: dict[str, Any] = {}
        for event in read(self.folder / "train"):
            latest[str(event.get("type"))] = event
        return latest

    def error(self) -> str:
        """Return why the last attempt failed; `""` if it did not."""
        return str(self._failure().get("problem", ""))

    def _failure(self) -> dict[str, Any]:
        """Return what is noted of the last attempt, if it failed."""
        try:
            return dict(read_json(self.folder / ERROR, dict[str, Any]))
        except InputError:
            return {}


def read_json(path: Path, form: Any = Any, largest: int = LARGEST_FILE) -> Any:
    """Return the JSON value of a file that weft wrote, perhaps for a stranger.

    Args:
        path: the file.
        form: class or type hint of the value, which is checked and stays as it is.
        largest: maximum size in bytes.

    Raises:
        InputError: it is missing or damaged.
    """
    try:
        data = read_in(path.parent, path.name, largest)
        check_form(form, data)
        return json.loads(data)
    except (InputError, ValueError, RecursionError) as error:
        problem = error.problem if isinstance(error, InputError) else error
        raise InputError(
            f"cannot read the file: {problem}", location=str(path), help="run the study again"
        ) from error


@cache
def _adapter(form: Any) -> TypeAdapter[Any]:
    """Return what checks values of a form; a study has many files of one."""
    return TypeAdapter(form)


def check_form(form: Any, text: str | bytes) -> None:
    """Check that JSON text is a value of a form.

    Raises:
        ValueError: it is not.
    """
    try:
        _adapter(form).validate_json(text)
    except ValidationError as error:
        [first, *_] = error.errors()
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{where}: {first['msg']}") from error


def problem_of(error: BaseException) -> str:
    """Return why a job failed, on one line."""
    if isinstance(error, SpecError):
        return error.findings[0].problem
    if isinstance(error, InputError):
        return error.problem
    return str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"


def error_of(problem: str, *, lost: bool = False) -> dict[str, Any]:
    """Return the content of the file that says why a job failed, or that its workers were lost."""
    return {"problem": problem, "time": time.time(), **({"lost": True} if lost else {})}


def json_text(value: Any) -> str:
    """Return a JSON value as the files of a study have it."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def write_json(path: Path, value: Any) -> None:
    """Write a JSON value, completely or not at all; leave a file that has it already.

    Raises:
        InputError: the file cannot be written.
    """
    content = json_text(value).encode()
    if not (path.is_file() and path.read_bytes() == content):
        write_beside(path, content, "file")


def write_jobs(plan: JobPlan, out: Path, record: dict[str, Any]) -> list[Job]:
    """Write the plan of a study and all of its jobs; those that are done stay as they are.

    Args:
        plan: a plan without errors.
        out: folder of the study.
        record: the plan as plain data.

    Returns:
        The jobs in the order of the rows, seed by seed; equal rows share jobs.
    """
    study, base, digests, done = plan.study, plan.required_base, DataDigests(), set[Job]()

    def write(row: Planned, what: Measures) -> None:
        for seed, key in row.keys.items():
            job = Job(out / "jobs" / key, "", seed, what.kind)
            if job not in done:
                done.add(job)
                write_job(study, base, row, seed, job.folder, digests, what)

    for row in plan.rows:
        for trial in row.trials:
            metric = chosen_metric(row.run, study.tune.metric if study.tune is not None else None)
            write(trial, Measures(SEARCH_TASK, ["valid"], [metric.model_dump(mode="json")]))
        tests = study.measure.tests
        splits = ["valid", *(row.run.data.test if tests is None else tests)]
        metrics = study.measure.metrics or tuple(row.run.metrics())
        write(row, Measures(TASK, splits, [metric.model_dump(mode="json") for metric in metrics]))
    write_json(out / PLAN, record)
    return jobs_of(record, out)


def jobs_of(record: dict[str, Any], out: Path) -> list[Job]:
    """Return the jobs of a plan, each once: those of the tuning, then seed by seed."""
    jobs: dict[tuple[str, str], Job] = {}

    def add(row: dict[str, Any], keys: dict[str, str], seed: str, kind: str, trial: str) -> None:
        if key := keys.get(seed):
            job = Job(out / "jobs" / key, row["name"], int(seed), kind, trial)
            jobs.setdefault((key, kind), job)

    for row in record["rows"]:
        for trial in row.get("trials", ()):
            for seed in trial["jobs"]:
                add(row, trial["jobs"], seed, SEARCH_TASK, values_text(trial["values"]))
    for seed in dict.fromkeys(seed for row in record["rows"] for seed in row["jobs"]):
        for row in record["rows"]:
            add(row, row["jobs"], seed, TASK, "")
    return list(jobs.values())


def costs_of_jobs(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the costs of each job of a plan by its key."""
    trials = [trial for row in record["rows"] for trial in row.get("trials", ())]
    parts = [*trials, *record["rows"]]
    return {key: part["costs"] for part in parts for key in part["jobs"].values()}


def values_text(values: Mapping[str, Any]) -> str:
    """Return tuned values as text.

    >>> values_text({"schedule.peak": 0.001, "optimizer.type": "muon"})
    'schedule.peak=0.001, optimizer.type=muon'
    """
    return ", ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in values.items()
    )


@dataclass(frozen=True, slots=True)
class Measures:
    """What the task of a job measures, and the file of the task."""

    kind: str
    splits: list[str]
    metrics: list[dict[str, Any]]


def write_job(
    study: StudySettings,
    base: Base,
    row: Planned,
    seed: int,
    folder: Path,
    digests: DataDigests,
    what: Measures,
) -> None:
    """Write the run and the task of a job.

    Args:
        study: the study.
        base: its base run.
        row: the row of the job.
        seed: its seed.
        folder: folder of the job.
        digests: digests of the data that are known.
        what: what is measured.

    Raises:
        InputError: a file cannot be read or written.
    """
    value = copy.deepcopy(row.value)
    params = value.get("params", {})
    for name, param in params.items():
        if holds_spec(param):
            params[name] = inlined(param, base.source)
    path = Path(objective_file(row.run, base.source))
    if not path.is_relative_to(SHIPPED):
        objective = load(path).value()
        for name, objective_param in objective.get("params", {}).items():
            objective["params"][name] = inlined(objective_param, str(path))
        write_json(folder / OBJECTIVE, objective)
        value["objective"] = OBJECTIVE
    value |= {"name": f"job-{folder.name}", "seed": seed}
    write_json(folder / "run.json", value)
    data = row.run.data
    measured = {
        "splits": what.splits,
        "metrics": what.metrics,
        "checkpoint": study.measure.checkpoint,
        "predict": study.measure.predict,
        "answers": row.run.answers,
    }
    settings = data.model_dump(mode="json", by_alias=True)
    prepared = {key: value for key, value in settings.items() if key not in ("test", "mixture")}
    tokenizers = {
        name: tokenizer.model_dump(mode="json") for name, tokenizer in row.run.tokenizers.items()
    }
    split_digests = [digests.of(row.run, (name,)) for name in what.splits]
    examples = {name: digests.examples(row.run, name) for name in what.splits}
    task = {
        **measured,
        "data": settings,
        "prepared": digest_of([prepared, tokenizers], DIGITS),
        "measured": digest_of([measured, split_digests], DIGITS),
        "examples": examples,
    }
    write_json(folder / what.kind, task)


def open_plan(out: Path) -> dict[str, Any]:
    """Return the plan in the folder of a study.

    Raises:
        InputError: the study was not run there, or its plan is damaged.
    """
    if not (out / PLAN).is_file():
        raise InputError(
            "there is no study in this folder",
            location=str(out),
            help="run it with 'weft study run', or give its folder with --out",
        )
    return dict(read_json(out / PLAN, LocalPlan))


def events(job: Job) -> Iterator[dict[str, Any]]:
    """Yield the events of a job's training."""
    yield from read(job.folder / "train")


EVERY = 1.0
"""Seconds between two pictures of the table."""
COLUMNS = ("row", "seed", "state", "update", "loss", "valid loss", "time")


def status_of(job: Job) -> dict[str, Any]:
    """Return the state of a job, its newest losses and why it failed, as plain data."""
    progress, state = job.progress(), job.state()
    train, valid = progress.get("train", {}), progress.get("valid", {})
    status: dict[str, Any] = {"state": state, "update": train.get("update", 0)}
    for name, event in (("loss", train), ("valid", valid)):
        if "loss" in event:
            status[name] = event["loss"]
    if "seconds" in train:
        status["seconds"] = train["seconds"]
    if state in ("failed", "lost"):
        status["error"] = job.error()
    return status


@dataclass(slots=True)
class PoolState:
    """What is done, and what is not, at a moment."""

    waiting: list[Job]
    running: dict[str, tuple[Job, float]] = field(default_factory=dict)
    """Key to the job and the time at which it was submitted."""
    done: list[Job] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    """Key of a job to why it failed."""
    stopped_by: signal.Signals | None = None
    """The signal that stops everything."""


def status_table(record: dict[str, Any], out: Path, work: PoolState | None = None) -> Table:
    """Return a table with a line for each job.

    Args:
        record: plan of the study.
        out: folder of the study.
        work: what is done, if the jobs are being run.
    """
    costs = costs_of_jobs(record)
    rows: list[tuple[dict[str, Any], dict[str, Any]]] = []
    lines: list[tuple[tuple[str, ...], str]] = []
    for job in jobs_of(record, out):
        status, cost = status_of(job), costs[job.key]
        if work is not None and job.key in work.running and status["state"] != "running":
            status["state"] = "queued"
        if work is not None and job.key in work.failed:
            lost = status["state"] == "lost"
            status |= {"state": "lost" if lost else "failed", "error": work.failed[job.key]}
        rows.append((status, cost))
        cells = (
            f"{job.row} [{job.trial}]" if job.trial else job.row,
            str(job.seed),
            status["state"],
            f"{status['update']:,}/{cost['updates']:,}",
            significant(status["loss"]) if "loss" in status else "",
            significant(status["valid"]) if "valid" in status else "",
            duration(status["seconds"]) if "seconds" in status else "",
        )
        lines.append((cells, status.get("error") or ""))
    return state_table(record["study"], COLUMNS, lines, summary(rows))


def summary(rows: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> str:
    """Return how many jobs are done and how long the others will take, on one line.

    The time is that of the updates that are left, at the speed of those that were trained.

    Args:
        rows: the status and the costs of each job, as of `status_of` and of a plan.
    """
    states = Counter(status["state"] for status, _ in rows)
    trained = remaining = seconds = 0.0
    for status, cost in rows:
        work = cost["training_flops"] * status["update"] / cost["updates"]
        if "seconds" in status:
            trained, seconds = trained + work, seconds + status["seconds"]
        if status["state"] != "done":
            remaining += cost["training_flops"] - work
    line = states_text(states, len(rows))
    if not remaining or not trained:
        return line
    estimate = remaining / trained * seconds
    running = states["running"]
    return (
        f"{line}; about {duration(estimate / running)} left"
        if running
        else (f"{line}; about {duration(estimate)} of training left")
    )


@contextmanager
def watched(
    record: dict[str, Any], out: Path, console: Console, *, live: bool
) -> Iterator[Callable[[PoolState], None]]:
    """Show the table inside this context, or a line for each job that ends.

    Yields:
        A function to call again and again.
    """
    began = time.monotonic()
    if not live:
        yield _lines(console, began, jobs_of(record, out))
        return
    from rich.live import Live  # noqa: PLC0415 - as above

    shown = 0.0
    with Live(console=console, auto_refresh=False) as view:

        def look(work: PoolState) -> None:
            nonlocal shown
            ended = not work.running and not work.waiting
            if ended or time.monotonic() - shown >= EVERY:
                shown = time.monotonic()
                view.update(status_table(record, out, work), refresh=True)

        yield look


def _lines(console: Console, began: float, jobs: Sequence[Job]) -> Callable[[PoolState], None]:
    """Return a function that prints a line for each job that has ended."""
    reported: set[str] = set()
    names = {job.key: job.title for job in jobs}

    def look(work: PoolState) -> None:
        ended = {job.key: f"{names[job.key]}: done" for job in work.done}
        ended |= {key: f"{names[key]}: failed, {why}" for key, why in work.failed.items()}
        for key in ended.keys() - reported:
            seconds = time.monotonic() - began
            console.print(f"{duration(seconds):>9}  {ended[key]}", markup=False)
        reported.update(ended)

    return look
