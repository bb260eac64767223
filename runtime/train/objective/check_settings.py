"""Files that a run of an objective names, and its settings without effect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ....specs.findings import Finding, InputError, did_you_mean, pointer
from ...data.columns.settings import ClassSettings, ImageSettings, NumberSettings
from ...data.readers.registry import reader_of
from .settings import ObjectiveRun

_OPTIMIZERS = {
    "betas": ("adam", "adamw", "muon"),
    "momentum": ("muon", "sgd"),
    "eps": ("adam", "adamw", "muon"),
}
"""Setting of an optimizer to the optimizers that read it."""


def missing_files(run: ObjectiveRun) -> Iterator[Finding]:
    """Yield a finding for each file of a split that does not exist."""
    for where, split in run.data.splits().items():
        try:
            files = reader_of(split, run.data.root).files()
        except InputError as error:
            yield Finding(
                code="R02",
                at=pointer("data", *where, split.reader),
                problem=error.problem,
                help=error.help,
            )
            continue
        for name, path in files.items():
            if not path.exists():
                near = [each.name for each in path.parent.glob("*")] if path.parent.is_dir() else []
                yield Finding(
                    code="R02",
                    at=pointer("data", *where, split.reader),
                    problem=f"no file '{name}' below '{run.data.root}'",
                    help=did_you_mean(path.name, near)
                    or "set 'data.root' to the folder of the files",
                )
                break


def effects(run: ObjectiveRun) -> Iterator[Finding]:
    """Yield a finding for each setting without effect, and for a missing checkpoint."""
    if run.start is not None and not (Path(run.start) / "state.json").is_file():
        yield Finding(
            code="R02",
            at="/start",
            problem=f"there is no checkpoint in '{run.start}'",
            help="give a folder such as outputs/RUN/averaged",
        )
    if run.schedule.warmup > run.updates:
        yield Finding(
            code="R01",
            at="/schedule/warmup",
            problem=f"the warmup has {run.schedule.warmup} updates, but the run ends at"
            f" {run.updates}",
            help=f"set it to less than {run.updates}, or 'updates' to more",
        )
    if run.predict is None and "rows" in run.evaluate.model_fields_set:
        yield Finding(
            code="R01",
            at="/evaluate/rows",
            problem="'rows' limits the rows that are predicted, but the run does not predict",
            help="remove it, or add 'predict' and 'answers'",
        )
    if run.checkpoint.keep < run.checkpoint.average and "keep" in run.checkpoint.model_fields_set:
        yield Finding(
            code="R01",
            at="/checkpoint/keep",
            problem=f"'keep' is {run.checkpoint.keep}, but the {run.checkpoint.average} newest"
            " checkpoints are kept for 'average'",
            help="remove it, or lower 'average'",
        )
    yield from _evaluation(run)
    yield from _batch(run)
    for name, readers in _OPTIMIZERS.items():
        if run.optimizer.type not in readers and name in run.optimizer.model_fields_set:
            yield Finding(
                code="R01",
                at=f"/optimizer/{name}",
                problem=f"the optimizer '{run.optimizer.type}' has no '{name}'",
                help=f"remove it, or set 'type' to one of {', '.join(readers)}",
            )
    if run.checkpoint.sharded and run.parallel.data == "ddp":
        yield Finding(
            code="R01",
            at="/checkpoint/sharded",
            problem="'ddp' replicates all weights, so there are no shards to write",
            help="remove it, or set 'parallel.data' to 'fsdp'",
        )


def _evaluation(run: ObjectiveRun) -> Iterator[Finding]:
    """Yield a finding for each setting of the validations without effect."""
    settings = run.evaluate
    given = settings.model_fields_set
    if run.predict is None and "samples" in given and settings.samples:
        yield Finding(
            code="R01",
            at="/evaluate/samples",
            problem="'samples' logs predictions, but the run does not predict",
            help="remove it, or add 'predict' and 'answers'",
        )
    predicted = any(metric.needs == "predictions" for metric in run.metrics())
    if run.predict is not None and not predicted and "rows" in given:
        yield Finding(
            code="R01",
            at="/evaluate/rows",
            problem="'rows' limits the rows of metrics of predictions, but there is none",
            help="remove it, or add a metric such as accuracy",
        )
    validations = -(-run.updates // settings.every)
    if settings.patience is not None and settings.patience >= validations:
        yield Finding(
            code="R01",
            at="/evaluate/patience",
            problem=f"the run has {validations} validations, so it cannot stop after"
            f" {settings.patience} without improvement",
            help="lower 'patience' or 'every', or remove 'patience'",
        )
    for number, metric in enumerate(settings.metrics):
        if metric.column is not None and metric.column not in run.data.columns:
            yield Finding(
                code="R04",
                at=pointer("evaluate", "metrics", number, "column"),
                problem=f"the metric '{metric.type}' compares with the column '{metric.column}',"
                " which does not exist",
                help=did_you_mean(metric.column, run.data.columns),
            )


def _batch(run: ObjectiveRun) -> Iterator[Finding]:
    """Yield a finding if the size of a batch has no effect, or is not limited."""
    timeless = (ClassSettings, ImageSettings, NumberSettings)
    if not all(isinstance(one, timeless) for one in run.data.columns.values()):
        return
    if run.batch.max_sentences is None:
        yield Finding(
            code="R04",
            at="/batch",
            problem="no column has a time axis, so 'tokens' does not limit a batch",
            help="set 'max_sentences' to the number of rows of a batch",
        )
    elif "batch" in run.model_fields_set and "tokens" in run.batch.model_fields_set:
        yield Finding(
            code="R01",
            at="/batch/tokens",
            problem="no column has a time axis, so there are no tokens",
            help="remove it; 'max_sentences' limits the rows of a batch",
        )
