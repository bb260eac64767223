"""The commands `weft demo`, `weft prepare` and `weft train`."""

from __future__ import annotations

import json
import os
import shlex
import signal
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from pydantic import Field

from ...specs.findings import InputError
from .common import terminal
from .common.command import TRAINING, command, wrong
from .common.parameters import (
    On,
    Overrides,
    RunName,
    option,
    out_option,
    overridden,
)

if TYPE_CHECKING:
    from ..model.model import Model
    from ..train.context import Result

Folder = Annotated[str | None, out_option("Folder of the run. [default: outputs/NAME]")]


@command(TRAINING, "weft demo --out outputs/demo")
def demo(
    *,
    out: Annotated[str, out_option("Folder to write.")] = "outputs/demo",
    updates: Annotated[
        int | None,
        Field(ge=1),
        option(
            "--updates", "Train for this many updates only, to try an installation. [default: all]"
        ),
    ] = None,
) -> None:
    """Check, draw, train and translate a small generated task, in minutes.

    Raises:
        InputError: training was stopped, a file cannot be written, or num2words is not installed.
    """
    from ...examples.demo import demo as run_demo

    run_demo(Path(out), updates=updates)


@command(
    TRAINING,
    "weft prepare multi30k-en-de --set data.root=DIR",
    "weft prepare multi30k-en-de --set data.root=DIR --to s3://BUCKET/PATH",
)
def prepare(
    run: RunName,
    *,
    out: Folder = None,
    overrides: Overrides = None,
    processes: Annotated[
        int | None,
        Field(ge=1),
        option(
            "--processes",
            "Parts of the text that are tokenized at the same time; the result does not depend on "
            "it. [default: one per core; on a cluster, as many as it takes]",
        ),
    ] = None,
    on: On = "local",
    to: Annotated[
        str | None,
        option(
            "--to",
            "Also upload the prepared data, without the training text, to a folder or a bucket, "
            "such as s3://BUCKET/PATH. The report has its address, for data.prepared of runs "
            "anywhere.",
        ),
    ] = None,
) -> None:
    """Build a run's tokenizers and binary corpus, and print a report of dropped rows.

    The report also has the median rows, tokens and distinct lengths of an update, and the standard
    deviation of its lengths.
    """
    from .. import api
    from ..data.plans.updates import lengths_in_updates
    from ..system.lock import locked
    from ..train.plan import plan_named

    chosen = Path(out) if out else None
    plan = plan_named(run, overridden(overrides), folder=chosen)
    settings, _ = plan.required()
    folder = chosen or Path("outputs") / settings.name
    reporter = terminal.Reporter()
    with locked(folder), reporter.shown():
        prepared = api.prepare_run(
            plan,
            folder,
            reporter.prepared,
            processes=processes,
            on=on,
            log=reporter.log,
            to=to,
            watch=reporter.watch,
        )
    lengths = lengths_in_updates(
        prepared.train, settings.batch_at(1), settings.seed, settings.batches_at(1)
    )
    update = {} if lengths is None else {"update": lengths._asdict()}
    address = {} if prepared.address is None else {"prepared": prepared.address}
    print(json.dumps({**prepared.report, **update, **address}, indent=2))


