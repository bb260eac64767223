"""Validation of an objective: its losses, and metrics of what its model predicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from ...graphs.ir.graph import Graph
from ...graphs.passes.objective import deployed_graph
from ...specs.findings import InputError
from ...specs.json_tree import cells
from ..codegen.build import build_empty
from ..decode.predictors.columns import for_predictors
from ..decode.predictors.predictor import Context, Predictor
from ..metrics.metric import LossMetric, Metric
from .distributed.answers import decoded, encoded
from .distributed.stopping import Interrupted, StopRequest, together
from .losses import ObjectiveLosses
from .run import Run

if TYPE_CHECKING:
    from ..data.columns.column import Column
    from ..data.prepare import Prepared
    from ..data.table import Batch
    from .device import RunDevice
    from .distributed.world import World


class Evaluated(Protocol):
    """A model in evaluation mode, seen from one of the processes that measure it together."""

    @property
    def model(self) -> nn.Module:
        """Module of the objective."""

    @property
    def world(self) -> World:
        """The processes."""

    @property
    def in_step(self) -> bool:
        """Whether all processes must run equally many batches together."""

    def answering(self, stop: StopRequest) -> AbstractContextManager[nn.Module]:
        """Yield the module for rows of this process alone; abandon the body at a request to stop.

        All processes call it together.
        """


Validate = Callable[[Evaluated, StopRequest], dict[str, Any]]
"""Measures a model on all processes together; only the main one gets metrics of predictions."""
MOST_SHOWN = 50
"""Number of predictions from which those that are shown as pictures are taken."""


def validator(
    run: Run,
    graph: Graph,
    losses: ObjectiveLosses,
    prepared: Prepared,
    placement: RunDevice,
) -> Validate:
    """Return a function that measures the model of an objective on the validation data.

    All processes call it together, and each measures its share.

    Its result has every loss and score by name, `loss`, and every metric by name; if the
    validation data has sources, also those of each source, as `SOURCE/NAME`.  If the run predicts,
    it also has `samples`, a text table of some predictions, and `answers`, the first rows with
    their predictions.

    Raises:
        InputError: the predictor does not fit the model or the columns.
    """
    metrics = run.metrics()
    predicted = [metric for metric in metrics if metric.needs == "predictions"]
    shown = 0 if run.predict is None else run.evaluate.samples
    sources: list[str | None] = [*prepared.valid.sources] or [None]
    rows = {
        source: prepared.text("valid", run.evaluate.rows, source) if predicted or shown else []
        for source in sources
    }

    predictor_of, deploy = None, str(graph.deploy)
    if run.predict is not None and graph.deploy is not None:
        predictor_of = predictors(run, graph, prepared.columns, half=placement.half)

    def validate(evaluated: Evaluated, stop: StopRequest) -> dict[str, Any]:
        sums = [
            summed(
                losses,
                evaluated,
                stop,
                partial(prepared.valid.in_order, run.largest_batch, source),
                placement.device,
            )
            for source in sources
        ]
        by_source = {
            source: _with_metrics(metrics, losses.averaged(*pair))
            for source, pair in zip(sources, sums, strict=True)
        }
        all_sums, all_counts = (torch.stack(parts).sum(0) for parts in zip(*sums, strict=True))
        values: dict[str, Any] = _with_metrics(metrics, losses.averaged(all_sums, all_counts))
        if predictor_of is not None and any(rows.values()):
            pairs: list[tuple[Mapping[str, Any], Any]] = []
            for source, listed in rows.items():
                some = listed if predicted else listed[: shown - len(pairs)]
                answers = answered(predictor_of, deploy, some, evaluated, stop) if some else []
                with together(evaluated.world, stop):
                    if answers:
                        by_source[source] |= measured(predicted, answers, some, str(run.answers))
                # Only the main process has answers.
                pairs += zip(some, answers, strict=False)
            predicted_rows, answers = [row for row, _ in pairs], [answer for _, answer in pairs]
            with together(evaluated.world, stop):
                if pairs:
                    values |= measured(predicted, answers, predicted_rows, str(run.answers))
            if pairs:
                values["answers"] = pairs[:MOST_SHOWN]
                if shown:
                    values["samples"] = sample_table(
                        predicted_rows, answers, str(run.answers), most=shown
                    )
        scores = {source: inner for source, inner in by_source.items() if source is not None}
        return values | {
            f"{s}/{n}": value for s, inner in scores.items() for n, value in inner.items()
        }

    return validate


def summed(
    losses: ObjectiveLosses,
    evaluated: Evaluated,
    stop: StopRequest,
    batches: Callable[..., Iterator[Batch]],
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """Return the sums of every loss and score, and the items of every loss, of all processes.

    Each process computes its share of the batches.

    Args:
        losses: losses of the objective.
        evaluated: the model.
        stop: a request of any process ends the computation of all.
        batches: yields the batches of a `share`: the number of the first one, and the step.
        device: device of the model.

    Raises:
        Interrupted: there was a request to stop.
    """
    world = evaluated.world
    mine = batches(share=(world.data_parallel_rank, world.data_parallel_size))

    def in_step() -> Iterator[tuple[Batch, float]]:
        """Yield batches with their weights, until no process has another one."""
        batch = spare = None
        while True:
            batch = next(mine, None)
            signal, more = world.largest(stop.signal, batch is not None)
            if signal:
                raise Interrupted
            if not more:
                return
            if batch is not None:
                spare = batch
                yield batch, 1.0
            elif evaluated.in_step:
                spare = spare or next(batches(share=(0, 1)))
                yield spare, 0.0

    sums, counts = losses.summed(evaluated.model, in_step(), device)
    return world.summed(sums), world.summed(counts)


def answered(
    predictor_of: Callable[[nn.Module], Predictor],
    deploy: str,
    rows: Sequence[Mapping[str, Any]],
    evaluated: Evaluated,
    stop: StopRequest,
) -> list[Any]:
    """Return the answers to rows on the main process, and nothing on the others.

    Each process answers its share of the rows.

    Args:
        predictor_of: returns the predictor of a deployed module.
        deploy: path of the deployed module.
        rows: raw values by column.
        evaluated: the model.
        stop: a request of any process ends the predictions of all.

    Raises:
        Interrupted: there was a request to stop, at any process.
    """
    world, mine = evaluated.world, list[Any]()
    with evaluated.answering(stop) as model:
        share = rows[world.rank :: world.size]
        mine = predictor_of(model.get_submodule(deploy)).predict(share) if share else []
    if world.size == 1:
        return mine
    answers: list[Any] = [None] * len(rows)
    gathered = world.gathered(encoded(mine))
    for rank, part in enumerate(gathered):
        answers[rank :: world.size] = decoded(part)
    return answers if gathered else []


def predictors(
    run: Run, graph: Graph, columns: Mapping[str, Column], *, half: bool = False
) -> Callable[[nn.Module], Predictor]:
    """Return a function that makes the predictor of a deployed module, as validations use it.

    A predictor that does not fit is refused at once, before training.

    Args:
        run: the run; it has `predict` and `answers`.
        graph: graph of its objective.
        columns: prepared columns.
        half: whether matrix products run in bfloat16.

    Raises:
        InputError: the run does not predict, or the predictor does not fit.
    """
    settings = run.predict_in_validations
    if settings is None or run.answers is None:
        raise InputError(
            f"the run '{run.name}' does not say how its model predicts",
            help="add 'predict', such as {\"type\": \"argmax\"}, and 'answers' to the run",
        )
    empty = build_empty(deployed_graph(graph), device="meta")
    context = Context.of(graph, (empty,), for_predictors(columns), run.answers, half=half)
    settings.make(context)
    return lambda model: settings.make(replace(context, models=(model,)))


def _with_metrics(metrics: Sequence[Metric], values: dict[str, float]) -> dict[str, Any]:
    """Return losses and scores by name, with the metrics of losses."""
    return values | measured_losses(metrics, values)


def measured_losses(metrics: Sequence[Metric], values: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of losses by name."""
    return {
        metric.name: metric.measure_losses(values).value
        for metric in metrics
        if isinstance(metric, LossMetric)
    }


