"""Cost table: what every placed block costs, in one list.

Not here: the memory of decoding, which needs the modules (`runtime/analysis/memory_cost.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from ..ir.dims import evaluate
from ..ir.graph import Graph, Part
from ..ir.traverse import fillings, find_weight, placed
from ..ir.value_type import SIZED, ValueType
from .critical_path import part_sequential, paths, sequential, shortest_paths
from .flops import check_sizes, part_flops

WHOLE_BYTES = 8
"""Bytes of one id, label, length or position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCost:
    """What one placed block costs, copies of a repeat together, slots included."""

    path: str
    """Such as `decoder.*.feed_forward`, as `walk` gives it."""
    use: str
    runs: int
    """How often it runs in one forward pass."""
    parameters: int
    """Those that are tied to an earlier weight are not counted again."""
    flops: int
    activation_bytes: int
    """Bytes of what the block and those in its slots give."""
    sequential: int
    """Operations in a row of one run."""
    path_length: int
    """Longest way between two positions in operations; 0 where none are mixed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTable:
    """What a graph costs at some sizes."""

    name: str
    sizes: Mapping[str, int]
    parameters: int
    flops: int
    activation_bytes: int
    sequential: int
    """Operations in the longest chain through the graph."""
    path_length: Mapping[str, int]
    """Axis to the path length of the node that mixes its positions best."""
    nodes: tuple[NodeCost, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def cost_table(graph: Graph, sizes: Mapping[str, int], float_bytes: int = 4) -> CostTable:
    """Return what every node of a graph costs.

    Args:
        graph: a checked graph.
        sizes: axis of the graph to how long it is.
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
    """Return the bytes of a value of a type."""
    places = prod(evaluate(axis, sizes) for axis in type_.axes)
    if type_.kind in ("ids", "label", "len", "pos"):
        return places * WHOLE_BYTES
    if type_.kind == "mask":
        return places
    scores = evaluate(type_.size, sizes) if type_.kind in SIZED and type_.size else 1
    return places * scores * float_bytes


def _parameters(part: Part) -> int:
    """Return the parameters of one set of weights; templates in slots have rows of their own."""
    return sum(
        sum(map(prod, inner.block.weights(inner.arguments).values())) for inner in _blocks(part)
    )


def _activation_bytes(part: Part, sizes: Mapping[str, int], float_bytes: int) -> int:
    types = (type_ for inner in _blocks(part) for type_ in inner.outputs.values())
    return sum(value_bytes(type_, sizes, float_bytes) for type_ in types)


def _blocks(part: Part) -> Iterator[Part]:
    """Yield a block and those in its slots."""
    return (inner for _, inner in fillings(part) if isinstance(inner, Part))


def _tied(graph: Graph) -> Counter[str]:
    """Return how many parameters of each node count elsewhere."""
    tied: Counter[str] = Counter()
    for group in graph.ties:
        for weight in group[1:]:
            shape = graph.root.shape_of(weight)
            tied[find_weight(graph.root, weight).folded] += prod(shape or (0,))
    return tied
