"""Passes of decoding: matrices in int8 or prepacked, and layers whose steps are compiled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..ir.execution import Prepacked
from ..ir.graph import Graph, RepeatNode, Scope, TemplateNode
from ..ir.moving import moving_ports, moving_values, root_moving


def prepack(graph: Graph, dtype: Prepacked | None) -> Graph:
    """Return a graph whose linear maps have prepacked matrices; None packs none.

    Args:
        graph: a checked graph of a model that decodes.
        dtype: dtype of the products.
    """
    return replace(graph, execution=replace(graph.execution, prepacked=dtype))


def quantize(graph: Graph, dtype: Prepacked | None) -> Graph:
    """Return a graph whose large linear maps multiply in int8; with None, none does.

    Args:
        graph: a checked graph of a model that decodes.
        dtype: dtype of the outputs of these maps.
    """
    return replace(graph, execution=replace(graph.execution, quantized=dtype))


def compile_steps(graph: Graph) -> Graph:
    """Return a graph whose repeated layers have compiled steps, or itself if nothing is repeated.

    Args:
        graph: a checked graph of a model that decodes; one that does not stays as it is.
    """
    if graph.step_axis is None:
        return graph
    paths = frozenset(_layers(graph.root, root_moving(graph))) or frozenset([""])
    return replace(graph, execution=replace(graph.execution, compiled=paths))


def _layers(scope: Scope, moving_in: frozenset[str], above: str = "") -> Iterator[str]:
    """Yield the paths of the outermost copies of repeats that run at every step."""
    moving = moving_values(scope, moving_in)
    for node in scope.nodes:
        ports = moving_ports(node, moving)
        if node.shares or not ports:
            continue
        if isinstance(node, RepeatNode):
            yield from (f"{above}{node.name}.{copy}".rstrip(".") for copy, _ in node.owners())
        elif isinstance(node, TemplateNode):
            yield from _layers(node.body, ports, f"{above}{node.name}.")
