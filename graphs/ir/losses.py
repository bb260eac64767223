"""Losses: which blocks count the items that they sum over, and what they read to count them.

The loss of a template is counted by the block inside it, and a formula of a loss by the block of
that loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .graph import BlockNode, Node, Part, RepeatNode, Scope, last_result
from .traverse import fillings, holds_model, owned_parts


def weighing_ports(part: Part) -> tuple[str, ...]:
    """Return the wired ports from which a loss counts its items; none if it is no loss."""
    if next(iter(part.outputs.values())).kind != "loss":
        return ()
    return tuple(port for port in part.block.weighs if port in part.inputs)


class ItemCounter(NamedTuple):
    """What counts the items of a loss of a scope."""

    node: Node
    """The block of the loss, or the template or repeat that contains it."""
    output: str
    """Its output."""


def last_body(node: Node) -> Scope | None:
    """Return the inside of a template, or of the last copy of a repeat; None for a block."""
    if isinstance(node, BlockNode):
        return None
    return (
        node.instead.get(node.repeat - 1, node.body) if isinstance(node, RepeatNode) else node.body
    )


@last_result
def counters(scope: Scope) -> dict[str, ItemCounter]:
    """Return what counts the items of each output of a scope that is a loss whose block counts."""
    values = {
        port: _counted(scope, value)
        for port, value in scope.outputs.items()
        if scope.type_of(value).kind == "loss"
    }
    return {port: value for port, value in values.items() if isinstance(value, ItemCounter)}


def _counted(scope: Scope, value: str) -> ItemCounter | str | None:
    """Return what counts a loss; the input of the scope that it is a formula of; or None."""
    nodes = {node.name: node for node in scope.nodes}
    while value not in scope.inputs:
        name, _, port = value.partition(".")
        if name not in nodes:
            return None  # of a wire whose form is wrong
        node = nodes[name]
        if isinstance(node, BlockNode):
            wires = [v for _, v in sorted(node.wires.items()) if v]
            read = [v for v in wires if scope.type_of(v).kind == "loss"]
            if not read:
                return ItemCounter(node, port) if weighing_ports(node.part) else None
            value = read[0]  # a formula of a loss sums the same items
            continue
        body = last_body(node)
        inner = _counted(body, body.outputs[port]) if body is not None else None
        if not isinstance(inner, str):
            return ItemCounter(node, port) if inner is not None else None
        value = node.wires[inner]
    return value


def counting_ports(counter: ItemCounter) -> tuple[str, ...]:
    """Return the ports of a node that it must read to count the items of a loss."""
    node = counter.node
    if isinstance(node, BlockNode):
        return weighing_ports(node.part)
    body = last_body(node)
    if body is None:
        return ()
    if holds_model(node):
        return tuple(node.wires)
    return tuple(port for port in body.inputs if port in needed(body))


@last_result
def needed(scope: Scope) -> frozenset[str]:
    """Return the nodes and inputs of a scope on which the numbers of items of its losses depend."""
    nodes = {node.name: node for node in scope.nodes}
    waiting = [
        counter.node.wires[port]
        for counter in counters(scope).values()
        for port in counting_ports(counter)
    ]
    names: set[str] = set()
    while waiting:
        value = waiting.pop()
        name = value.partition(".")[0]
        if name not in names:
            names.add(name)
            waiting += nodes[name].wires.values() if value not in scope.inputs else ()
    return frozenset(names)


def origin(scope: Scope, value: str) -> tuple[str, ...]:
    """Return the nodes that compute a value, from that of the scope to the block inside it."""
    name, _, port = value.partition(".")
    body = next((last_body(node) for node in scope.nodes if node.name == name), None)
    return (name, *origin(body, body.outputs[port])) if body is not None else (name,)


def uncountable(scope: Scope, *, inside: bool = False) -> Iterator[tuple[str, str]]:
    """Yield what stands against counting the losses of templates before they run.

    Args:
        scope: the root of an objective, or a scope below it.
        inside: whether it is below the root.

    Yields:
        The JSON Pointer of a node, and what it does.
    """
    for node in scope.nodes if inside else ():
        if node.name in needed(scope) and _draws(node):
            yield node.at, f"node '{node.name}' draws other random numbers then"
    for counter in counters(scope).values():
        node, ports = counter.node, counting_ports(counter)
        body = last_body(node)
        if body is None or holds_model(node):
            continue
        if isinstance(node, RepeatNode) and (carried := [p for p in ports if p in node.carry]):
            names = " and ".join(f"'{port}'" for port in carried)
            yield node.at, f"the copies of '{node.name}' change {names} until then"
        yield from uncountable(body, inside=True)


def _draws(node: Node) -> bool:
    """Return whether a node draws random numbers in training."""
    parts = [part for _, body, _ in node.insides() for _, _, part in owned_parts(body)]
    if isinstance(node, BlockNode):
        parts += [part for _, part in fillings(node.part) if isinstance(part, Part)]
    return any(
        part.block.draws or any(part.arguments.get(name) for name in part.block.dropout)
        for part in parts
    )
