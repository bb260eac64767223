"""The commands `weft prepare` and `weft train`."""

from __future__ import annotations

import json
from argparse import Namespace
from contextlib import nullcontext
from pathlib import Path

from ....specs.load import parse_overrides
from ... import api
from ...profiling.report import table
from ...system.memory import keep_freed_memory
from ...train.context import Result
from ...train.distributed.world import is_main_process
from ...train.run import Run, load_run
from ..progress import Reporter


def _run(options: Namespace) -> tuple[Run, str, Path]:
    run, source = load_run(options.run, parse_overrides(options.set))
    return run, source, Path(options.out) if options.out else Path("outputs") / run.name


def prepare(options: Namespace) -> None:
    """Build the tokenizer and the corpus, and print a report of dropped pairs."""
    run, source, folder = _run(options)
    reporter = Reporter()
    with reporter.shown():
        made = api.prepare_run(
            run, folder, reporter.prepared, workers=options.workers, log=reporter.log
        )
    api.graph_for(run, source, made)
    print(json.dumps(made.report, indent=2))


def train(options: Namespace) -> int:
    """Train, plot the curves, and print the paths of the results."""
    folder = _run(options)[2]
    reporter = Reporter()
    if options.profile is not None:
        _profile(options, folder, reporter)
        return 0
    keep_freed_memory()
    with reporter.shown() if is_main_process() else nullcontext():
        result = api.train(
            options.run,
            out=folder,
            overrides=parse_overrides(options.set),
            resume=options.resume,
            listener=reporter,
            report=reporter.prepared,
        )
    if not is_main_process():
        return _code(result)
    from ...train.reporting.plot import plot_curves

    curves = folder / "curves.png"
    plot_curves(folder / "metrics.jsonl", curves)
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
    return _code(result)


def _code(result: Result) -> int:
    """Return the exit code of a training run."""
    if result.finished:
        return 0
    return 130 if result.reason == "SIGINT" else 143


def _profile(options: Namespace, folder: Path, reporter: Reporter) -> None:
    """Profile some updates, and print their time and memory by node."""
    with reporter.shown():
        found, files = api.profile(
            options.run,
            out=folder,
            overrides=parse_overrides(options.set),
            updates=options.profile,
            listener=reporter,
            report=reporter.prepared,
        )
    print(table(found))
    for path in files:
        reporter.log(f"written  {path}")
