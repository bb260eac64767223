"""Moving values: which values of a graph depend on its step axis.

Binding-time analysis: an input with the step axis is *moving*, and so is every value that depends
on it; all other values are *fixed* and computed once, before the first step.
"""

from __future__ import annotations

from .graph import BlockNode, Graph, Node, RepeatNode, Scope


def moving_values(scope: Scope, moving_inputs: frozenset[str]) -> frozenset[str]:
    """Return the values of a scope that depend on moving ones.

    Args:
        scope: the root or the inside of a template.
        moving_inputs: the inputs that move.

    Returns:
        Names of values: inputs, and outputs of nodes as `node.port`.
    """
    moving = set(moving_inputs)
    for node in scope.nodes:
        if any(value in moving for value in node.wires.values()):
            moving.update(f"{node.name}.{port}" for port in node.outputs)
    return frozenset(moving)


def moving_ports(node: Node, moving: frozenset[str]) -> frozenset[str]:
    """Return the ports of a node that read moving values.

    If any input of a repeat moves, its carried values move from the second copy on, so they
    count as moving from the first.
    """
    ports = {port for port, value in node.wires.items() if value in moving}
    carried = node.carry if isinstance(node, RepeatNode) else ()
    return frozenset(ports.union(carried)) if ports else frozenset()


def root_moving(graph: Graph) -> frozenset[str]:
    """Return the inputs of a graph that have its step axis."""
    return frozenset(n for n, t in graph.inputs.items() if graph.step_axis in t.axes)


def written_ids(graph: Graph) -> str | None:
    """Return the input of ids that decoding writes: the only one with the step axis, or None."""
    ids = [name for name in root_moving(graph) if graph.inputs[name].kind == "ids"]
    return ids[0] if graph.step_axis is not None and len(ids) == 1 else None


def fixed_outputs(scope: Scope, moving: frozenset[str], *, root: bool) -> list[str]:
    """Return the values that a template returns at every step although they do not move."""
    return [] if root else [v for v in scope.outputs.values() if v not in moving]


def saved_values(scope: Scope, moving: frozenset[str], *, root: bool) -> list[str]:
    """Return the fixed values that decoding keeps because a node reads them at every step.

    A node with `begin` keeps what it needs of its own fixed inputs.

    Args:
        scope: the root or the inside of a template.
        moving: the values that move.
        root: whether the scope is the complete graph.
    """
    saved = dict.fromkeys(fixed_outputs(scope, moving, root=root))
    for node in scope.nodes:
        ports = moving_ports(node, moving)
        for port, value in node.wires.items() if ports else ():
            if value not in moving and (port in ports or not node.steps):
                saved[value] = None
    return list(saved)


def state_owner(scope: Scope, node: Node) -> str:
    """Return the name of the node whose decoding state a node uses: its own, or an earlier one.

    Nodes of one block share a state if it would be the same: they have the same arguments, and the
    same values at the ports that determine it.
    """
    if not isinstance(node, BlockNode) or not node.part.block.keeps or node.part.fill:
        return node.name

    def kept(one: BlockNode) -> tuple[object, ...]:
        block = one.part.block
        return (block.key, one.part.arguments, *(one.wires.get(port) for port in block.keeps))

    same = (n for n in scope.nodes if isinstance(n, BlockNode) and kept(n) == kept(node))
    return next(same, node).name