def measured(
    metrics: Sequence[Metric],
    predictions: Sequence[Any],
    rows: Sequence[Mapping[str, Any]],
    answers: str,
) -> dict[str, float]:
    """Return the metrics of predictions by name.

    Args:
        metrics: metrics of predictions.
        predictions: the answer for each row.
        rows: raw values by column.
        answers: the column that was predicted.
    """
    return {
        metric.name: metric.measure(predictions, metric.references(rows, answers)).value
        for metric in metrics
    }


MOST = 12
"""Default number of rows."""
_LONGEST = 300
"""Maximum characters of a value."""


def sample_table(
    rows: Sequence[Mapping[str, Any]],
    predictions: Sequence[Any],
    answers: str,
    *,
    most: int = MOST,
) -> str:
    """Return a few rows with their predictions, one value on each line.

    Args:
        rows: raw values by column.
        predictions: the answer for each row.
        answers: column with the references.
        most: number of rows, from the first.

    Raises:
        InputError: the lists differ in length.
    """
    if len(rows) != len(predictions):
        raise InputError(
            f"{len(predictions)} predictions for {len(rows)} rows", help="predict the same rows"
        )
    lines = []
    for number, (row, predicted) in enumerate(zip(rows[:most], predictions, strict=False), 1):
        shown = {name: value for name, value in row.items() if name != answers}
        shown |= {"predicted": predicted, "reference": row.get(answers)}
        width = max(map(cells, shown))
        lines.append(f"[{number}]")
        lines += [
            f"  {name}{' ' * (width - cells(name))}  {_short(value)}"
            for name, value in shown.items()
        ]
    return "\n".join(lines)


def _short(value: Any) -> str:
    """Return a value on one line, shortened."""
    value = getattr(value, "tree", value)
    if isinstance(value, list | tuple) and all(isinstance(element, str) for element in value):
        value = " ".join(value)
    if isinstance(value, float):
        value = f"{value:.6g}"
    # Arrays such as images and sounds are described, not printed.
    if hasattr(value, "shape"):
        value = f"{type(value).__name__} of shape {tuple(value.shape)}"
    text = " ".join(str(value).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."
