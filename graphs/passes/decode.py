"""Passes of decoding: shortlists, matrices in int8 or prepacked, and compiled steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..ir.execution import Prepacked
from ..ir.graph import Graph, RepeatNode, Scope, TemplateNode
from ..ir.traverse import moving_ports, moving_values, root_moving
from .output_projection import head_of


def shortlist(graph: Graph, output: str = "logits") -> Graph:
    """Return a graph whose steps compute only the logits that a batch may need.

    Args:
        graph: a checked graph of a model that decodes; one whose logits are not those of a linear
            map (`head_of`) stays as it is.
        output: the output with the logits.
    """
    head = head_of(graph, output) if graph.step_axis is not None else None
    if head is None:
        return graph
    return replace(graph, execution=replace(graph.execution, shortlisted=head))


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
        graph: a checked graph of a model that decodes; one that does not stays as it is.  So does
            one without a repeat and with a shortlist: its step would be compiled for each batch.
    """
    if graph.step_axis is None:
        return graph
    paths = frozenset(_layers(graph.root, root_moving(graph))) or frozenset([""])
    if "" in paths and graph.execution.shortlisted:
        return graph
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
