"""What a checkpoint is measured by: the losses of its objective, and metrics of its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...graphs.ir.canonical import fingerprint
from ...graphs.ir.graph import Graph
from ...graphs.ir.traverse import position_limits
from ...graphs.passes.objective import deployed_graph, has_all_weights
from ...specs.findings import InputError
from ..codegen.build import build_empty
from ..data.columns.column import Column, inputs_of
from ..data.columns.fitting import Fitting
from ..data.table import Batch, batch_of, segment_batches
from ..metrics.metric import Measured
from .losses import ObjectiveLosses

if TYPE_CHECKING:
    from ..decode.predictors.text import Warn
    from ..metrics.metric import Metric
    from ..model.model import Model

_ROWS = 32
"""Rows of a batch in which losses are measured."""
_BUFFER = 1000
"""Rows that are predicted between two reports of progress."""


def losses_of(model: Model, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean losses and scores of the objective over rows, by name.

    They are empty if the objective has weights besides those of its deployed model, such as a
    second head, which the checkpoint does not have.

    Raises:
        InputError: a row has more tokens than the model has positions.
    """
    answering, module = model.answering, model.module
    graph = model.checkpoint.objective
    if graph is None or not rows or fingerprint(deployed_graph(graph)) != fingerprint(model.graph):
        return {}
    if not has_all_weights(model.graph, graph):
        return {}
    _refuse_long(answering.columns, graph, rows)
    full_model = build_empty(graph, device=str(next(module.parameters()).device))
    full_model.get_submodule(str(graph.deploy)).load_state_dict(module.state_dict())
    full_model.eval()
    run, updates = answering.run, int(model.checkpoint.run.get("updates", 1))
    losses = ObjectiveLosses(graph, run.auxiliary, run.values, updates)
    device = next(module.parameters()).device
    return losses.measured(full_model, _batches(answering.columns, rows, graph), device)


def _refuse_long(
    columns: Mapping[str, Column], objective: Graph, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Raise an error for the first row that has more tokens than the model has positions.

    Raises:
        InputError: there is one.
    """
    most = min(position_limits(objective), default=None)
    if most is None:
        return
    names = [name for name, type_ in objective.inputs.items() if type_.kind == "ids"]
    fitting = Fitting.of(objective, inputs_of(columns))
    for number, row in enumerate(rows, 1):
        tokens = batch_of(columns, [row]).tokens
        for name in names:
            if fitting.length(name, tokens.get(name, 0)) > most:
                raise InputError(
                    f"'{name}' has {tokens[name]} tokens, special tokens included, but the"
                    f" model has {most} positions",
                    location=f"row {number}",
                    help="shorten it, or leave the row out",
                )


def _batches(
    columns: Mapping[str, Column], rows: Sequence[Mapping[str, Any]], objective: Graph
) -> Iterator[Batch]:
    fitting = Fitting.of(objective, inputs_of(columns))
    for start in range(0, len(rows), _ROWS):
        some = rows[start : start + _ROWS]
        segments = segment_batches(columns, some, fitting)
        yield from [batch_of(columns, some, fitting)] if segments is None else segments


def predicted(
    model: Model,
    rows: Sequence[Mapping[str, Any]],
    *,
    progress: Callable[[int], None] = lambda _: None,
    warn: Warn | None = None,
) -> list[Any]:
    """Return the answers to rows; none if the run does not predict.

    Args:
        model: the model.
        rows: raw values by column.
        progress: called with the number of further rows that are predicted.
        warn: as for `Model.predictor`.

    Raises:
        InputError: a row does not fit the model.
    """
    answers: list[Any] = []
    if model.strategy is not None:
        # Rows are numbered from the first of each part.
        numbered = warn and (lambda row, text: warn(len(answers) + row, text))
        predictor = model.predictor(warn=numbered)
        for start in range(0, len(rows), _BUFFER):
            part = rows[start : start + _BUFFER]
            answers += predictor.predict(part)
            progress(len(part))
    return answers


def measured(
    model: Model,
    rows: Sequence[Mapping[str, Any]],
    metrics: Sequence[Metric],
    answers: Sequence[Any],
) -> dict[str, Measured]:
    """Return metrics and losses over rows, by name.

    Args:
        model: the model.
        rows: raw values by column.
        metrics: what is measured, such as the metrics of the run.
        answers: what `predicted` returns for the rows.

    Raises:
        InputError: a metric does not fit the answers.
    """
    run, losses = model.answering.run, losses_of(model, rows)
    scores: dict[str, Measured] = {}
    for metric in metrics:
        if metric.needs == "losses":
            if losses:
                scores[metric.name] = metric.measure_losses(losses)  # type: ignore[attr-defined]
        else:
            references = metric.references(rows, str(run.answers))
            scores[metric.name] = metric.measure(answers, references)
    loss_scores = {name: Measured(value) for name, value in losses.items() if name not in scores}
    return {**scores, **loss_scores}