@command(
    TRAINING,
    "weft train multi30k-en-de --set data.root=DIR",
    "weft train multi30k-en-de --set data.root=DIR --resume",
    "weft train multi30k-en-de --set data.root=DIR --resume auto",
    note="Ctrl-C saves a checkpoint and stops; --resume continues from it.",
    memory="set a smaller 'batch.tokens', 'activation_checkpointing', or a smaller model",
)
def train(
    run: RunName,
    *,
    out: Folder = None,
    overrides: Overrides = None,
    resume: Annotated[
        Literal["newest", "auto"] | None,
        option(
            "--resume",
            "Continue from the newest checkpoint in the folder; with `auto`, begin if there is"
            " none, so that one command is right at the first start and after each stop.",
        ),
    ] = None,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="Instead of training, profile some updates and print time and memory by node of "
            "the spec; writes a flame graph into the folder.",
        ),
    ] = False,
    updates: Annotated[
        int | None,
        Field(ge=1),
        option("--profile-updates", "Number of updates to profile. [default: 5]"),
    ] = None,
) -> int:
    """Train a run, from its data to its averaged checkpoint."""
    if updates is not None and not profile:
        raise wrong("--profile-updates", "it has an effect only with --profile")
    if profile and resume:
        raise wrong("--resume", "it has no effect with --profile")
    if profile:
        _profile(run, out, overrides, updates or 5)
        return 0
    from .. import api
    from ..system.memory import keep_freed_memory
    from ..train.distributed.world import is_main_process

    terminal.standard_output_is_a_log()
    reporter = terminal.Reporter()
    keep_freed_memory()
    with reporter.shown() if is_main_process() else nullcontext():
        result = api.train(
            run,
            out=out or None,
            overrides=overridden(overrides),
            resume="auto" if resume == "auto" else resume is not None,
            listener=reporter,
            report=reporter.prepared,
        )
    if is_main_process():
        _report(result, reporter)
    return _code(result)


def _report(result: Result, reporter: terminal.Reporter) -> None:
    """Print the paths and what to do next; of a finished run, plot curves and measure test sets."""
    from ..train.history import plot_curves

    curves = result.folder / "curves.png" if result.finished else None
    if curves is not None:  # a signal is answered at once
        plot_curves(result.folder / "metrics.jsonl", curves)
    reporter.log(f"stopped after update {result.state.update}: {result.reason}")
    for name, path in (
        ("last", result.checkpoint),
        ("best", result.best),
        ("averaged", result.averaged),
        ("curves", curves),
    ):
        if path is not None:
            reporter.log(f"{name:9} {path}")
    if not result.finished:
        reporter.log("continue with --resume")
        return
    try:
        reporter.log(f"next      {_tested(result, reporter)}")
    except InputError as error:  # the model is trained, whatever is wrong with the test files
        terminal.warn(error.location or "test", error.problem)


def _tested(result: Result, reporter: terminal.Reporter) -> str:
    """Measure the test sets of a finished run; return the command that uses its model.

    Raises:
        InputError: a test set cannot be read.
    """
    from .common.models import open_checkpoints
    from .measuring import chosen_metrics, evaluated, report_text
    from .predicting import test_rows

    model = open_checkpoints(str(result.averaged or result.best), None, {}, once=False)
    run = model.answering.run
    if run.data.test and run.metrics():
        metrics = chosen_metrics(model, ())
        for name, rows in test_rows(model, None, None, None).items():
            reporter.log(report_text(evaluated(model, name, rows, metrics, None, shown=False)))
    return _command(model, shlex.quote(str(result.folder)))


def _command(model: Model, folder: str) -> str:
    """Return the command that uses a trained model, as its run says or as its inputs allow."""
    run = model.answering.run
    answers = None if run.answers is None else run.data.columns[run.answers].type
    if answers in ("text", None):
        for verb, opened in (
            ("translate", model.line_predictor),
            ("generate", partial(model.prompt_predictor, {})),
        ):
            with suppress(InputError):
                opened()
                return f"weft {verb} {folder} < FILE"
    if answers is None:
        return f"weft show {folder}"
    if answers == "tree":
        return f"weft parse {folder} < FILE"
    row = json.dumps(dict.fromkeys(model.answering.fields(), "..."), ensure_ascii=False)
    return f"echo {shlex.quote(row)} | weft predict {folder}"


def _code(result: Result) -> int:
    """Return the exit code of a training run."""
    if result.finished:
        return 0
    return 128 + signal.Signals[result.reason]


def _profile(run: str, out: str | None, overrides: list[str] | None, updates: int) -> None:
    """Profile some updates, and print their time and memory by node."""
    # Silence the lines that torch's profiler logs when it starts and stops; torch reads these once.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from .. import api
    from ..analysis.profile_summary import table

    reporter = terminal.Reporter()
    with reporter.shown():
        measured, files = api.profile(
            run,
            out=out or None,
            overrides=overridden(overrides),
            updates=updates,
            listener=reporter,
            report=reporter.prepared,
        )
    print(table(measured))
    for path in files:
        reporter.log(f"written  {path}")
