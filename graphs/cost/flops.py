"""Cost: how much work one forward pass of a graph is, from what its blocks say.

Floating-point operations of the matrix products, as `BlockType.flops` counts them;
training costs about three times as much.  Parameters are counted by the graph itself.
Not here: all costs of every node in one list (`cost_table.py`), steps that follow one
another (`chain.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from ...specs.findings import InputError
from ..ir.dims import evaluate
from ..ir.graph import Filling, Graph, Part, TemplatePart
from ..ir.traverse import placed

DEFAULT_LENGTH = 32
"""Positions of every time axis, where nobody says how many."""


def default_sizes(graph: Graph) -> dict[str, int]:
    """Return sizes of a graph's axes: one sequence, of `DEFAULT_LENGTH` positions."""
    return {
        axis: 1 if kind == "batch" else DEFAULT_LENGTH for axis, kind in graph.spec.axes.items()
    }


def check_sizes(graph: Graph, sizes: Mapping[str, int]) -> None:
    """Refuse sizes that leave out an axis.

    Raises:
        InputError: an axis has no size.
    """
    missing = [axis for axis in graph.spec.axes if axis not in sizes]
    if missing:
        raise InputError(
            f"axis '{missing[0]}' of {graph.name} has no size",
            help=f"give a size for each of {', '.join(graph.spec.axes)}",
        )


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
    check_sizes(graph, sizes)
    return {path: runs * part_flops(node.part, sizes) for path, node, runs, _ in placed(graph.root)}


def part_flops(part: Filling, sizes: Mapping[str, int]) -> int:
    """Return the operations of one block and of those in its slots; templates are counted apart."""
    if isinstance(part, TemplatePart):
        return 0
    inside = sum(part_flops(inner, sizes) for inner in part.fill.values())
    return part.block.flops(part.arguments, sizes_in(part, sizes)) + inside


def sizes_in(part: Part, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return how long the axes of a block's signature are, `...` being a product."""
    return {name: _size(axis, sizes) for name, axis in part.axes.items()}


def _size(axis: Any, sizes: Mapping[str, int]) -> int:
    """Return how long an axis is, or how many places several axes have together."""
    if isinstance(axis, tuple):
        return prod(_size(inner, sizes) for inner in axis)
    return evaluate(axis, sizes)
