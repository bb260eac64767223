"""Cost: how much work one forward pass of a graph is, from what its blocks say.

Floating-point operations of the matrix products, as `BlockType.flops` counts them;
training costs about three times as much.  Parameters are counted by the graph itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from ..specs.findings import InputError
from .axes import evaluate
from .graph import Graph, Part, Scope, joined

DEFAULT_LENGTH = 32
"""Positions of every time axis, where nobody says how many."""


def default_sizes(graph: Graph) -> dict[str, int]:
    """Return sizes of a graph's axes: one sequence, of `DEFAULT_LENGTH` positions."""
    return {
        axis: 1 if kind == "batch" else DEFAULT_LENGTH for axis, kind in graph.spec.axes.items()
    }


def flops(graph: Graph, sizes: Mapping[str, int]) -> int:
    """Return the floating-point operations of one forward pass.

    Args:
        graph: a checked graph.
        sizes: axis of the graph to how long it is, such as {"B": 1, "S": 32, "T": 32}.

    Raises:
        InputError: an axis has no size.
    """
    return sum(flops_by_node(graph, sizes).values())


def flops_by_node(graph: Graph, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the floating-point operations of every placed block, slots included.

    Args:
        graph: a checked graph.
        sizes: axis of the graph to how long it is.

    Returns:
        Path to operations, copies of a repeat together under `decoder.*.feed_forward`,
        as `walk` gives paths.

    Raises:
        InputError: an axis has no size.
    """
    missing = [axis for axis in graph.spec.axes if axis not in sizes]
    if missing:
        raise InputError(
            f"axis '{missing[0]}' of {graph.name} has no size",
            help=f"give a size for each of {', '.join(graph.spec.axes)}",
        )
    return dict(_scope_flops(graph.root, sizes, "", 1))


def _scope_flops(
    scope: Scope, sizes: Mapping[str, int], prefix: str, times: int
) -> Iterator[tuple[str, int]]:
    """Yield path and operations of every block below a scope that runs so many times."""
    for node in scope.nodes:
        path = prefix + node.name
        if node.part is not None:
            yield path, times * _part_flops(node.part, sizes)
        for below, body, count in node.insides():
            runs = (node.repeat or 1) if node.share else count
            yield from _scope_flops(body, sizes, path + joined(below), times * runs)


def _part_flops(part: Part, sizes: Mapping[str, int]) -> int:
    """Return the operations of one block and of those in its slots."""
    here = {name: _size(axis, sizes) for name, axis in part.axes.items()}
    inside = sum(_part_flops(inner, sizes) for inner in part.fill.values())
    return part.block.flops(part.arguments, here) + inside


def _size(axis: Any, sizes: Mapping[str, int]) -> int:
    """Return how long an axis is, or how many places several axes have together."""
    if isinstance(axis, tuple):
        return prod(_size(inner, sizes) for inner in axis)
    return evaluate(axis, sizes)
