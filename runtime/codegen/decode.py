"""Decoding methods: the source of `begin`, `step` and `read_prompt`, by binding-time analysis.

Nodes that do not depend on the moving inputs run once, in `begin`, and the others in `step`;
`read_prompt` omits the nodes of `step` that only serve the outputs.  Of a template with moving and
fixed outputs, `begin` returns the fixed ones after its state, and `step` the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ...graphs.ir.graph import BlockNode, Graph, Node, RepeatNode, Scope
from ...graphs.ir.python_names import argument, child
from ...graphs.ir.step_axis import common_lead, leads_of, longest_lead, measured
from ...graphs.ir.traverse import (
    begun_ports,
    fixed_outputs,
    late_values,
    moving_ports,
    saved_values,
    state_owner,
)
from ...graphs.ir.value_type import Axis, added, names_of, terms_of
from .execution import begin_lines
from .forward import (
    by_name,
    call,
    enter_loop,
    given_ports,
    leave_loop,
    loop_lines,
    merged_lines,
    returned,
    run_lines,
    targets,
    weighing_first,
    wires_inside,
)

KEPT = "="
"""Prefix of the keys of fixed values in a state; all other keys are names of nodes."""
LEAD = "=lead"
"""Key of the number of positions before the first step, and prefix of those of its axes."""


def kept_key(value: str, batch_dim: int | None) -> str:
    """Return the key of a fixed value in a state.

    Args:
        value: name of the value.
        batch_dim: index of its batch axis; None if it has no batch axis.
    """
    return f"{KEPT}{value}" if batch_dim is None else f"{KEPT}{value}@{batch_dim}"


def kept_value(key: str) -> tuple[str, int | None]:
    """Return the name and the batch axis of a value from its key: the inverse of `kept_key`."""
    value, _, batch_dim = key.removeprefix(KEPT).partition("@")
    return value, int(batch_dim) if batch_dim else None


_ROWS = "capacity.zeros((capacity.sentences,))"
"""What tells a node rows and precision before the first step, instead of a moving value."""


class Times(NamedTuple):
    """When the values of a scope are computed."""

    moving_in: frozenset[str]
    """The inputs that move."""
    moving: frozenset[str]
    """The values that depend on them."""
    begun: frozenset[str] = frozenset()
    """The outputs that `begin` returns, and `step` does not."""
    axis: str = ""
    """The step axis."""

    def lead(self, scope: Scope) -> Axis:
        """Return how many positions come before those that the argument `position` counts."""
        return common_lead((scope.inputs[name] for name in self.moving_in), self.axis)


def decoding_texts(
    graph: Graph, scope: Scope, names: Mapping[str, str], times: Times, *, root: bool
) -> list[str]:
    """Return the sources of `begin` and `step`, and of `read_prompt` of a root without losses.

    Args:
        graph: the graph.
        scope: its root or the inside of a template.
        names: value to local variable.
        times: when its values are computed.
        root: whether the scope is the complete graph.
    """
    batches = [axis for axis, kind in graph.spec.axes.items() if kind == "batch"]
    losses = graph.segments is not None
    around = begin_lines(graph, times.moving_in, names) if root else ((), ())
    before = _lead_lines(graph, names, times) if root else []
    head = graph.execution.shortlisted if root else ""
    texts = [
        begin_text(
            scope,
            names,
            times,
            batches=batches,
            root=root,
            around=([*before, *around[0]], around[1]),
            head=head,
        ),
        step_text(scope, names, times, batches=batches, root=root, losses=losses, head=head),
    ]
    if root and not losses:
        texts.append(read_text(scope, names, times, batches))
    return texts


def _lead_lines(graph: Graph, names: Mapping[str, str], times: Times) -> list[str]:
    """Return the lines of the root's `begin` that make room for the positions before the first."""
    lead = longest_lead(graph.root, times.axis)
    if not lead:
        return []
    measures = measured(graph, times.moving_in, names_of(lead))
    lengths = {name: f"{names[input_]}{size}" for name, (input_, size) in measures.items()}
    total = " + ".join(
        (lengths[name] if factor == 1 else f"{factor} * {lengths[name]}") if name else str(factor)
        for name, factor in terms_of(lead).items()
    )
    arguments = [f"{name}={text}" for name, text in lengths.items()]
    return [f"        capacity = capacity.after({', '.join([total, *arguments])})"]


