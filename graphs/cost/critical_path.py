"""Critical path: sequential operations of a forward pass, and path lengths between positions.

These are two columns of Vaswani et al. 2017, table 1, for any graph: sequential operations, from
`BlockType.sequential`, and path length, from `BlockType.hops`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..ir.graph import BlockNode, Filling, Graph, Node, Part, RepeatNode, Scope, TemplatePart, kept
from ..ir.traverse import placed
from ..ir.value_type import Axis
from .flops import check_sizes, sizes_in


def sequential(graph: Graph, sizes: Mapping[str, int]) -> int:
    """Return the length of the longest chain of operations, each of which needs the previous one.

    Args:
        graph: a checked graph; each pointwise block counts as one operation.
        sizes: axis of the graph to its length.

    Raises:
        InputError: an axis has no size.
    """
    check_sizes(graph, sizes)
    return max(_finish(graph.root, dict.fromkeys(graph.root.inputs, 0), sizes).values(), default=0)


@kept
def part_sequential(part: Filling, sizes: Mapping[str, int]) -> int:
    """Return the sequential operations of a block plus the maximum over the blocks in its slots."""
    if isinstance(part, TemplatePart):
        starts = dict.fromkeys(part.body.inputs, 0)
        return max(_finish(part.body, starts, sizes).values(), default=0)
    own = part.block.sequential(part.arguments, sizes_in(part, sizes))
    return own + max((part_sequential(inner, sizes) for inner in part.fill.values()), default=0)


def _finish(scope: Scope, starts: Mapping[str, int], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return after how many operations each output of a scope is available.

    Args:
        scope: the root of a graph or the inside of a template.
        starts: the same for its inputs.
        sizes: axis of the graph to its length.
    """
    known = dict(starts)
    for node in scope.nodes:
        reads = {port: known[value] for port, value in node.wires.items() if value in known}
        given = _finish_node(node, reads, sizes)
        known |= {f"{node.name}.{port}": at for port, at in given.items()}
    return {port: known[value] for port, value in scope.outputs.items() if value in known}


def _finish_node(node: Node, reads: dict[str, int], sizes: Mapping[str, int]) -> dict[str, int]:
    if isinstance(node, BlockNode):
        done = max(reads.values(), default=0) + part_sequential(node.part, sizes)
        return dict.fromkeys(node.outputs, done)
    entered, latest = dict(reads), dict[str, int]()
    carry = node.carry if isinstance(node, RepeatNode) else ()
    for _, body in node.copies():
        left = _finish(body, entered, sizes)
        entered |= {port: left[port] for port in carry}
        latest = {port: max(at, latest.get(port, 0)) for port, at in left.items()}
    return latest | {port: entered[port] for port in carry}


@kept
def paths(part: Filling, sizes: Mapping[str, int]) -> Mapping[Axis, int]:
    """Return the maximum path length between two positions, by axis.

    The path length is the number of operations on the shortest path between two positions,
    through as many applications of the block as necessary: 1 for attention, n for a
    recurrence, about n / r for a window.

    Args:
        part: one block; the shortest path length of the blocks in its slots is added.
        sizes: axis of the graph to its length.

    Returns:
        Axis to path length, only for axes along which every position can be reached.
    """
    if isinstance(part, TemplatePart):
        return {}
    found: dict[Axis, int] = {}
    for name, behavior in part.signature.behavior.items():
        axis = part.axes.get(name)
        if behavior != "pointwise" and axis is not None and not isinstance(axis, tuple):
            here = sizes_in(part, sizes)
            each = part.block.sequential(part.arguments, here)
            found |= {axis: hops * each} if (hops := hops_of(part, sizes)) else {}
    inside: dict[Axis, int] = {}
    for inner in part.fill.values():
        if isinstance(inner, Part) and inner.block.fills:
            continue
        for axis, length in paths(inner, sizes).items():
            inside[axis] = min(length, inside.get(axis, length))
    return {axis: found.get(axis, 0) + inside.get(axis, 0) for axis in {**found, **inside}}


def hops_of(part: Part, sizes: Mapping[str, int]) -> int:
    """Return how often a block must be applied until all positions are connected; 0 for never.

    The parts that fill its slots may restrict what it reads, as a mask does: the most hops count,
    or the fewest where any part suffices.
    """
    parts = [one for one in part.fill.values() if isinstance(one, Part) and one.block.fills]
    inside = [hops_of(one, sizes) for one in parts]
    if part.block.fewest_hops:
        return min(filter(None, inside), default=0)
    own = part.block.hops(part.arguments, sizes_in(part, sizes))
    return 0 if 0 in (own, *inside) else max([own, *inside])


def shortest_paths(graph: Graph, sizes: Mapping[str, int]) -> dict[Axis, int]:
    """Return the path length along each axis, for the node with the shortest one."""
    shortest: dict[Axis, int] = {}
    for axis, length in _all_paths(graph, sizes):
        shortest[axis] = min(length, shortest.get(axis, length))
    return shortest


def _all_paths(graph: Graph, sizes: Mapping[str, int]) -> Iterator[tuple[Axis, int]]:
    for _, node, _, _ in placed(graph.root):
        yield from paths(node.part, sizes).items()
