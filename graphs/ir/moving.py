"""Moving values: which values of a graph depend on its step axis.

Binding-time analysis: an input with the step axis is *moving*, and so is every value that depends
on it; all other values are *fixed* and computed once, before the first step.  It is an analysis of
values: a template may return moving and fixed values, and a repeat may carry both.
"""

from __future__ import annotations

from collections.abc import Collection, Set

from .graph import BlockNode, Graph, Node, RepeatNode, Scope, TemplateNode
from .traverse import model_of


def moving_values(scope: Scope, moving_inputs: frozenset[str]) -> frozenset[str]:
    """Return the values of a scope that depend on moving ones.

    Args:
        scope: the root or the inside of a template.
        moving_inputs: the inputs that move.

    Returns:
        Names of values: inputs, and outputs of nodes as `node.port`.
    """
    results = scope.results.setdefault(f"{__name__}.moving_values", {})
    if moving_inputs not in results:
        moving = set(moving_inputs)
        for node in scope.nodes:
            moving.update(f"{node.name}.{port}" for port in _moving_outputs(node, moving))
        results[moving_inputs] = frozenset(moving)
    values: frozenset[str] = results[moving_inputs]
    return values


def moving_ports(node: Node, moving: Set[str]) -> frozenset[str]:
    """Return the ports of a node that read moving values.

    A carried value of a repeat moves from the first copy on if it moves in any copy.
    """
    ports = frozenset(port for port, value in node.wires.items() if value in moving)
    if not isinstance(node, RepeatNode) or not ports:
        return ports
    while carried := set(node.carry) - ports - _fixed_in_all(node, ports):
        ports |= carried
    return ports


def begun_ports(node: Node, moving: Set[str]) -> frozenset[str]:
    """Return the outputs of a node's template that are fixed although the node reads moving values.

    They are computed before the first step.  A node with a model in it has none: all its outputs
    move.
    """
    ports = moving_ports(node, moving)
    if not ports or isinstance(node, BlockNode) or model_of(node) is not None:
        return frozenset()
    carried = ports.intersection(node.carry) if isinstance(node, RepeatNode) else ()
    return _fixed_in_all(node, ports).difference(carried)


def _moving_outputs(node: Node, moving: Set[str]) -> frozenset[str]:
    """Return the outputs of a node that depend on moving values."""
    ports = moving_ports(node, moving)
    return frozenset(node.outputs) - begun_ports(node, moving) if ports else frozenset()


def _fixed_in_all(node: TemplateNode | RepeatNode, ports: frozenset[str]) -> frozenset[str]:
    """Return the outputs of a node's template that depend on none of some ports, in any copy."""
    fixed = set(node.body.outputs)
    for _, body, _ in node.insides():
        moving = moving_values(body, ports.intersection(body.inputs))
        fixed -= {port for port, value in body.outputs.items() if value in moving}
    return frozenset(fixed)


def root_moving(graph: Graph) -> frozenset[str]:
    """Return the inputs of a graph that have its step axis."""
    return frozenset(n for n, t in graph.inputs.items() if graph.step_axis in t.axes)


def written_ids(graph: Graph, answered: Collection[str] = ()) -> str | None:
    """Return the input of ids that decoding writes: the only one with the step axis, or None.

    Args:
        graph: graph of a model.
        answered: inputs that the answers fill, of which one is written if several have the axis.
    """
    if graph.step_axis is None:
        return None
    ids = [name for name in root_moving(graph) if graph.inputs[name].kind == "ids"]
    ids = ids if len(ids) == 1 else [name for name in ids if name in answered]
    return ids[0] if len(ids) == 1 else None


def late_values(scope: Scope, moving: frozenset[str]) -> frozenset[str]:
    """Return the fixed values that depend on nodes that read moving values."""
    late = set[str]()
    for node in scope.nodes:
        if moving_ports(node, moving):
            late.update(f"{node.name}.{port}" for port in begun_ports(node, moving))
        elif not late.isdisjoint(node.wires.values()):
            late.update(f"{node.name}.{port}" for port in node.outputs)
    return frozenset(late)


def fixed_outputs(
    scope: Scope, moving: frozenset[str], begun: Set[str] = frozenset(), *, root: bool
) -> list[str]:
    """Return the values that a template returns at every step although they do not move.

    Args:
        scope: the root or the inside of a template.
        moving: the values that move.
        begun: the outputs that its `begin` returns instead.
        root: whether the scope is the complete graph, which returns none of them.
    """
    outputs = {} if root else scope.outputs
    return [value for port, value in outputs.items() if value not in moving and port not in begun]


def saved_values(
    scope: Scope, moving: frozenset[str], begun: Set[str] = frozenset(), *, root: bool
) -> list[str]:
    """Return the fixed values that decoding keeps because a node reads them at every step.

    A node with `begin` keeps what it needs of its own fixed inputs.  Arguments as in
    `fixed_outputs`.
    """
    saved = dict.fromkeys(fixed_outputs(scope, moving, begun, root=root))
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
