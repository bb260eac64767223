"""FLOPs: floating-point operations of a forward pass, from the formulas of the blocks.

Only matrix products count, as in `BlockType.flops`; training costs about three times as much.
The graph itself counts parameters.  `table.py` lists all costs of every node, and
`critical_path.py` counts sequential operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from ...specs.findings import InputError
from ..ir.graph import BlockNode, Filling, Graph, Part, TemplatePart, last_result
from ..ir.traverse import Visit, visits
from ..ir.value_type import evaluate

DEFAULT_LENGTH = 32
"""Default length of every time axis."""
TRAINING = 3
"""Cost of training in forward passes: the backward pass has two products for each one."""


def default_sizes(graph: Graph) -> dict[str, int]:
    """Return default sizes of a graph's axes: one sequence of `DEFAULT_LENGTH` positions."""
    return {
        axis: 1 if kind == "batch" else DEFAULT_LENGTH for axis, kind in graph.spec.axes.items()
    }


def check_sizes(graph: Graph, sizes: Mapping[str, int]) -> None:
    """Check that every axis of a graph has a size.

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
        sizes: axis of the graph to its length, such as {"B": 1, "S": 32, "T": 32}.

    Raises:
        InputError: an axis has no size.
    """
    return sum(flops_by_node(graph, sizes).values())


def flops_by_node(graph: Graph, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the floating-point operations of every block node, slots included.

    Args:
        graph: a checked graph.
        sizes: axis of the graph to its length.

    Returns:
        Path to operations; the copies of a repeat are summed, as in `decoder.*.feed_forward`.

    Raises:
        InputError: an axis has no size.
    """
    check_sizes(graph, sizes)
    return {
        visit.path: runs_of(visit, sizes) * part_flops(visit.node.part, sizes)
        for visit in visits(graph.root)
        if visit.kind == "name" and isinstance(visit.node, BlockNode)
    }


def runs_of(visit: Visit, sizes: Mapping[str, int]) -> int:
    """Return how often a node runs in one forward pass, with positions of a slot as runs."""
    runs, around = visit.runs, visit.parent
    while around is not None:
        if around.kind == "slot" and around.parent and isinstance(around.parent.part, Part):
            runs *= times_in(around.parent.part, around.pieces[-1][1], sizes)
        around = around.parent
    return runs


def times_in(part: Part, below: str, sizes: Mapping[str, int]) -> int:
    """Return how often what is at a path of slots of a block runs when the block does."""
    return prod(_size(axis, sizes) for axis in part.stepped_axes(below))


@last_result
def part_flops(part: Filling, sizes: Mapping[str, int]) -> int:
    """Return the operations of a block and those in its slots; templates count separately."""
    if isinstance(part, TemplatePart):
        return 0
    inside = sum(
        times_in(part, slot, sizes) * part_flops(inner, sizes) for slot, inner in part.fill.items()
    )
    return part.flops(sizes_in(part, sizes)) + inside


def sizes_in(part: Part, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the lengths of a block's axis names; `...` is the product of its axes."""
    return {name: _size(axis, sizes) for name, axis in part.axes.items()}


def _size(axis: Any, sizes: Mapping[str, int]) -> int:
    """Return the length of an axis, or the product of the lengths of several axes."""
    if isinstance(axis, tuple):
        return prod(_size(inner, sizes) for inner in axis)
    return evaluate(axis, sizes)
