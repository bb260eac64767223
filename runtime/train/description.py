"""What a run does to its weights, in words: groups, optimizers, rates and changing settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from ...graphs.passes.freeze import trained_weights
from ...graphs.passes.objective import deployed_graph
from ...graphs.passes.widths import growth
from ..checkpoint.curve import Curve, stretches
from ..data.plans.mixture import described
from .recipe.groups import weight_groups
from .recipe.parametrization import with_widths
from .recipe.schedule import peak_of

if TYPE_CHECKING:
    from ...graphs.ir.graph import Graph
    from .run import Run


def recipe(run: Run, graph: Graph, base: Graph | None = None) -> dict[str, Any]:
    """Return the groups of weights of a run with their settings, and all that changes, as JSON.

    Args:
        run: the run.
        graph: graph of its objective.
        base: the graph with the sizes of the base model of its parametrization, if it has one.

    Raises:
        InputError: a selection selects nothing, or the peak of the schedule has no value.
    """
    trained = trained_weights(graph, run.freeze, run.train if run.freeze else ())
    peak = peak_of(run.schedule, deployed_graph(graph).params)
    shapes = graph.root.weights()
    groups = []
    weights = weight_groups(run.optimizer, graph, trained)
    for group in weights if base is None else with_widths(weights, growth(graph, base)):
        options = group.optimizer.model_dump(
            mode="json", by_alias=True, exclude={"type", "groups", "clip"}
        )
        rates = sorted({group.peak(path, peak) for path in group.weights})
        groups.append(
            {
                "select": group.select,
                "type": group.optimizer.type,
                "weights": len(group.weights),
                "parameters": sum(prod(shapes[path]) for path in group.weights),
                "rates": rates,
                "options": options,
            }
        )
    curves: dict[str, Curve] = {"schedule": run.schedule.pieces or 1.0}
    curves |= {"batch.tokens": run.batch.tokens, "accumulate": run.accumulate}
    curves["dropout"] = run.dropout
    curves |= {f"values.{name}": value for name, value in run.values.items()}
    changing = {
        name: [
            {
                "updates": [stretch.after + 1, min(stretch.until, run.updates)],
                "shape": "constant" if stretch.piece.holds else stretch.piece.shape,
                "from": stretch.start,
                "to": stretch.at(min(stretch.until, run.updates)),
            }
            for stretch in stretches(curve, run.updates)
            if stretch.after < min(stretch.until, run.updates)
        ]
        for name, curve in curves.items()
        if isinstance(curve, tuple)
    }
    sources = run.data.train.sources
    return {
        "updates": run.updates,
        "peak": peak,
        "groups": groups,
        "changing": changing,
        "mixture": described(run.data.mixture, sources, run.updates),
    }


def recipe_lines(value: Mapping[str, Any]) -> Iterable[str]:
    """Yield the lines of a recipe, from what `recipe` returns."""
    yield f"recipe: {value['updates']:,} updates"
    others = "all other weights" if len(value["groups"]) > 1 else "all weights"
    for group in value["groups"]:
        options = ", ".join(
            f"{name} {_option(option)}" for name, option in group["options"].items()
        )
        rates = " to ".join(f"{rate:.4g}" for rate in dict.fromkeys(_ends(group["rates"])))
        yield (
            f"  {group['select'] or others}: {group['type']} ({options}),"
            f" {group['weights']:,} weights, {group['parameters']:,} parameters, rate {rates}"
        )
    for name, pieces in value["changing"].items():
        for piece in pieces:
            first, last = piece["updates"]
            how = f"{piece['shape']} {piece['from']:.4g}"
            how += "" if piece["shape"] == "constant" else f" to {piece['to']:.4g}"
            yield f"  {name}: updates {first:,} to {last:,}, {how}"
    for stage in value["mixture"]:
        first, last = stage["updates"]
        weights = ", ".join(f"{name} {weight:g}" for name, weight in stage["weights"].items())
        how = weights or f"temperature {stage['temperature']:g}"
        yield f"  mixture: updates {first:,} to {last:,}, {how}"


def _ends(values: list[float]) -> list[float]:
    return [values[0], values[-1]] if values else []


def _option(value: Any) -> str:
    """Return the value of an option in words."""
    if isinstance(value, list):
        pieces = any(isinstance(entry, dict) for entry in value)
        return "changes" if pieces else " ".join(f"{entry:g}" for entry in value)
    return f"{value:g}" if isinstance(value, float) else str(value).lower()
