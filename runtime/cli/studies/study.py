"""The command `weft study`: check, run, and report a study."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import Field

from ....specs.findings import InputError, SpecError
from ....specs.reader import shipped_names
from ..common import terminal
from ..common.command import STUDIES, command, group, wrong
from ..common.parameters import (
    Json,
    Overrides,
    argument,
    complete_files,
    option,
    out_option,
    overridden,
)

if TYPE_CHECKING:
    from ...study.document.settings import Study
    from ...study.planning.base import Run
    from ...study.planning.plan import Plan

StudyName = Annotated[
    str,
    argument(
        "STUDY",
        "A study file, or the name of a shipped study.",
        lambda incomplete: [
            *(name for name in shipped_names("studies") if name.startswith(incomplete)),
            *complete_files(incomplete),
        ],
    ),
]
Folder = Annotated[str | None, out_option("Folder of the study. [default: outputs/NAME]")]
Peak = Annotated[
    float | None,
    Field(gt=0),
    option(
        "--speed",
        "GFLOP/s with which a run trains, to estimate durations. [default: that of finished runs, "
        "or 30 % of the measured peak]",
        metavar="GFLOPS",
    ),
]

app = group(
    STUDIES,
    "study",
    "Train many variants of a run, and compare them with honest statistics.",
    "weft study check my-study.json",
    "weft study run my-study.json --processes 2",
)


@command("Commands", "weft study check my-study.json", of=app)
def check(
    study: StudyName,
    *,
    out: Folder = None,
    overrides: Overrides = None,
    speed: Peak = None,
    json_: Json = False,
) -> int:
    """Check every row of a study, and print its costs and what it changes. Nothing is trained."""
    from ...study.planning.table import plan_record

    _, plan, folder = _planned(study, overrides, out, speed)
    if json_:
        record = (
            plan_record(plan, _speed(folder, speed))
            if not plan.errors
            else {"study": plan.study.name, "findings": [one.as_json() for one in plan.findings]}
        )
        print(json.dumps(record, indent=2, ensure_ascii=False))
        return int(bool(plan.errors))
    _refuse_wrong(plan, study)
    _show(plan, _speed(folder, speed))
    return 0


def _planned(
    name: str, overrides: list[str] | None, out: str | None, speed: float | None
) -> tuple[Study, Plan, Path]:
    """Return a study with its plan and its folder."""
    from ...study.document.load import load_study
    from ...study.planning.plan import plan_study

    study, source = load_study(name, overridden(overrides))
    folder = _folder(study, out)
    limited = study.budget.seconds is not None
    plan = plan_study(study, source, _speed(folder, speed) if limited else None)
    return study, plan, folder


def _folder(study: Study, out: str | None) -> Path:
    return Path(out) if out else Path("outputs") / study.name


def _refuse_wrong(plan: Plan, name: str) -> None:
    """Print the warnings of a plan, and raise its errors.

    Raises:
        SpecError: the plan has errors.
    """
    terminal.show_warnings(one for one in plan.findings if one.level == "warning")
    if plan.errors:
        raise SpecError(plan.errors)
    del name


def _speed(folder: Path, given: float | None) -> Callable[[Run], float]:
    from ...study.running.speed import flops_per_second

    return flops_per_second(folder, None if given is None else given * 1e9)


def _show(plan: Plan, speed: Callable[[Run], float]) -> None:
    """Print the plan of a study."""
    from ...study.planning.table import change_lines, cost_rows

    print("\n".join(terminal.columns(cost_rows(plan, speed), 1)))
    seeds = len(plan.study.seeds)
    print(
        f"\none run  training at {speed(plan.baseline.run) / 1e9:,.1f} GFLOP/s, without validations"
    )
    print(f"all      {seeds} seed{'s' * (seeds > 1)} each, one run at a time\n")
    print("\n".join(change_lines(plan)))


@command(
    "Commands",
    "weft study run my-study.json --processes 2",
    "weft study run my-study.json --dry",
    "weft study run my-study.json --print-jobs > jobs.txt",
    note="Ctrl-C stops with checkpoints; the same command continues. What is done is never done "
    "again, also after the study was edited.",
    of=app,
)
def run(
    study: StudyName,
    *,
    out: Folder = None,
    overrides: Overrides = None,
    processes: Annotated[
        int,
        Field(ge=1),
        option(
            "--processes", "Runs that train at the same time, each on its own cores. [default: 1]"
        ),
    ] = 1,
    dry: Annotated[
        bool, typer.Option("--dry", help="Only check, as `weft study check` does.")
    ] = False,
    print_jobs: Annotated[
        bool,
        typer.Option(
            "--print-jobs",
            help="Run nothing; print the command of each job that is not done, one on a line, for "
            "a job array.",
        ),
    ] = False,
    speed: Peak = None,
) -> int:
    """Train and measure all runs of a study, and write its report."""
    from ...study.planning.table import plan_record
    from ...study.report.pictures import write_pictures
    from ...study.running.jobs import write_jobs
    from ...study.running.pool import job_command

    settings, plan, folder = _planned(study, overrides, out, speed)
    _refuse_wrong(plan, study)
    if dry:
        if print_jobs:
            raise wrong("--print-jobs", "it has no effect with --dry")
        _show(plan, _speed(folder, speed))
        return 0
    from ...system.lock import locked

    with locked(folder):
        record = plan_record(plan, _speed(folder, speed))
        record["document"] = settings.model_dump(mode="json", exclude_unset=True)
        record |= {"source": study, "folder": str(folder), "overrides": overrides or []}
        jobs = write_jobs(plan, folder, record)
        todo = [job for job in jobs if job.state() != "done"]
        if print_jobs:
            for job in todo:
                print(shlex.join(job_command(job.folder.resolve())))
            return 0
        if problem := write_pictures(plan, folder):
            terminal.notice(f"no pictures: {problem}")
        terminal.notice(f"{len(jobs)} jobs, {len(jobs) - len(todo)} of them done before")
        return _run(folder, record, todo, processes)


def _run(folder: Path, record: dict[str, Any], todo: list[Any], processes: int) -> int:
    from ...study.running.live import watched
    from ...study.running.pool import run_pool
    from ...study.running.speed import gpus

    with watched(record, folder, terminal.console(), live=terminal.shows_progress()) as look:
        work = run_pool(todo, processes, gpus=gpus(), look=look)
    for key, problem in work.failed.items() if terminal.shows_progress() else ():
        terminal.notice(f"job {key} failed: {problem}")
    if work.stopping:
        terminal.notice("stopped; the same command continues")
        return 130
    _report(folder)
    return int(bool(work.failed))


def _report(folder: Path) -> None:
    """Write the report, and print its conclusions and its files."""
    from ...study.report.record import conclusions
    from ...study.report.write import write_report

    record, paths = write_report(folder)
    print("\n".join(conclusions(record)))
    for path in paths:
        terminal.notice(f"written  {path}")


@command("Commands", "weft study job outputs/my-study/jobs/0123456789abcdef", of=app)
def job(
    folder: Annotated[str, argument("FOLDER", "Folder of a job.", complete_files)],
    *,
    cores: Annotated[
        str | None,
        option("--cores", "Numbers of the cores to use, such as 0,1. [default: all]"),
    ] = None,
    parent: Annotated[
        int | None,
        option("--parent", "Stop with a checkpoint when the process with this id ends."),
    ] = None,
) -> int:
    """Run one job of a study, as `weft study run` and job arrays do."""
    if cores is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
    from ...study.running.worker import run_job
    from ...system.memory import keep_freed_memory

    if not (Path(folder) / "task.json").is_file():
        raise InputError(
            "this is not the folder of a job", place=folder, help="see weft study run --print-jobs"
        )
    keep_freed_memory()
    outcome = run_job(Path(folder), parent=parent)
    return {"done": 0, "SIGINT": 130, "SIGTERM": 143}[outcome]


@command("Commands", "weft study status my-study.json", of=app)
def status(study: StudyName, *, out: Folder = None, json_: Json = False) -> int:
    """Print how far each run of a study is."""
    from ...study.document.load import load_study
    from ...study.running.jobs import jobs_of, open_plan
    from ...study.running.live import status_of, status_table

    folder = _folder(load_study(study)[0], out)
    record = open_plan(folder)
    jobs = jobs_of(record, folder)
    if json_:
        found = [
            {"row": one.row, "seed": one.seed, "job": one.key, **status_of(one)} for one in jobs
        ]
        print(json.dumps(found, indent=2))
    else:
        from rich.console import Console

        Console(highlight=False).print(status_table(record, folder))
    return 0


@command("Commands", "weft study report my-study.json", of=app)
def report(study: StudyName, *, out: Folder = None) -> None:
    """Write the report of the runs that are done: HTML, Markdown, LaTeX, CSV and JSON.

    Raises:
        InputError: the study was not run.
    """
    from ...study.document.load import load_study

    _report(_folder(load_study(study)[0], out))


@command("Commands", "weft study demo --processes 2", of=app)
def demo(
    *,
    out: Annotated[str, out_option("Folder to write.")] = "outputs/study-demo",
    processes: Annotated[
        int,
        Field(ge=1),
        option("--processes", "Runs that train at the same time. [default: 2]"),
    ] = 2,
    overrides: Overrides = None,
) -> int:
    """Run a small shipped study on a generated corpus: five rows, two seeds, in minutes.

    Raises:
        InputError: a file cannot be written, or num2words is not installed.
    """
    from ....examples.demo import write_demo_corpus

    folder = Path(out) / "corpus"
    write_demo_corpus(folder)
    root = [f"run.data.root={folder}", *(overrides or [])]
    return run("study-demo", out=out, overrides=root, processes=processes)
