"""Pipeline: the passes over the graph that trains, in their order.

Each pass returns a graph with the same results and the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Literal, get_args

from ..ir.execution import Execution, KernelChoice
from ..ir.graph import Graph
from .checkpoint import checkpoint_activations, checkpointed
from .fuse import fuse, fusible
from .objective import trained_models
from .unpad import plan_unpad, unpad

PassName = Literal["unpad", "fuse", "checkpoint", "kernels"]
"""Name of a pass."""
NAMES: tuple[PassName, ...] = get_args(PassName)
"""All passes, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the passes."""

    unpad: bool = True
    """Whether models that can be unpadded are."""
    strict: bool = False
    """Whether a model that cannot be unpadded is an error."""
    pad: int = 0
    """The padding id at the ends of rows."""
    activation_checkpointing: tuple[str, ...] = ()
    """Selections of modules whose activations the backward pass computes again."""
    kernels: KernelChoice | None = None
    """The kernels that were chosen, for example by a measurement; None for the default ones."""
    without: Collection[PassName] = ()
    """Passes to leave out."""


@dataclass(frozen=True, slots=True)
class Step:
    """One pass of a pipeline."""

    name: PassName
    does: str
    """What it does, for any graph."""
    graph: Graph
    """The graph after it."""
    changed: tuple[str, ...]
    """What it changed in this graph; empty if nothing."""


def pipeline(graph: Graph, settings: Settings) -> list[Step]:
    """Run the passes over a graph.

    Args:
        graph: a checked graph: an objective, or a model.
        settings: settings of the passes.

    Returns:
        One step for each pass that is not left out.

    Raises:
        InputError: a selection is wrong, or `strict` is set and a model cannot be unpadded.
    """
    steps = []
    for name in NAMES:
        if name in settings.without:
            continue
        does, change, tell = _PASSES[name]
        graph = change(graph, settings)
        steps.append(Step(name, does, graph, tuple(tell(graph))))
    return steps


def after(graph: Graph, settings: Settings, last: PassName | None = None) -> Graph:
    """Return the graph after all passes, or after the pass `last`; arguments as of `pipeline`."""
    for step in pipeline(graph, settings):
        graph = step.graph
        if step.name == last:
            break
    return graph


def _unpad(graph: Graph, settings: Settings) -> Graph:
    models = trained_models(graph)
    if not settings.unpad:
        return graph
    if not models:
        return (
            unpad(graph, pad=settings.pad) if plan_unpad(graph).axes or settings.strict else graph
        )
    names = [n for n, model in models.items() if settings.strict or plan_unpad(model).axes]
    return unpad(graph, pad=settings.pad, models=names) if names else graph


def _unpadded(graph: Graph) -> list[str]:
    found = []
    for name, execution in _executions(graph).items():
        if (plan := execution.unpad) is not None:
            padded = [path for path, around in plan.blocks.items() if not around.inside]
            axes = f"{' and '.join(plan.axes)} of {name}"
            found.append(f"{axes}; padded for {', '.join(padded)}" if padded else axes)
            found += [f"{axis} of {name} stays padded: {why}" for axis, why in plan.padded.items()]
    return found


def _fused(graph: Graph) -> list[str]:
    fused = graph.execution.fused.items()
    return [f"{loss} computes {one.model}.{one.head}" for loss, one in fused]


def _checkpointed(graph: Graph) -> list[str]:
    paths = checkpointed(graph)
    return [f"{len(paths)} modules, from {paths[0]}"] if paths else []


def _kernels(graph: Graph, settings: Settings) -> Graph:
    return replace(graph, execution=replace(graph.execution, kernels=settings.kernels))


def _chosen(graph: Graph) -> list[str]:
    chosen = graph.execution.kernels
    if chosen is None:
        return []
    by_length = ", ".join(f"{core} to {limit}" for limit, core in chosen.attention.items())
    return [f"products by {chosen.product}, attention {by_length.replace('to *', 'beyond')}"]


def _executions(graph: Graph) -> dict[str, Execution]:
    """Return the executions of a graph and of the models inside it, by name."""
    return {graph.name: graph.execution, **graph.execution.models}


_PASSES: dict[
    PassName, tuple[str, Callable[[Graph, Settings], Graph], Callable[[Graph], list[str]]]
] = {
    "unpad": ("compute non-padding tokens only", _unpad, _unpadded),
    "fuse": (
        "let losses compute the last linear map of a model",
        lambda graph, _: fuse(graph) if fusible(graph) else graph,
        _fused,
    ),
    "checkpoint": (
        "compute activations again in the backward pass",
        lambda graph, settings: checkpoint_activations(graph, settings.activation_checkpointing),
        _checkpointed,
    ),
    "kernels": ("use the kernels that were chosen", _kernels, _chosen),
}
