"""Decoding methods: the source of `begin`, `step` and `read_prompt`, by binding-time analysis.

Nodes that do not depend on the moving inputs run once, in `begin`, and the others in `step`;
`read_prompt` omits the nodes of `step` that only serve the outputs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ...graphs.ir.graph import Graph, Node, RepeatNode, Scope
from ...graphs.ir.moving import fixed_outputs, moving_ports, saved_values, state_owner
from .execution import begin_lines
from .forward import by_name, call, given_ports, loop_lines, returned, run_lines, targets
from .losses import weighing_first

KEPT = "="
"""Prefix of the keys of fixed values in a state; all other keys are names of nodes."""


def kept_key(value: str, place: int | None) -> str:
    """Return the key of a fixed value in a state.

    Args:
        value: name of the value.
        place: index of its batch axis; None if it has no batch axis.
    """
    return f"{KEPT}{value}" if place is None else f"{KEPT}{value}@{place}"


def kept_value(key: str) -> tuple[str, int | None]:
    """Return the name and the batch axis of a value from its key: the inverse of `kept_key`."""
    value, _, place = key.removeprefix(KEPT).partition("@")
    return value, int(place) if place else None


def decoding_texts(
    graph: Graph,
    scope: Scope,
    names: Mapping[str, str],
    moving: frozenset[str],
    moving_in: frozenset[str],
    *,
    root: bool,
) -> list[str]:
    """Return the sources of `begin` and `step`, and of `read_prompt` of a root without losses.

    Args:
        graph: the graph.
        scope: its root or the inside of a template.
        names: value to local variable.
        moving: values that depend on moving inputs.
        moving_in: the moving inputs.
        root: whether the scope is the complete graph.
    """
    batches = [axis for axis, kind in graph.spec.axes.items() if kind == "batch"]
    losses = graph.segments is not None
    around = begin_lines(graph, moving_in, names) if root else ((), ())
    head = graph.execution.shortlisted if root else ""
    texts = [
        begin_text(
            scope, names, moving, moving_in, batches=batches, root=root, around=around, head=head
        ),
        step_text(
            scope, names, moving, moving_in, batches=batches, root=root, losses=losses, head=head
        ),
    ]
    if root and not losses:
        texts.append(read_text(scope, names, moving, batches))
    return texts


def begin_text(
    scope: Scope,
    names: Mapping[str, str],
    moving: frozenset[str],
    moving_in: frozenset[str],
    *,
    batches: Collection[str],
    root: bool,
    around: tuple[Iterable[str], Iterable[str]] = ((), ()),
    head: str = "",
) -> str:
    """Return the source of `begin`, which computes and stores the values that do not move.

    Args:
        scope: the root or the inside of a template.
        names: value to local variable.
        moving: values that depend on moving inputs.
        moving_in: the moving inputs.
        batches: the graph's batch axes, along which values are repeated for each beam.
        root: whether the scope is the complete graph.
        around: lines before and after the nodes that do not move.
        head: node of the linear map that computes only some outputs; empty if there is none.
    """
    fixed = [name for name in scope.inputs if name not in moving_in]
    needed = _fixed_needed(scope, moving, root=root)
    before, after = around
    lines = [f"    def begin(self, {', '.join(by_name('capacity', fixed))}):", *before]
    states = []
    for node in scope.nodes:
        ports = moving_ports(node, moving)
        if not ports:
            if any(f"{node.name}.{port}" in needed for port in node.outputs):
                lines += run_lines(node, names, " " * 8)
            continue
        if node.name == head:
            selected = f"select_outputs(self.{node.module}, capacity.candidates)"
            states.append(f'"{head}": {selected},')
        if not node.steps or state_owner(scope, node) != node.name:
            continue
        wires = {port: value for port, value in node.wires.items() if port not in ports}
        if not isinstance(node, RepeatNode):
            call = _begin_call(f"self.{node.module}", wires, names)
        elif node.share:
            begun = _begin_call(f"self.{node.module}", wires, names)
            call = f"[{begun} for _ in range({node.repeat})]"
        else:
            call = f"[{_begin_call('layer', wires, names)} for layer in self.{node.module}]"
        states.append(f'"{node.name}": {call},')
    for value in saved_values(scope, moving, root=root):
        kept, place = names[value], _rows_of(scope, value, batches)
        if place is not None:
            kept = f"{kept}.repeat_interleave(capacity.beams, {place})"
        states.append(f'"{kept_key(value, place)}": {kept},')
    lines += [*after, "        return {"]
    lines += [f"            {text}" for text in states]
    lines.append("        }")
    return "\n".join(lines) + "\n"


def step_text(
    scope: Scope,
    names: Mapping[str, str],
    moving: frozenset[str],
    moving_in: frozenset[str],
    *,
    batches: Collection[str],
    root: bool,
    losses: bool = False,
    head: str = "",
) -> str:
    """Return the source of `step`, which computes the next positions; args as in `begin_text`.

    With `losses`, as in objectives, the root also returns losses and scores.
    """
    moves = [name for name in scope.inputs if name in moving_in]
    lines = [f"    def step({', '.join(by_name('self', [*moves, 'state', 'position']))}):"]
    here = _texts_in_step(scope, names, moving, batches, root=root)
    for node in weighing_first(scope) if root else scope.nodes:
        ports = moving_ports(node, moving)
        if ports:
            lines += _step_lines(scope, node, here, ports, selected=node.name == head)
    outputs = [
        port
        for port, value in scope.outputs.items()
        if value in moving and (losses or scope.type_of(value).kind != "loss")
    ]
    lines.append(returned(scope, here, outputs if root else given_ports(scope), root=root))
    return "\n".join(lines) + "\n"


def read_text(
    scope: Scope, names: Mapping[str, str], moving: frozenset[str], batches: Collection[str]
) -> str:
    """Return the source of `read_prompt` of the root, which reads a prompt and returns nothing.

    It computes only what changes the state; arguments as in `begin_text`.
    """
    moves = [name for name in scope.inputs if name in moving]
    here = _texts_in_step(scope, names, moving, batches, root=True)
    needed, lines = set[str](), list[str]()
    for node in reversed(scope.nodes):
        ports = moving_ports(node, moving)
        gives = any(f"{node.name}.{port}" in needed for port in node.outputs)
        if ports and (gives or node.steps):
            needed |= set(node.wires.values())
            lines[:0] = _step_lines(scope, node, here, ports)
    head = f"    def read_prompt({', '.join(by_name('self', [*moves, 'state', 'position']))}):"
    return "\n".join([head, *(lines or ["        pass"])]) + "\n"


def _texts_in_step(
    scope: Scope,
    names: Mapping[str, str],
    moving: frozenset[str],
    batches: Collection[str],
    *,
    root: bool,
) -> dict[str, str]:
    """Return the expression for every value in `step`, where fixed values are in the state."""
    keys = {
        value: kept_key(value, _rows_of(scope, value, batches))
        for value in saved_values(scope, moving, root=root)
    }
    return {**names, **{value: f'state["{key}"]' for value, key in keys.items()}}


def _rows_of(scope: Scope, value: str, batches: Collection[str]) -> int | None:
    """Return the index of the batch axis of a value; None if it has none."""
    axes = scope.type_of(value).axes
    return next((i for i, axis in enumerate(axes) if axis in batches), None)


def _fixed_needed(scope: Scope, moving: frozenset[str], *, root: bool) -> set[str]:
    """Return the fixed values that moving nodes need, directly or indirectly."""
    needed = set(fixed_outputs(scope, moving, root=root))
    for node in reversed(scope.nodes):
        moves = bool(moving_ports(node, moving))
        if moves or any(f"{node.name}.{port}" in needed for port in node.outputs):
            needed |= {value for value in node.wires.values() if value not in moving}
    return needed


def _begin_call(target: str, wires: Mapping[str, str], names: Mapping[str, str]) -> str:
    given = [f"{port}={names[value]}" for port, value in wires.items()]
    return f"{target}.begin({', '.join(['capacity', *given])})"


def _step_lines(
    scope: Scope,
    node: Node,
    names: Mapping[str, str],
    ports: frozenset[str],
    *,
    selected: bool = False,
) -> Iterable[str]:
    """Yield the lines that run a node for the next positions; a selected one is in the state."""
    pad = " " * 8
    if not node.steps:
        module = f'state["{node.name}"]' if selected else f"self.{node.module}"
        text = call(module, names, node.wires)
        yield f"{pad}{targets(node, names)} = {text}"
        return
    wires = {port: value for port, value in node.wires.items() if port in ports}
    if not isinstance(node, RepeatNode):
        state = f'state["{state_owner(scope, node)}"]'
        wires |= {"state": state, "position": "position"}
        text = call(f"self.{node.module}.step", names, wires)
        yield f"{pad}{targets(node, names)} = {text}"
        return
    yield from loop_lines(node, names, wires, pad, step=True)
