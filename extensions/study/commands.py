"""The commands `weft study` and `weft synthesize`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import Field

from ...plugin import (
    STUDIES,
    InputError,
    Json,
    Overrides,
    RunName,
    SpecError,
    argument,
    command,
    complete_files,
    group,
    option,
    out_option,
    overridden,
    to_option,
    wrong,
)
from ...runtime.cli.common import terminal
from ...runtime.cli.common.parameters import Checkpoint, On, Processes
from ...specs.reader import shipped_names
from .report.forms import FORMS, Form

if TYPE_CHECKING:
    from .records import StudyPlan
    from .study import Begun, Study

_OTHER_SIZE = 0.01
"""Difference of parameters from which on `match` is suggested."""


def _refuse_wrong(plan: StudyPlan) -> None:
    """Print the warnings of a plan, and raise its errors.

    Raises:
        SpecError: the plan has errors.
    """
    terminal.show_warnings(plan.findings.warnings)
    if errors := plan.findings.errors:
        raise SpecError(errors)


def _show_plan(study: Study, plan: StudyPlan) -> None:
    """Print the costs of the rows of a study, and what they change."""
    print("\n".join(terminal.columns(plan.table, 1)))
    seeds = len(study.settings.seeds)
    print(f"\none run  training at {plan.gigaflops:,.1f} GFLOP/s, without validations")
    print(f"all      {seeds} seed{'s' * (seeds > 1)} each, one run at a time")
    baseline = next(row for row in plan.rows if row.name == study.settings.compare.baseline)
    size = baseline.parameters
    several = [row.name for row in plan.rows if abs(row.parameters - size) > _OTHER_SIZE * size]
    if several and not study.settings.match:
        print(f'sizes    not as large as the baseline: {", ".join(several)}; with "match" in a row')
        print('         or the study, such as {"param": "d_ff"}, a param is set so that they are')
    print("\n".join([*plan.procedure, *([f"search   {plan.search}"] if plan.search else [])]))
    print()
    for row in plan.rows:
        if row.name != study.settings.compare.baseline:
            print(f"{row.name}  {row.solved}".rstrip())
            print("\n".join(f"  {line}" for line in row.changes or ("no difference",)))


def _draw_plan(plan: StudyPlan, out: str) -> None:
    """Write the page of a plan, and say so.

    Raises:
        InputError: the file cannot be written.
    """
    for problem in plan.draw(out):
        terminal.notice(problem)
    terminal.notice(f"written  {out}")


def _note_edits(study: Study) -> None:
    """Say so if the study was edited since it was run.

    Raises:
        InputError: the study was not run.
    """
    from .study import edited

    if edited(study):
        terminal.notice(
            "the study was edited after it was run, and this is about the study before: weft study"
            " run applies the changes"
        )


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
    "weft study new translation.json",
    "weft study check translation-study.json",
    "weft study run translation-study.json --processes 2",
)


@command("Commands", "weft study new translation.json", name="new", of=app)
def new(
    run: RunName,
    *,
    name: Annotated[
        str | None, option("--name", "Name of the study. [default: that of the run with -study]")
    ] = None,
    out: Annotated[
        str | None, out_option("The study file. [default: NAME.json beside the run]")
    ] = None,
) -> None:
    """Write a study of a run, to edit: rows that fit its model, with comments."""
    from .planning.draft import draft_study

    path = shlex.quote(str(draft_study(run, name=name or "", out=out)))
    terminal.notice("each row is one idea, which you edit. Next:")
    print(f"weft study check {path}\nweft study run {path}")


@command(
    "Commands",
    "weft study check my-study.json",
    "weft study check my-study.json --draw plan.html",
    of=app,
)
def check(
    study: StudyName,
    *,
    out: Folder = None,
    overrides: Overrides = None,
    speed: Peak = None,
    draw: Annotated[
        str | None,
        option(
            "--draw",
            "Draw what each row changes on a page, beside all that is printed: a file that ends in "
            ".html.",
            metavar="PATH",
            complete=complete_files,
        ),
    ] = None,
    json_: Json = False,
) -> int:
    """Check every row of a study, and print its costs and what it changes. Nothing is trained."""
    from ...plugin import check_suffix

    if draw is not None:
        from .report.page import PAGE

        check_suffix(Path(draw), PAGE)
    loaded = _study(study, overrides, out, speed)
    plan = loaded.plan()
    if json_:
        print(json.dumps(plan.as_json(), indent=2, ensure_ascii=False))
        if plan.findings.errors:
            return 1
    else:
        _refuse_wrong(plan)
        _show_plan(loaded, plan)
    if draw is not None:
        _draw_plan(plan, draw)
    return 0


def _study(name: str, overrides: list[str] | None, out: str | None, speed: float | None) -> Study:
    from .study import Study

    return Study(name, out=out, overrides=overridden(overrides), gigaflops=speed)


@command(
    "Commands",
    "weft study run my-study.json --processes 2",
    "weft study run my-study.json --on dask:tcp://10.0.0.1:8786",
    "weft study run my-study.json --row baseline --row swiglu",
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
    processes: Processes = None,
    on: On = "local",
    rows: Annotated[
        list[str] | None,
        option("--row", "Train only this row. Repeat the option for several rows.", metavar="NAME"),
    ] = None,
    dry: Annotated[
        bool, typer.Option("--dry", help="Only check, as `weft study check` does.")
    ] = False,
    print_jobs: Annotated[
        bool,
        typer.Option(
            "--print-jobs",
            help="Run nothing; print the command of each job that is not done, one on a line with "
            "its row and seed, for a job array.",
        ),
    ] = False,
    speed: Peak = None,
) -> int:
    """Train and measure all runs of a study, and write its report."""
    from .report.page import write_pictures
    from .running import job_command
    from .study import begun

    for flag, value in (("--print-jobs", print_jobs), ("--row", rows)):
        if dry and value:
            raise wrong(flag, "it has no effect with --dry")
    loaded = _study(study, overrides, out, speed)
    plan = loaded.plan()
    _refuse_wrong(plan)
    if dry:
        _show_plan(loaded, plan)
        return 0
    with begun(loaded, plan, rows or ()) as jobs:
        for problem in write_pictures(plan.plan, loaded.folder):
            terminal.notice(problem)
        if print_jobs:
            for job in jobs.todo:
                print(f"{shlex.join(job_command(job))}  # {job.title}")
            if loaded.settings.tune or loaded.settings.sequential:
                terminal.notice("when these are done, the same command prints those that follow")
            return 0
        done = len(jobs.jobs) - len(jobs.todo)
        terminal.notice(f"{len(jobs.jobs)} jobs, {done} of them done before")
        return _run(loaded, jobs, processes, on)


def _run(study: Study, first: Begun, processes: int | None, on: str) -> int:
    from .jobs import watched
    from .running import advice, run_jobs

    live, console, failed = terminal.shows_progress(), terminal.console(), 0
    for jobs in first.rounds():
        if jobs is not first:
            terminal.notice(f"{len(jobs.todo)} jobs follow from these results")
        with watched(jobs.record, study.folder, console, live=live) as look:
            work = run_jobs(jobs.todo, processes, on=on, look=look)
        for key, problem in work.failed.items() if live else ():
            terminal.notice(f"job {key} failed: {problem}")
        if work.stopped_by is not None:
            terminal.notice("stopped; the same command continues")
            return 128 + work.stopped_by
        failed += len(work.failed)
    if failed:
        terminal.notice(advice(failed, study.folder))
    _report(study)
    return int(bool(failed))


def _report(study: Study, to: str | None = None, forms: Sequence[Form] = ()) -> None:
    """Write the report, and print what can and what cannot be concluded, and its files."""
    from .report.text import CANNOT

    written = study.report(to, forms=forms or FORMS)
    print("\n".join(written.conclusions))
    if written.unclear:
        print("\n".join(("", f"{CANNOT}:", *written.unclear)))
    if {"svg", "pdf"} & {*forms} and not written.comparisons:
        terminal.notice("there is nothing to compare, so there is no figure of it")
    for path in written.paths:
        terminal.notice(f"written  {path}")


@command("Commands", "weft study job outputs/my-study/jobs/0123456789abcdef", of=app)
def job(
    folder: Annotated[str, argument("FOLDER", "Folder of a job.", complete_files)],
) -> int:
    """Run one job of a study, as job arrays do."""
    from ...plugin import keep_freed_memory
    from .jobs import SEARCH_TASK, TASK
    from .worker import run_job

    kinds = [kind for kind in (SEARCH_TASK, TASK) if (Path(folder) / kind).is_file()]
    if not kinds:
        raise InputError(
            "this is not the folder of a job",
            location=folder,
            help="see weft study run --print-jobs",
        )
    keep_freed_memory()
    terminal.standard_output_is_a_log()
    outcomes = (run_job(Path(folder), kind=kind) for kind in kinds)
    outcome = next((outcome for outcome in outcomes if outcome != "done"), "done")
    return {"done": 0, "SIGINT": 130, "SIGTERM": 143}[outcome]


@command("Commands", "weft study status my-study.json", of=app)
def status(study: StudyName, *, out: Folder = None, json_: Json = False) -> int:
    """Print how far each run of a study is."""
    loaded = _study(study, None, out, None)
    _note_edits(loaded)
    if json_:
        jobs = [asdict(job_status) for job_status in loaded.status()]
        records = [
            {key: value for key, value in job_status.items() if value not in (None, "")}
            for job_status in jobs
        ]
        print(json.dumps(records, indent=2))
        return 0
    from .jobs import open_plan, status_table

    table = status_table(open_plan(loaded.folder), loaded.folder)
    terminal.console(sys.stdout).print(table)
    return 0


@command(
    "Commands",
    "weft study report my-study.json",
    "weft study report my-study.json --to docs --form md --form svg",
    of=app,
)
def report(
    study: StudyName,
    *,
    out: Folder = None,
    to: Annotated[
        str | None, to_option("Folder of the report. [default: the folder `report` of the study]")
    ] = None,
    forms: Annotated[
        list[Form] | None,
        option("--form", "Write only this form. Repeat the option for several. [default: all]"),
    ] = None,
) -> None:
    """Write the report of the runs that are done.

    It has HTML, Markdown, its figures as SVG and PDF, LaTeX, CSV and JSON.

    Raises:
        InputError: the study was not run, or a file cannot be written.
    """
    loaded = _study(study, None, out, None)
    _note_edits(loaded)
    _report(loaded, to, forms or ())


@command(
    "Commands",
    "weft study pack my-study.json --to results",
    note="The file of a run, KEY.zip, has scores and no weights. So results can be published, or "
    "brought together from several machines. plan.json has the rows.",
    of=app,
)
def pack(
    study: StudyName,
    *,
    to: Annotated[str, to_option("Folder of the files.")],
    out: Folder = None,
) -> None:
    """Write the results of each finished run to a small file.

    Raises:
        InputError: the study was not run, or a file cannot be written.
    """
    loaded = _study(study, None, out, None)
    paths = loaded.pack(to)
    terminal.notice(f"{len(paths)} finished run{'s' * (len(paths) != 1)}, in {to}")


@command(
    "Commands",
    "weft study unpack my-study.json results",
    note="Then `weft study report` writes their report, which needs no data, and `weft study run` "
    "trains only what is missing.",
    of=app,
)
def unpack(
    study: StudyName,
    files: Annotated[
        list[str],
        argument("FILES", "Files of runs from weft study pack, or their folders.", complete_files),
    ],
    *,
    out: Folder = None,
) -> None:
    """Add finished runs to a study, which does not train them again.

    Raises:
        InputError: a file is not that of a run, or the folder is in use.
    """
    added, existing = _study(study, None, out, None).unpack(files)
    terminal.notice(f"{len(added)} added, {len(existing)} known already")


@command("Commands", "weft study demo --processes 2", of=app)
def demo(
    *,
    out: Annotated[
        str | None, out_option("Folder of the study. [default: outputs/study-demo]")
    ] = None,
    processes: Processes = 2,
    overrides: Overrides = None,
) -> int:
    """Run a small shipped study on a generated corpus: five rows, two seeds, in minutes.

    Raises:
        InputError: a file cannot be written, or num2words is not installed.
    """
    from ...examples.demo import write_demo_corpus

    corpus = Path(out or "outputs/study-demo") / "corpus"
    write_demo_corpus(corpus)
    root = [f"run.data.root={corpus}", *(overrides or [])]
    return run("study-demo", out=out, overrides=root, processes=processes)


@command(
    "Commands",
    "weft study search my-study.json --processes 2",
    note="Needs the extra 'search'. Ctrl-C stops with checkpoints; the same command continues.",
    of=app,
)
def search(
    study: StudyName,
    *,
    out: Folder = None,
    overrides: Overrides = None,
    processes: Processes = None,
    on: On = "local",
) -> int:
    """Search the best row by the validation data; no test set is measured."""
    loaded = _study(study, overrides, out, None)
    outcome = loaded.search(processes=processes, on=on, log=terminal.notice)
    for path in outcome.paths:
        terminal.notice(f"written  {path}")
    if outcome.stopped_by is not None:
        terminal.notice("stopped; the same command continues")
        return 128 + outcome.stopped_by
    return int(any(trial.state == "failed" for trial in outcome.trials))


@command(
    STUDIES,
    "weft synthesize multi30k-en-de outputs/en-de/averaged --out data/multi30k/distilled "
    "--predict beam=5",
    "weft synthesize multi30k-en-de outputs/1/averaged --ensemble outputs/2/averaged "
    "--out data/multi30k/distilled --predict nbest=5 --closest",
    "weft synthesize multi30k-en-de outputs/de-en/averaged --out data/multi30k/back "
    '--rows \'{"lines": {"target": ["news.de.gz"]}}\' --predict type=sample',
    note="Distillation with a model of the run's direction, back-translation with one of the "
    "other. The folder contains the rows as lines, the score of each answer, the model's "
    "tokenizers, and from what they were made, which the reader 'synthetic' checks. A command that "
    "was stopped continues.",
)
def synthesize(
    run: RunName,
    checkpoint: Checkpoint,
    *,
    out: Annotated[str, out_option("Folder to write, below the root of the run's data.")],
    rows: Annotated[
        str | None,
        option(
            "--rows",
            "What is read, as a split in JSON: one reader with its files. [default: the run's "
            "training data]",
            metavar="JSON",
        ),
    ] = None,
    ensemble: Annotated[
        list[str] | None,
        option(
            "--ensemble",
            "Another checkpoint with the same tokenizer; the probabilities of the models are "
            "averaged. Repeat the option for several.",
            metavar="CHECKPOINT",
            complete=complete_files,
        ),
    ] = None,
    overrides: Overrides = None,
    predict: Annotated[
        list[str] | None,
        option(
            "--predict",
            "Change a setting of the model's predictor, such as beam=5. Repeat the option for "
            "several.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    closest: Annotated[
        bool,
        typer.Option(
            "--closest",
            help="Keep, of `nbest` answers for each row, the one that is most similar to the row's "
            "own text.",
        ),
    ] = False,
    processes: Processes = None,
    on: On = "local",
) -> None:
    """Write training data for a run, one text of which a checkpoint answers.

    Raises:
        InputError: the data, the checkpoint or the folder is wrong.
    """
    from .synthesis import synthesize as write

    with terminal.Reporter().shown() as reporter:
        synthetic = write(
            run,
            [checkpoint, *(ensemble or ())],
            out,
            rows=None if rows is None else _object(rows),
            overrides=overridden(overrides),
            predict=overridden(predict),
            closest=closest,
            processes=processes,
            on=on,
            progress=reporter.synthesized,
            watch=reporter.watch,
        )
    terminal.notice(f"written  {synthetic.folder}: {synthetic.rows:,} rows")
    read = {"data.train": synthetic.train, "tokenizers": synthetic.tokenizers}
    words = {name: shlex.quote(json.dumps(value)) for name, value in read.items() if value}
    print(" ".join(f"--set {name}={word}" for name, word in words.items()))


def _object(text: str) -> dict[str, Any]:
    """Return the JSON object in a text.

    Raises:
        InputError: it is none.
    """
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise wrong("--rows", 'write a JSON object, such as {"lines": {"target": ["mono.de"]}}')
    return value
