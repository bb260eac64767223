"""Decode: which values move along the step axis, and whether a graph can be stepped.

Binding-time analysis: an input with the step axis is *moving*, and so is all that
depends on it; the rest is *fixed*, computed once before the first step.  A moving
node must look at no later position, so each block says for each axis whether it is
pointwise, causal or full.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .graph import Graph, Node, Part, Scope
from .shapes import ValueType


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A node that keeps a graph from being decoded step by step."""

    at: str
    problem: str
    help: str


def moving_values(scope: Scope, moving_inputs: frozenset[str]) -> frozenset[str]:
    """Return the values of a scope that depend on moving ones.

    Args:
        scope: the root or the inside of a template.
        moving_inputs: which of its inputs move.

    Returns:
        Names of values: inputs, and `node.port` of nodes.
    """
    moving = set(moving_inputs)
    for node in scope.nodes:
        if any(value in moving for value in node.wires.values()):
            moving.update(f"{node.name}.{port}" for port in node.outputs)
    return frozenset(moving)


def moving_ports(node: Node, moving: frozenset[str]) -> frozenset[str]:
    """Return the ports of a node through which moving values enter.

    What a repeat carries moves from the second copy on if anything in it moves, so
    it counts as moving from the first.
    """
    ports = {port for port, value in node.wires.items() if value in moving}
    return frozenset(ports | set(node.carry)) if ports else frozenset()


def root_moving(graph: Graph) -> frozenset[str]:
    """Return the inputs of a graph that have its step axis."""
    return frozenset(n for n, t in graph.inputs.items() if graph.step_axis in t.axes)


def find_obstacles(graph: Graph) -> Iterator[Obstacle]:
    """Yield every node that looks ahead along the step axis, or turns it away."""
    axis = graph.step_axis
    if axis is None:
        return
    starts = root_moving(graph)
    if not starts:
        yield Obstacle("/step/axis", "no input has that axis", f"give an input a type with {axis}")
        return
    yield from _in_scope(graph.root, starts, axis)


def _in_scope(scope: Scope, starts: frozenset[str], axis: str) -> Iterator[Obstacle]:
    moving = moving_values(scope, starts)
    for node in scope.nodes:
        ports = moving_ports(node, moving)
        if not ports:
            continue
        if node.body is not None:
            yield from _in_scope(node.body, ports, axis)
        elif node.part is not None:
            yield from _in_part(node.part, ports, axis, node.at)


def _in_part(part: Part, ports: frozenset[str], axis: str, at: str) -> Iterator[Obstacle]:
    key = part.block.key
    for name, stands_for in part.axes.items():
        if stands_for == axis and part.signature.behavior.get(name) == "full":
            yield Obstacle(
                at,
                f"{key} looks at later positions of {axis}",
                f"give {key} the param 'causal': true, or wire it to values without {axis}",
            )
    for port in sorted(ports):
        type_ = part.inputs.get(port)
        if type_ is not None and not _has(type_, axis):
            yield Obstacle(
                at,
                f"port '{port}' of {key} depends on {axis} but no longer has that axis",
                f"keep {axis} until the output",
            )
    for slot, inner in part.fill.items():
        inside = frozenset(
            port for port in inner.inputs if port in ports or _has(inner.inputs[port], axis)
        )
        yield from _in_part(inner, inside, axis, f"{at}/fill/{slot}")


def _has(type_: ValueType, axis: str) -> bool:
    return axis in type_.axes
