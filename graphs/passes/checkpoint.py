"""Activation checkpointing: the backward pass computes activations again.

Only the inputs of a checkpointed module are stored, not its intermediate activations; this
costs one more forward pass of the module.  Dropout is the same in both passes.

Source: Chen et al. 2016, section 3, https://arxiv.org/abs/1604.06174
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...specs.findings import InputError
from ..ir.execution import PLAIN
from ..ir.graph import Graph
from .freeze import chosen
from .merge import merged_away


def checkpoint_activations(graph: Graph, selections: Iterable[str]) -> Graph:
    """Return a graph with activation checkpointing, during training, of the selected modules.

    Args:
        graph: a checked graph.
        selections: selections such as `encoder.*`; see `chosen`.

    Raises:
        InputError: a selection is invalid, matches nothing, or is merged with another node.
    """
    location = "/activation_checkpointing"
    paths = {path for text in selections for path in chosen(graph, text, location=location)}
    away = merged_away(graph)
    for path in sorted(paths & away.keys()):
        problem = f"'{path}' is computed in one kernel with '{away[path]}'"
        help_ = f"select '{away[path]}' or what contains it, or leave out the pass 'merge'"
        raise InputError(problem, location=location, help=help_)
    outermost = {p for p in paths if not any(p.startswith(f"{parent}.") for parent in paths)}
    model_names = {node.name for node, _ in graph.models()}
    inside: dict[str, set[str]] = {}
    selected = set()
    for path in outermost:
        name, _, below = path.partition(".")
        if below and name in model_names:
            inside.setdefault(name, set()).add(below)
        else:
            selected.add(path)
    models = dict(graph.execution.models)
    for name, paths_below in sorted(inside.items()):
        models[name] = replace(models.get(name, PLAIN), checkpointed=frozenset(paths_below))
    execution = replace(graph.execution, checkpointed=frozenset(selected), models=models)
    return replace(graph, execution=execution)


def checkpointed(graph: Graph) -> tuple[str, ...]:
    """Return the paths of the modules of a graph with activation checkpointing, in order."""
    inner = (
        f"{name}.{path}"
        for name, execution in graph.execution.models.items()
        for path in execution.checkpointed
    )
    return tuple(sorted((*graph.execution.checkpointed, *inner)))
