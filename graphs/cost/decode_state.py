"""Decoding state: what decoding keeps from step to step, in bytes, from the formulas of the blocks.

It consists of the state of every block with `begin` and `step`, such as keys and values, and of the
values that do not change from step to step but are read at every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from ..ir.graph import BlockNode, Graph, Part, RepeatNode, Scope, TemplatePart
from ..ir.state_tensor import FULL_BYTES
from ..ir.traverse import (
    begun_ports,
    moving_ports,
    moving_values,
    root_moving,
    saved_values,
    state_owner,
)
from ..ir.value_type import ValueType
from .flops import check_sizes, sizes_in
from .table import value_bytes


@dataclass(frozen=True, slots=True)
class Keeper:
    """A block with decoding state, or a value that decoding keeps."""

    path: str
    """The node, such as `decoder.*.self_attention`, or the value, such as `encoder.x`."""
    at: str
    """JSON Pointer of the use of the block; empty for a value."""
    copies: int
    """How many of it decoding keeps: one for each run of the template that contains it."""
    keeps: Part | ValueType
    """The block, or the type of the value; also of one that a block which is written out stores."""
    key: str = ""
    """The key of the block; empty for a value of its own."""

    def nbytes(self, sizes: Mapping[str, int], float_bytes: int) -> int:
        """Return the bytes of one copy; 0 for a block without a formula."""
        if isinstance(self.keeps, ValueType):
            return value_bytes(self.keeps, sizes, float_bytes)
        part, formula = self.keeps, self.keeps.block.state
        if formula is None:
            return 0
        tensors = formula(part.arguments, sizes_in(part, sizes), frozenset(part.inputs))
        return sum(tensor.nbytes(float_bytes) for tensor in tensors.values())


def state_by_node(
    graph: Graph, sizes: Mapping[str, int], float_bytes: int = FULL_BYTES
) -> dict[str, int]:
    """Return the bytes of the decoding state by node.

    Args:
        graph: a checked graph.
        sizes: axis of the graph to its length; that of the step axis is the number of decoded
            positions, that of the batch axis the number of sentences, one hypothesis each.
        float_bytes: bytes of a number in the precision of decoding.

    Returns:
        Path to bytes, for nodes with state and for values that decoding keeps; the copies of a
        repeat are summed.  Empty for a graph without a step axis; see `blocks_without_formula`.

    Raises:
        InputError: an axis has no size.
    """
    check_sizes(graph, sizes)
    totals: dict[str, int] = {}
    for keeper in keepers(graph):
        count = keeper.copies * keeper.nbytes(sizes, float_bytes)
        totals[keeper.path] = totals.get(keeper.path, 0) + count
    return totals


def total_state(graph: Graph, count: Callable[[Keeper], int]) -> int:
    """Return the sum of a count over everything that decoding keeps.

    The count of a template is reused for all its uses, of which there may be many.

    Args:
        graph: a graph.
        count: bytes of one copy of what a block keeps, or of a value.
    """
    totals: dict[tuple[int, frozenset[str], frozenset[str]], int] = {}

    def total(inside: _Inside) -> int:
        key = (id(inside.body), inside.moving, inside.begun)
        if key not in totals:
            totals[key] = sum(
                inner.copies * (count(inner) if isinstance(inner, Keeper) else total(inner))
                for inner in _contents(inside)
            )
        return totals[key]

    return sum(map(total, _root(graph)))


def blocks_without_formula(graph: Graph) -> list[str]:
    """Return the keys of the blocks that keep a state of unknown size, which counts as 0."""
    keys: dict[str, None] = {}

    def note(keeper: Keeper) -> int:
        if isinstance(keeper.keeps, Part) and keeper.keeps.block.state is None:
            keys[keeper.keeps.key] = None
        return 0

    total_state(graph, note)
    return list(keys)


def keepers(graph: Graph) -> Iterator[Keeper]:
    """Yield everything that decoding keeps from step to step; templates are visited once."""
    waiting = _root(graph)
    while waiting:
        inside = waiting.pop()
        for inner in _contents(inside):
            resolved = replace(
                inner, path=inside.path + inner.path, copies=inside.copies * inner.copies
            )
            if isinstance(resolved, Keeper):
                yield resolved
            else:
                waiting.append(resolved)


@dataclass(frozen=True, slots=True)
class _Inside:
    """A scope, in whose path and copies those of the scope around it may be included."""

    path: str
    """Path of what is inside, without the name of the node there: `decoder.*.`."""
    copies: int
    body: Scope
    moving: frozenset[str]
    """Its inputs that move."""
    begun: frozenset[str] = frozenset()
    """Its outputs that are computed before the first step, so that it need not keep them."""
    root: bool = False


def _root(graph: Graph) -> list[_Inside]:
    """Return the complete graph; nothing if it has no step axis."""
    if graph.step_axis is None:
        return []
    return [_Inside("", 1, graph.root, root_moving(graph), root=True)]


def _contents(inside: _Inside) -> Iterator[Keeper | _Inside]:
    """Yield what the nodes of a scope keep, the scopes in them, and the values that it keeps."""
    scope = inside.body
    moving = moving_values(scope, inside.moving)
    for node in scope.nodes:
        ports = moving_ports(node, moving)
        if not ports or not node.steps or state_owner(scope, node) != node.name:
            continue
        if isinstance(node, BlockNode):
            yield from _in_part(node.part, ports, node.name, node.at)
            continue
        # Copies that share their weights have a state each.
        repeats = node.repeat if isinstance(node, RepeatNode) and node.share else 1
        begun = begun_ports(node, moving)
        for below, body, count in node.insides():
            yield _Inside(f"{node.name}.{below}", count * repeats, body, ports, begun)
    weights = {n.name for n in scope.nodes if isinstance(n, BlockNode) and not n.wires}
    for value in saved_values(scope, moving, inside.begun, root=inside.root):
        if value.partition(".")[0] in weights:
            continue  # the model has it anyway
        yield Keeper(value, "", 1, scope.type_of(value))


def _in_part(part: Part, ports: frozenset[str], path: str, at: str) -> Iterator[Keeper | _Inside]:
    """Yield what a block keeps, and what the blocks in its slots keep.

    A block keeps the fixed inputs of a slot whose block has no `begin`.
    """
    if part.block.steps:
        yield Keeper(path, at, 1, part, part.key)
    for port in part.stores:
        yield Keeper(path, at, 1, part.inputs[port], part.key)
    for slot, inner in part.fill.items():
        passed, below = ports.union(part.signature.slot(slot).entries), f"{at}/fill/{slot}"
        stepped = part.signature.slot(slot).steps_over
        if isinstance(inner, TemplatePart) and not stepped:
            yield _Inside(f"{path}/{slot}.", 1, inner.body, passed & frozenset(inner.body.inputs))
        elif isinstance(inner, Part) and inner.steps and not stepped:
            yield from _in_part(inner, passed, path, below)
        else:
            for port in part.slot_ports(slot):
                if port not in passed:
                    yield Keeper(path, below, 1, inner.inputs[port])
