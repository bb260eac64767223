"""Cost table: parameters, FLOPs, activations and path lengths of every block of a graph.

Sequential operations (`BlockType.sequential`) and path lengths between positions (`BlockType.hops`)
are two columns of Vaswani et al. 2017, table 1, for any graph.

The memory of decoding is in `decode_state.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from ..ir.graph import (
    BlockNode,
    Filling,
    Graph,
    Node,
    Part,
    RepeatNode,
    Scope,
    TemplatePart,
    last_result,
)
from ..ir.traverse import fillings, find_weight, placed, visits
from ..ir.value_type import SIZED, Axis, ValueType, evaluate
from .flops import check_sizes, part_flops, runs_of, sizes_in, times_in


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


@last_result
def part_sequential(part: Filling, sizes: Mapping[str, int]) -> int:
    """Return the sequential operations of a block plus the maximum over the blocks in its slots."""
    if isinstance(part, TemplatePart):
        starts = dict.fromkeys(part.body.inputs, 0)
        return max(_finish(part.body, starts, sizes).values(), default=0)
    steps = part.block.sequential(part.arguments, sizes_in(part, sizes))
    inside = (
        times_in(part, slot, sizes) * part_sequential(inner, sizes)
        for slot, inner in part.fill.items()
    )
    return steps + max(inside, default=0)


def _finish(scope: Scope, starts: Mapping[str, int], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return after how many operations each output of a scope is available.

    Args:
        scope: the root of a graph or the inside of a template.
        starts: the same for its inputs.
        sizes: axis of the graph to its length.
    """
    times = dict(starts)
    for node in scope.nodes:
        reads = {port: times[value] for port, value in node.wires.items() if value in times}
        finished = _finish_node(node, reads, sizes)
        times |= {f"{node.name}.{port}": at for port, at in finished.items()}
    return {port: times[value] for port, value in scope.outputs.items() if value in times}


def _finish_node(node: Node, reads: dict[str, int], sizes: Mapping[str, int]) -> dict[str, int]:
    if isinstance(node, BlockNode):
        done = max(reads.values(), default=0) + part_sequential(node.part, sizes)
        return dict.fromkeys(node.outputs, done)
    entered, latest = dict(reads), dict[str, int]()
    carry = node.carry if isinstance(node, RepeatNode) else ()
    for _, body in node.copies():
        finished = _finish(body, entered, sizes)
        entered |= {port: finished[port] for port in carry}
        latest = {port: max(at, latest.get(port, 0)) for port, at in finished.items()}
    return latest | {port: entered[port] for port in carry}


@last_result
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
    path_hops: dict[Axis, int] = {}
    for name, behavior in part.signature.behavior.items():
        axis = part.axes.get(name)
        if behavior != "pointwise" and axis is not None and not isinstance(axis, tuple):
            part_sizes = sizes_in(part, sizes)
            loops = any(slot.steps_over == name for slot in part.signature.slots)
            steps = (
                part_sequential(part, sizes)
                if loops
                else part.block.sequential(part.arguments, part_sizes)
            )
            path_hops |= {axis: hops * steps} if (hops := hops_of(part, sizes)) else {}
    inside: dict[Axis, int] = {}
    for inner in part.fill.values():
        if isinstance(inner, Part) and inner.block.fills:
            continue
        for axis, length in paths(inner, sizes).items():
            inside[axis] = min(length, inside.get(axis, length))
    return {axis: path_hops.get(axis, 0) + inside.get(axis, 0) for axis in {**path_hops, **inside}}


def hops_of(part: Part, sizes: Mapping[str, int]) -> int:
    """Return how often a block must be applied until all positions are connected; 0 for never.

    The parts that fill its slots may restrict what it reads, as a mask does: the most hops count,
    or the fewest where any part suffices.
    """
    parts = [
        filling
        for filling in part.fill.values()
        if isinstance(filling, Part) and filling.block.fills
    ]
    inside = [hops_of(filling, sizes) for filling in parts]
    if part.block.fewest_hops:
        return min(filter(None, inside), default=0)
    direct = part.block.hops(part.arguments, sizes_in(part, sizes))
    return 0 if 0 in (direct, *inside) else max([direct, *inside])


def shortest_paths(graph: Graph, sizes: Mapping[str, int]) -> dict[Axis, int]:
    """Return the path length along each axis, for the node with the shortest one."""
    shortest: dict[Axis, int] = {}
    for axis, length in _all_paths(graph, sizes):
        shortest[axis] = min(length, shortest.get(axis, length))
    return shortest


