"""Decodability: whether a graph can be decoded along its step axis.

A node that reads moving values (`graphs/ir/moving.py`) must not read later positions, so each block
declares for each axis whether it is pointwise, causal or full.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..ir.dims import UNKNOWN
from ..ir.graph import BlockNode, Graph, Node, Part, RepeatNode, Scope, TemplatePart
from ..ir.moving import root_moving
from ..ir.traverse import model_of
from ..ir.value_type import ValueType, may_have


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A node that prevents decoding step by step, and the reason."""

    at: str
    problem: str
    help: str


def find_obstacles(graph: Graph) -> Iterator[Obstacle]:
    """Yield every node that reads later positions of the step axis, or drops the axis."""
    axis = graph.step_axis
    if axis is None:
        return
    starts = root_moving(graph)
    if not starts and not any(may_have(type_, axis) for type_ in graph.inputs.values()):
        yield Obstacle("/step/axis", "no input has that axis", f"give an input a type with {axis}")
        return
    yield from _in_scope(graph.root, starts, axis)[0]


def _in_scope(
    scope: Scope, starts: frozenset[str], axis: str
) -> tuple[list[Obstacle], frozenset[str]]:
    """Return the obstacles of a scope, and the values that move.

    The outputs of an obstacle count as fixed, so that the nodes that read them are not reported.
    """
    results = scope.results.setdefault(f"{__name__}.in_scope", {})
    if (starts, axis) not in results:
        moving, obstacles = set(starts), list[Obstacle]()
        known = {name for name, type_ in scope.inputs.items() if _is_known(type_)}
        for node in scope.nodes:
            known.update(f"{node.name}.{port}" for port, t in node.outputs.items() if _is_known(t))
            ports = frozenset(
                port
                for port, value in node.wires.items()
                if value in moving or (value not in known and _takes(node, port, axis))
            )
            if ports:
                inside, outputs = _in_node(node, ports, axis)
                obstacles += inside
                moving.update(f"{node.name}.{port}" for port in outputs)
        results[starts, axis] = obstacles, frozenset(moving)
    known_results: tuple[list[Obstacle], frozenset[str]] = results[starts, axis]
    return known_results


def _in_node(node: Node, ports: frozenset[str], axis: str) -> tuple[list[Obstacle], frozenset[str]]:
    """Return the obstacles of a node, and its outputs that move.

    Args:
        node: the node.
        ports: its ports that move; of a repeat, in the first copy.
        axis: the step axis.
    """
    outputs = frozenset(node.outputs)
    if isinstance(node, BlockNode):
        obstacles = list(_in_part(node.part, ports, axis, node.at))
        obstacles = obstacles or list(_without_axis(node.part, axis, node.at))
        return obstacles, frozenset() if obstacles else outputs
    carry = node.carry if isinstance(node, RepeatNode) else ()
    while True:
        insides = [(body, *_in_scope(body, ports, axis)) for _, body, _ in node.insides()]
        obstacles = [obstacle for _, inside, _ in insides for obstacle in inside]
        if obstacles:
            return obstacles, frozenset()
        moving = frozenset(
            port
            for body, _, values in insides
            for port, value in body.outputs.items()
            if value in values
        )
        entering = ports | moving.intersection(carry)  # the next copy reads them
        if entering == ports:
            moving |= ports.intersection(carry)
            return [], outputs if model_of(node) is not None else outputs & moving
        ports = entering


def _is_known(type_: ValueType) -> bool:
    """Return whether all axes of a type are known."""
    return UNKNOWN not in type_.axes and "..." not in type_.axes


def _takes(node: Node, port: str, axis: str) -> bool:
    """Return whether a port of a template has an axis, so that an unknown value there moves."""
    type_ = None if isinstance(node, BlockNode) else node.body.inputs.get(port)
    return type_ is not None and axis in type_.axes


def _in_part(part: Part, ports: frozenset[str], axis: str, at: str) -> Iterator[Obstacle]:
    key = part.block.key
    own = list[Obstacle]()
    for name, stands_for in part.axes.items():
        if stands_for == axis and part.signature.behavior.get(name) == "full":
            problem = f"{key} reads later positions of {axis}"
            known = type(part.params).model_fields
            fixes = {"direction": "'direction': \"forward\"", "causal": "'causal': true"}
            fixes["choose"] = "'choose': \"threshold\""
            fix = next((text for name, text in fixes.items() if name in known), "")
            given = f"give {key} the param {fix}, or " if fix else ""
            help_ = f"{given}wire it to values without {axis}"
            own.append(Obstacle(at, problem, help_))
    for port in sorted(ports):
        type_ = part.inputs.get(port)
        if type_ is not None and not may_have(type_, axis):
            problem = f"port '{port}' of {key} depends on {axis} but no longer has that axis"
            own.append(Obstacle(at, problem, f"keep {axis} until the output"))
    yield from own
    for slot, inner in () if own else part.fill.items():
        others = ports.difference(part.signature.slot(slot).entries)
        inside = frozenset(
            port for port in inner.inputs if port in others or axis in inner.inputs[port].axes
        )
        if isinstance(inner, TemplatePart):
            yield from _in_scope(inner.body, inside, axis)[0]
            continue
        yield from _in_part(inner, inside, axis, f"{at}/fill/{slot}")


def _without_axis(part: Part, axis: str, at: str) -> Iterator[Obstacle]:
    """Yield the outputs that do not have the step axis; losses and scores need not have it."""
    for port, type_ in part.outputs.items():
        if not may_have(type_, axis) and type_.kind not in ("loss", "score"):
            problem = f"output '{port}' of {part.block.key} depends on {axis} but lacks that axis"
            yield Obstacle(at, problem, f"keep {axis} until the output")
