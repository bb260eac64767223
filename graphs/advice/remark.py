"""A remark about one place of a graph, and helpers to find such places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...specs.text.edits import Fix
from ..ir.graph import BlockNode, Graph, Part, Scope
from ..ir.traverse import scopes, uses
from ..ir.value_type import Axis, ValueType


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What is unusual, where, and what would be usual."""

    at: str
    """JSON Pointer into the merged spec."""
    problem: str
    """One lower-case clause without a full stop."""
    help: str
    """The usual way, as an instruction."""
    evidence: tuple[str, ...] = ()
    fix: Fix | None = None
    """Edits of the merged spec that carry out `help`, if a program can make them."""


def blocks(graph: Graph) -> Iterator[tuple[str, Part]]:
    """Yield every block of a graph with its JSON Pointer; those of a template once."""
    return ((at, part) for at, part, _, _ in placed_blocks(graph))


def placed_blocks(graph: Graph) -> Iterator[tuple[str, Part, BlockNode, Scope]]:
    """Yield every block of a graph as `blocks` does, with its node and the scope of the node."""
    for scope in scopes(graph.root, models=False):
        for node in scope.nodes:
            if isinstance(node, BlockNode):
                yield from ((at, part, node, scope) for at, part in uses(node))


def vocabularies(graph: Graph, axis: str | None) -> set[Axis]:
    """Return the sizes of the ids among the inputs along an axis."""
    types = (type_ for type_ in graph.inputs.values() if type_.kind == "ids" and axis in type_.axes)
    return {type_.size for type_ in types if type_.size is not None}


def scores_in(type_: ValueType) -> Axis | None:
    """Return the number of scores at each position of a value; None if it has no axis."""
    return type_.size if type_.size is not None else (type_.axes or (None,))[-1]


def behaviors(part: Part) -> Iterator[tuple[str, str]]:
    """Yield each axis along which a block reads other positions, and how: causal or full."""
    for name, behavior in part.signature.behavior.items():
        axis = part.axes.get(name)
        if isinstance(axis, str) and behavior != "pointwise":
            yield axis, behavior
