"""Metrics that a run cannot measure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ....graphs.ir.graph import Graph
from ....graphs.passes.objective import (
    deployed_graph,
    has_all_weights,
    nll_of,
    reported_losses,
    scores_of,
)
from ....specs.findings import Finding, InputError, did_you_mean, pointer
from ...checkpoint.task import Task
from ...metrics.metric import LossMetric, Metric
from ..run import Run

Places = Iterable[tuple[Metric, str]]
"""Metrics, each with the JSON Pointer to its settings."""


def metric_places(run: Run) -> list[tuple[Metric, str]]:
    """Return the metrics of the validations of a run."""
    places = [
        (metric, pointer("evaluate", "metrics", number))
        for number, metric in enumerate(run.evaluate.metrics)
    ]
    best = run.evaluate.best
    return places if best in run.evaluate.metrics else [*places, (best, "/evaluate/best")]


def wrong_metrics(run: Task, places: Places) -> Iterator[Finding]:
    """Yield a finding for each metric that has the name of another one, or fits no column."""
    names: set[str] = set()
    for metric, at in places:
        if metric.name in names:
            yield _wrong(at, f"another metric is '{metric.name}' too", "remove one of them")
        names.add(metric.name)
        column = metric.column or run.answers
        if metric.needs != "predictions" or column is None:
            continue
        if column not in run.data.columns:
            if metric.column is None:
                continue  # told at 'answers'
            yield _wrong(
                f"{at}/column",
                f"the metric '{metric.type}' compares with the column '{column}',"
                " which does not exist",
                did_you_mean(column, run.data.columns),
            )
            continue
        for setting in metric.reads:
            if (further := getattr(metric, setting)) not in run.data.columns:
                yield _wrong(
                    f"{at}/{setting}",
                    f"the metric '{metric.type}' reads the column '{further}', which does not"
                    " exist",
                    did_you_mean(further, run.data.columns),
                )
        kind = run.data.columns[column].type
        if metric.takes and kind not in metric.takes:
            yield _wrong(
                at,
                f"the metric '{metric.type}' compares values of type"
                f" {' or '.join(metric.takes)}, but the column '{column}' has the type {kind}",
                "docs/metrics.md lists the metrics of each type",
            )


def unknown_losses(objective: Graph, places: Places) -> Iterator[Finding]:
    """Yield a finding for each metric of a loss or score that the objective does not report."""
    names = ["loss", *reported_losses(objective).values(), *scores_of(objective)]
    names += ["nll"] * bool(nll_of(objective))
    for metric, at in places:
        if isinstance(metric, LossMetric):
            try:
                metric.measure_losses(dict.fromkeys(names, 0.0))
            except InputError as error:
                reports = f"it reports {', '.join(dict.fromkeys(names))}"
                yield _wrong(at, error.problem, error.help or reports)


def losses_of_training(objective: Graph, places: Places) -> Iterator[Finding]:
    """Yield a finding for each metric of a loss that only training can measure.

    A checkpoint has the deployed model, so the losses of an objective with other weights are
    unknown afterwards.
    """
    if has_all_weights(deployed_graph(objective), objective):
        return
    for metric, at in places:
        if isinstance(metric, LossMetric):
            yield _wrong(
                at,
                f"'{metric.name}' cannot be measured after training: '{objective.name}' has weights"
                " besides those of the model that it deploys",
                "use a metric of predictions",
            )


def _wrong(at: str, problem: str, help_: str) -> Finding:
    return Finding(code="R04", at=at, problem=problem, help=help_)
