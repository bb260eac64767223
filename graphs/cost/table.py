"""Cost table: parameters, FLOPs, activations and path lengths of every block of a graph.

The memory of decoding is in `decode_state.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from ..ir.graph import Graph, Part, kept
from ..ir.traverse import fillings, find_weight, placed
from ..ir.value_type import SIZED, ValueType, evaluate
from .critical_path import part_sequential, paths, sequential, shortest_paths
from .flops import check_sizes, part_flops

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
            path=path,
            use=" ".join(inner.key for _, inner in fillings(part)),
            runs=runs,
            parameters=sets * _parameters(part) - tied[path],
            flops=runs * part_flops(part, sizes),
            activation_bytes=runs * _activation_bytes(part, sizes, float_bytes),
            sequential=part_sequential(part, sizes),
            path_length=max(paths(part, sizes).values(), default=0),
        )
        for path, node, runs, sets in placed(graph.root)
        for part in (node.part,)
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


@kept
def _parameters(part: Part) -> int:
    """Return the parameters of one set of weights, without templates in slots (they have rows)."""
    return sum(sum(map(prod, inner.own_weights().values())) for inner in _blocks(part))


@kept
def _activation_bytes(part: Part, sizes: Mapping[str, int], float_bytes: int) -> int:
    types = (type_ for inner in _blocks(part) for type_ in inner.outputs.values())
    return sum(value_bytes(type_, sizes, float_bytes) for type_ in types)


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
