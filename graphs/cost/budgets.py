"""Budgets: the sizes of a complete graph that a requirement may limit, such as `flops <= 2e9`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..ir.graph import BlockNode, Graph, Part, RepeatNode, Scope
from ..ir.state_tensor import FULL_BYTES
from ..ir.traverse import uses
from .decode_state import Keeper, total_state
from .flops import default_sizes, part_flops, sizes_in, times_in

Certain = Callable[[str], bool]
"""Whether the arguments of a use of a block, given by its JSON Pointer, depend on no mistake."""


@dataclass(frozen=True, slots=True)
class GraphSize:
    """A size of a graph."""

    count: int
    sizes: str = ""
    """The sizes of the axes for which it holds; empty if it does not depend on them."""
    exact: bool = True
    """Whether the graph is completely known; otherwise it may be larger."""


def measured_flops(graph: Graph, certain: Certain | None) -> GraphSize:
    """Return the FLOPs of a forward pass with the default sizes.

    Args:
        graph: a graph, which may be incomplete if `certain` is given.
        certain: tells which uses of blocks to count; None for a spec without mistakes.
    """
    lengths = default_sizes(graph)

    def of_node(node: BlockNode) -> int:
        if certain is None:
            return part_flops(node.part, lengths)
        return sum(_flops_of(part, lengths) for at, part in uses(node) if certain(at))

    return GraphSize(
        _total(graph.root, of_node, {}, lengths), _shown(lengths), exact=certain is None
    )


def measured_state(graph: Graph, certain: Certain | None) -> GraphSize:
    """Return the bytes that decoding keeps with the default sizes, in float32.

    Args:
        graph: a graph with a step axis.
        certain: as for `measured_flops`.
    """
    lengths = default_sizes(graph)

    def of_one(keeper: Keeper) -> int:
        if certain is None:
            return keeper.nbytes(lengths, FULL_BYTES)
        # Values do not count: they may be kept only because of a wire that is wrong.
        counts = isinstance(keeper.keeps, Part) and certain(keeper.at)
        return _state_of(keeper, lengths) if counts else 0

    shown = f"{_shown(lengths)}, bytes in float32"
    return GraphSize(total_state(graph, of_one), shown, exact=certain is None)


def _total(
    scope: Scope,
    of_node: Callable[[BlockNode], int],
    totals: dict[int, int],
    lengths: Mapping[str, int],
) -> int:
    """Return the sum over all runs of the block nodes in a scope; `totals` has those of scopes."""
    if id(scope) not in totals:
        totals[id(scope)] = 0
        for node in scope.nodes:
            if isinstance(node, BlockNode):
                totals[id(scope)] += of_node(node)
            repeats = node.repeat if isinstance(node, RepeatNode) and node.share else 1
            for below, body, count in node.insides():
                runs = repeats * count
                if isinstance(node, BlockNode):
                    runs *= times_in(node.part, below, lengths)
                totals[id(scope)] += runs * _total(body, of_node, totals, lengths)
    return totals[id(scope)]


def _flops_of(part: Part, lengths: Mapping[str, int]) -> int:
    """Return the FLOPs of a block without its slots; 0 if a mistake leaves an axis unknown."""
    try:
        return part.flops(sizes_in(part, lengths))
    except (KeyError, ValueError):
        return 0


def _state_of(keeper: Keeper, lengths: Mapping[str, int]) -> int:
    """Return the bytes of a state; 0 if a mistake leaves an axis unknown."""
    try:
        return keeper.nbytes(lengths, FULL_BYTES)
    except (KeyError, ValueError):
        return 0


def _shown(lengths: Mapping[str, int]) -> str:
    return " ".join(f"{axis}={length}" for axis, length in lengths.items())