def _all_paths(graph: Graph, sizes: Mapping[str, int]) -> Iterator[tuple[Axis, int]]:
    for _, node, _, _ in placed(graph.root):
        yield from paths(node.part, sizes).items()


WHOLE_BYTES = 8
"""Bytes of one id, label, length or position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCost:
    """Costs of one block node: all copies of a repeat together, slots included."""

    path: str
    """Path such as `decoder.*.feed_forward`, as `walk` yields it."""
    use: str
    runs: int
    """How often it runs in one forward pass."""
    parameters: int
    """Number of parameters, without those tied to an earlier weight."""
    flops: int
    activation_bytes: int
    """Bytes of the outputs of the block and of the blocks in its slots."""
    sequential: int
    """Sequential operations of one run."""
    path_length: int
    """Longest path between two positions, in operations; 0 if it does not mix positions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTable:
    """Costs of a graph for some sizes of its axes."""

    name: str
    sizes: Mapping[str, int]
    parameters: int
    flops: int
    activation_bytes: int
    sequential: int
    """Operations in the longest chain through the graph."""
    path_length: Mapping[str, int]
    """Axis to the path length of the node with the shortest one."""
    nodes: tuple[NodeCost, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the table as plain data."""
        return asdict(self)


def cost_table(graph: Graph, sizes: Mapping[str, int], float_bytes: int = 4) -> CostTable:
    """Return the cost of every node of a graph.

    Args:
        graph: a checked graph.
        sizes: axis of the graph to its length.
        float_bytes: bytes of one activation.

    Raises:
        InputError: an axis has no size.
    """
    check_sizes(graph, sizes)
    tied = _tied(graph)
    nodes = tuple(
        NodeCost(
            path=visit.path,
            use=" ".join(inner.key for _, inner in fillings(part)),
            runs=runs,
            parameters=visit.sets * _parameters(part) - tied[visit.path],
            flops=runs * part_flops(part, sizes),
            activation_bytes=runs * _activation_bytes(part, sizes, float_bytes),
            sequential=part_sequential(part, sizes),
            path_length=max(paths(part, sizes).values(), default=0),
        )
        for visit in visits(graph.root)
        if visit.kind == "name" and isinstance(part := visit.part, Part)
        for runs in (runs_of(visit, sizes),)
    )
    return CostTable(
        name=graph.name,
        sizes=dict(sizes),
        parameters=graph.parameters(),
        flops=sum(node.flops for node in nodes),
        activation_bytes=sum(node.activation_bytes for node in nodes),
        sequential=sequential(graph, sizes),
        path_length={str(axis): length for axis, length in shortest_paths(graph, sizes).items()},
        nodes=nodes,
    )


def value_bytes(type_: ValueType, sizes: Mapping[str, int], float_bytes: int) -> int:
    """Return the size in bytes of a value of a type."""
    places = prod(evaluate(axis, sizes) for axis in type_.axes)
    if type_.kind in ("ids", "label", "len", "pos"):
        return places * WHOLE_BYTES
    if type_.kind == "mask":
        return places
    scores = evaluate(type_.size, sizes) if type_.kind in SIZED and type_.size else 1
    return places * scores * float_bytes


@last_result
def _parameters(part: Part) -> int:
    """Return the parameters of one set of weights, without templates in slots (they have rows)."""
    return sum(sum(map(prod, inner.own_weights().values())) for inner in _blocks(part))


@last_result
def _activation_bytes(part: Part, sizes: Mapping[str, int], float_bytes: int) -> int:
    inside = (
        times_in(part, slot, sizes) * _activation_bytes(inner, sizes, float_bytes)
        for slot, inner in part.fill.items()
        if isinstance(inner, Part)
    )
    types = part.outputs.values()
    return sum(inside) + sum(value_bytes(type_, sizes, float_bytes) for type_ in types)


def _blocks(part: Part) -> Iterator[Part]:
    """Yield a block and those in its slots."""
    return (inner for _, inner in fillings(part) if isinstance(inner, Part))


def _tied(graph: Graph) -> Counter[str]:
    """Return how many parameters of each node are counted at another node."""
    tied: Counter[str] = Counter()
    for group in graph.ties:
        for weight in group[1:]:
            shape = graph.root.shape_of(weight)
            tied[find_weight(graph.root, weight).folded] += prod(shape or (0,))
    return tied
