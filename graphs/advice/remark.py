"""A remark about one place of a graph, and helpers to find such places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...specs.findings import pointer
from ..ir.graph import Graph, Part
from ..ir.traverse import Visit, visits


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


def blocks(graph: Graph) -> Iterator[tuple[str, Part]]:
    """Yield every block of a graph with its JSON Pointer; the copies of a template once."""
    for visit in visits(graph.root):
        if isinstance(visit.part, Part):
            yield place_of(visit), visit.part


def place_of(visit: Visit) -> str:
    """Return the JSON Pointer of the use of a block: that of its node, then its slots."""
    slots: list[str] = []
    for kind, word in reversed(visit.pieces):
        if kind != "slot":
            break
        slots += [word, "fill"]
    return visit.node.at + pointer(*reversed(slots))


def time_axes(graph: Graph) -> list[str]:
    """Return the axes of a graph along which positions follow each other."""
    return [name for name, kind in graph.spec.axes.items() if kind == "time"]


def behaviors(part: Part) -> Iterator[tuple[str, str]]:
    """Yield each axis along which a block reads other positions, and how: causal or full."""
    for name, behavior in part.signature.behavior.items():
        axis = part.axes.get(name)
        if isinstance(axis, str) and behavior != "pointwise":
            yield axis, behavior