def _lead_states(scope: Scope, times: Times, *, root: bool) -> list[str]:
    """Return the entries of a state that say how many positions come before the first step."""
    lead = [f'"{LEAD}": capacity.lead,'] if root and longest_lead(scope, times.axis) else []
    axes = sorted(_named_in_steps(scope, times))
    return [*lead, *(f'"{LEAD} {axis}": capacity.lengths["{axis}"],' for axis in axes)]


def begin_text(
    scope: Scope,
    names: Mapping[str, str],
    times: Times,
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
        times: when its values are computed.
        batches: the graph's batch axes, along which values are repeated for each beam.
        root: whether the scope is the complete graph.
        around: lines before and after the nodes that do not move, but for those that depend on a
            node with a state.
        head: node of the linear map that computes only some outputs; empty if there is none.
    """
    moving_in, moving, begun = times.moving_in, times.moving, times.begun
    fixed = [name for name in scope.inputs if name not in moving_in]
    needed = _fixed_needed(scope, moving, begun, root=root)
    before, after = around
    late = late_values(scope, moving)
    lines, late_lines = list[str](), list[str]()
    states = []
    for node in scope.nodes:
        ports = moving_ports(node, moving)
        if not ports:
            if any(f"{node.name}.{port}" in needed for port in node.outputs):
                is_late = not late.isdisjoint(node.wires.values())
                texts = {**names, **dict.fromkeys(moving, _ROWS)}
                (late_lines if is_late else lines).extend(run_lines(node, texts, " " * 8))
            continue
        if node.name == head:
            selected = f"select_outputs({child(node.module)}, capacity.candidates)"
            states.append(f'"{head}": {selected},')
        if not node.steps or state_owner(scope, node) != node.name:
            continue
        wires = {port: value for port, value in node.wires.items() if port not in ports}
        begins = begun_ports(node, moving)
        if begins:
            late_lines += _begin_lines(node, wires, names, begins)
            states.append(f'"{node.name}": state["{node.name}"],')
            continue
        if not isinstance(node, RepeatNode):
            call = _begin_call(child(node.module), wires, names)
        elif node.share:
            begin = _begin_call(child(node.module), wires, names)
            call = f"[{begin} for _ in range({node.repeat})]"
        else:
            call = f"[{_begin_call('layer', wires, names)} for layer in {child(node.module)}]"
        states.append(f'"{node.name}": {call},')
    for value in saved_values(scope, moving, begun, root=root):
        stored, batch_dim = names[value], _rows_of(scope, value, batches)
        if batch_dim is not None:
            stored = f"{stored}.repeat_interleave(capacity.beams, {batch_dim})"
        states.append(f'"{kept_key(value, batch_dim)}": {stored},')
    states += _lead_states(scope, times, root=root)
    text = [
        f"    def begin(self, {', '.join(by_name('capacity', map(argument, fixed)))}):",
        *before,
    ]
    text += [*lines, *after]
    if late_lines:
        text += ["        state = {}", *late_lines]
    fixed_ones = [names[scope.outputs[port]] for port in given_ports(scope) if port in begun]
    text += ["        return {", *(f"            {entry}" for entry in states)]
    text.append(f"        {', '.join(['}', *fixed_ones])}")
    return "\n".join(text) + "\n"


def _begin_lines(
    node: Node, wires: Mapping[str, str], names: Mapping[str, str], begun: frozenset[str]
) -> Iterable[str]:
    """Yield the lines that begin a node, and compute those of its outputs that are fixed.

    Args:
        node: a template, or a repeat.
        wires: its fixed ports and what they read.
        names: value to local variable.
        begun: the fixed outputs.
    """
    pad, state = " " * 8, f'state["{node.name}"]'
    outputs = targets(node, names, begun, begin=True)
    if not isinstance(node, RepeatNode):
        call = _begin_call(child(node.module), wires, names)
        yield f"{pad}{state}, {outputs} = {call}"
        return
    others = frozenset(node.outputs) - begun
    yield f"{pad}{state} = []"
    yield from enter_loop(node, names, others, pad)
    copies = child(node.module)
    yield f"{pad}for {'_' if node.share else 'layer'} in " + (
        f"range({node.repeat}):" if node.share else f"{copies}:"
    )
    call = _begin_call(copies if node.share else "layer", wires_inside(node, wires), names)
    yield f"{pad}    layer_state, {outputs} = {call}"
    yield f"{pad}    {state}.append(layer_state)"
    yield from leave_loop(node, names, [p for p in node.collect if p in begun], pad)


def step_text(
    scope: Scope,
    names: Mapping[str, str],
    times: Times,
    *,
    batches: Collection[str],
    root: bool,
    losses: bool = False,
    head: str = "",
) -> str:
    """Return the source of `step`, which computes the next positions; args as in `begin_text`.

    With `losses`, as in objectives, the root also returns losses and scores.
    """
    moving_in, moving, begun = times.moving_in, times.moving, times.begun
    moves = [name for name in scope.inputs if name in moving_in]
    lines = [
        f"    def step({', '.join(by_name('self', [*map(argument, moves), 'state', 'position']))}):"
    ]
    step_texts = _texts_in_step(scope, names, times, batches, root=root)
    for node in weighing_first(scope) if root else scope.nodes:
        if _moves(node, moving):
            lines += _step_lines(scope, node, step_texts, times, selected=node.name == head)
    outputs = [
        port
        for port, value in scope.outputs.items()
        if value in moving and (losses or scope.type_of(value).kind != "loss")
    ]
    if not root:
        outputs = [port for port in given_ports(scope) if port not in begun]
    lines.append(returned(scope, step_texts, outputs, root=root))
    return "\n".join(lines) + "\n"


def read_text(
    scope: Scope, names: Mapping[str, str], times: Times, batches: Collection[str]
) -> str:
    """Return the source of `read_prompt` of the root, which reads a prompt and returns nothing.

    It computes only what changes the state; arguments as in `begin_text`.
    """
    moves = [name for name in scope.inputs if name in times.moving_in]
    step_texts = _texts_in_step(scope, names, times, batches, root=True)
    needed, lines = set[str](), list[str]()
    for node in reversed(scope.nodes):
        gives = any(f"{node.name}.{port}" in needed for port in node.outputs)
        if _moves(node, times.moving) and (gives or node.steps):
            needed |= set(node.wires.values())
            lines[:0] = _step_lines(scope, node, step_texts, times)
    arguments = by_name("self", [*map(argument, moves), "state", "position"])
    head = f"    def read_prompt({', '.join(arguments)}):"
    return "\n".join([head, *(lines or ["        pass"])]) + "\n"


def _texts_in_step(
    scope: Scope,
    names: Mapping[str, str],
    times: Times,
    batches: Collection[str],
    *,
    root: bool,
) -> dict[str, str]:
    """Return the expression for every value in `step`, where fixed values are in the state."""
    keys = {
        value: kept_key(value, _rows_of(scope, value, batches))
        for value in saved_values(scope, times.moving, times.begun, root=root)
    }
    return {**names, **{value: f'state["{key}"]' for value, key in keys.items()}}


def _rows_of(scope: Scope, value: str, batches: Collection[str]) -> int | None:
    """Return the index of the batch axis of a value; None if it has none."""
    axes = scope.type_of(value).axes
    return next((i for i, axis in enumerate(axes) if axis in batches), None)


def _moves(node: Node, moving: frozenset[str]) -> bool:
    """Return whether any output of a node moves."""
    return any(f"{node.name}.{port}" in moving for port in node.outputs)


def _fixed_needed(
    scope: Scope, moving: frozenset[str], begun: frozenset[str], *, root: bool
) -> set[str]:
    """Return the fixed values that moving nodes or `begun` need, directly or indirectly."""
    needed = set(fixed_outputs(scope, moving, begun, root=root))
    needed.update(scope.outputs[port] for port in begun)
    for node in reversed(scope.nodes):
        moves = bool(moving_ports(node, moving))
        if moves or any(f"{node.name}.{port}" in needed for port in node.outputs):
            needed |= {value for value in node.wires.values() if value not in moving}
    return needed


def _begin_call(target: str, wires: Mapping[str, str], names: Mapping[str, str]) -> str:
    arguments = [f"{argument(port)}={names[value]}" for port, value in wires.items()]
    return f"{target}.begin({', '.join(['capacity', *arguments])})"


def _step_lines(
    scope: Scope,
    node: Node,
    names: Mapping[str, str],
    times: Times,
    *,
    selected: bool = False,
) -> Iterable[str]:
    """Yield the lines that run a node for the next positions; a selected one is in the state."""
    pad, moving = " " * 8, times.moving
    yield from merged_lines(node, pad)
    position = _position(_shift(scope, node, times))
    if not node.steps:
        module = f'state["{node.name}"]' if selected else child(node.module)
        text = call(module, names, node.wires)
        if isinstance(node, BlockNode) and _changes_lead(scope, node, times):
            passes = node.part.signature.passes_on
            later = [names[node.wires[passes[port]]] for port in node.outputs]
            values = later[0] if len(later) == 1 else f"({', '.join(later)})"
            text = f"{values} if position else {text}"
        yield f"{pad}{targets(node, names)} = {text}"
        return
    ports, begun = moving_ports(node, moving), begun_ports(node, moving)
    wires = {port: value for port, value in node.wires.items() if port in ports}
    if not isinstance(node, RepeatNode):
        more = (f'state=state["{state_owner(scope, node)}"]', f"position={position}")
        text = call(f"{child(node.module)}.step", names, wires, *more)
        yield f"{pad}{targets(node, names, begun)} = {text}"
        return
    yield from loop_lines(node, names, wires, pad, step=position, begun=begun)


def _shift(scope: Scope, node: Node, times: Times) -> Axis:
    """Return how many more positions come before those of a node than before those of its scope."""
    types = [scope.type_of(value) for value in node.wires.values() if value in times.moving]
    return added(common_lead(types, times.axis), times.lead(scope), -1)


def _position(shift: Axis) -> str:
    """Return the first position of a step of a node; that of the first step is 0."""
    text = "position"
    for name, factor in terms_of(shift).items():
        count = f'state["{LEAD} {name}"]' if name else str(abs(factor))
        times = f"{abs(factor)} * " if name and abs(factor) != 1 else ""
        text += f" {'-' if factor < 0 else '+'} {times}{count}"
    return f"position and {text}" if shift else text


def _named_in_steps(scope: Scope, times: Times) -> frozenset[str]:
    """Return the axes whose lengths the steps of a scope need for positions."""
    moving = [node for node in scope.nodes if node.steps and moving_ports(node, times.moving)]
    return frozenset[str]().union(*(names_of(_shift(scope, node, times)) for node in moving))


def _changes_lead(scope: Scope, node: BlockNode, times: Times) -> bool:
    """Return whether a block changes what comes before the first position."""
    if not node.part.signature.passes_on:
        return False
    read = [scope.type_of(value) for value in node.wires.values() if value in times.moving]
    leads = {lead for type_ in read for lead in leads_of(type_, times.axis)}
    return any(leads.isdisjoint(leads_of(type_, times.axis)) for type_ in node.outputs.values())
