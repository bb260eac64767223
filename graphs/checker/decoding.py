"""Decoding: whether a graph can be computed step by step, or segment by segment.

A node that reads moving values (`graphs/ir/traverse.py`) must not read later positions, so every
block declares for each axis whether it is pointwise, causal or full.  A segment is a step of many
positions, whose state is that of decoding.  So the nodes of an objective in segments must not read
later positions either, and each state must stay right when its oldest positions are dropped, which
the block declares (`BlockType.carries`).

A value with the step axis twice has, in a step, the rows of the next queries with the keys of all
positions so far.  Keys of later positions are unknown then, so a sum over the keys is allowed only
if what it adds is 0 for them, as after a causal softmax.  Which values have pairs, and which of
them are 0 at later keys, follows the wires into templates, repeats and slots, and out of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...specs.findings import did_you_mean, pointer, respelled
from ...specs.form import SpecForm
from ..ir.graph import BlockNode, Filling, Graph, Node, Part, RepeatNode, Scope, TemplatePart
from ..ir.state_tensor import DocumentSegments
from ..ir.step_axis import (
    lead_of,
    lead_of_axis,
    leads_of,
    longest_lead,
    measured,
    moves_along,
    step_names,
)
from ..ir.traverse import holds_model, model_of, moving_ports, moving_values, root_moving
from ..ir.value_type import Axis, ValueType, is_known, names_of, time_axes
from .records import MISSING, Checker, FindingSet, ParamValues


def find_obstacles(graph: Graph) -> Iterator[DecodingObstacle]:
    """Yield every node that reads later positions of the step axis, or drops the axis."""
    axis = graph.step_axis
    if axis is None:
        return
    starts = root_moving(graph)
    if not starts and not any(moves_along(type_, axis) for type_ in graph.inputs.values()):
        yield DecodingObstacle(
            "/step/axis", "no input has that axis", f"give an input a type with {axis}"
        )
        return
    obstacles, moving, outputs = _in_scope(graph.root, starts, axis, Pairs())
    yield from obstacles or _leads(graph, starts, moving, axis)
    nodes = {node.name: node for node in graph.root.nodes}
    for port in () if obstacles else outputs.names:
        problem = f"its output has pairs of positions of {axis}"
        help_ = "sum over the keys first, with einsum@1 after a causal softmax@1"
        yield DecodingObstacle(nodes[graph.root.outputs[port].partition(".")[0]].at, problem, help_)


def _leads(
    graph: Graph, starts: frozenset[str], moving: frozenset[str], axis: str
) -> Iterator[DecodingObstacle]:
    """Yield the outputs with positions before the first step, and a lead of unknown length."""
    for name, value in graph.root.outputs.items():
        type_ = graph.root.type_of(value)
        if value in moving and (lead := lead_of(type_, axis)):
            problem = f"output '{name}' is {type_}, with {lead} positions before those of {axis}"
            how = f"'start': {lead}" if isinstance(lead, int) else "what precedes wired to 'before'"
            help_ = f"drop them with a slice@1 that has {how}"
            yield DecodingObstacle(pointer("outputs", name), problem, help_)
    names = names_of(longest_lead(graph.root, axis))
    for name in sorted(names - measured(graph, starts, names).keys()):
        problem = f"{name} positions come before those of {axis}, and no fixed input tells how many"
        help_ = f"give an input without {axis} the axis {name}"
        yield DecodingObstacle("/step/axis", problem, help_)


def _in_scope(
    scope: Scope, starts: frozenset[str], axis: str, pairs: Pairs
) -> tuple[list[DecodingObstacle], frozenset[str], Pairs]:
    """Return the obstacles of a scope, the values that move, and the outputs with pairs.

    The outputs of an obstacle count as fixed, so that the nodes that read them are not reported.
    """
    results = scope.results.setdefault(f"{__name__}.in_scope", {})
    key = starts, axis, pairs
    if key not in results:
        moving, obstacles = set(starts), list[DecodingObstacle]()
        typed = {name for name, type_ in scope.inputs.items() if is_known(type_)}
        for node in scope.nodes:
            typed.update(f"{node.name}.{port}" for port, t in node.outputs.items() if is_known(t))
            ports = frozenset(
                port
                for port, value in node.wires.items()
                if value in moving or (value not in typed and _takes(node, port, axis))
            )
            if isinstance(node, BlockNode):
                obstacles += _rows_of_steps(node, ports, axis)
                ports -= {*node.part.signature.measured}
            if ports:
                inside, outputs, of_outputs = _in_node(node, ports, axis, pairs.at(node.wires))
                obstacles += inside
                pairs = pairs.beside(of_outputs.of(node))
                moving.update(f"{node.name}.{port}" for port in outputs)
        results[key] = obstacles, frozenset(moving), pairs.at(scope.outputs)
    known_results: tuple[list[DecodingObstacle], frozenset[str], Pairs] = results[key]
    return known_results


def _rows_of_steps(node: BlockNode, ports: frozenset[str], axis: str) -> Iterator[DecodingObstacle]:
    """Yield an obstacle if a block has a row for each position of the step axis."""
    for port in node.part.signature.measured:
        type_, outputs = node.part.inputs.get(port), node.outputs.values()
        lead = type_.axes[:1] if port in ports and type_ is not None else ()
        if (
            lead
            and lead_of_axis(lead[0], axis) is not None
            and any(lead[0] in output.axes for output in outputs)
        ):
            problem = f"the rows of {node.part.key} are positions of {axis}"
            yield DecodingObstacle(
                node.at, problem, "wire a value whose first axis is that of the batch"
            )


def _in_node(
    node: Node, ports: frozenset[str], axis: str, pairs: Pairs
) -> tuple[list[DecodingObstacle], frozenset[str], Pairs]:
    """Return the obstacles of a node, its outputs that move, and those with pairs."""
    outputs = frozenset(node.outputs)
    if isinstance(node, BlockNode):
        obstacles, of_outputs = _in_part(node.part, ports, axis, node.at, pairs)
        obstacles = obstacles or list(_without_axis(node.part, axis, node.at))
        return (obstacles, frozenset(), Pairs()) if obstacles else ([], outputs, of_outputs)
    carry = node.carry if isinstance(node, RepeatNode) else ()
    while True:
        insides = [(body, *_in_scope(body, ports, axis, pairs)) for _, body, _ in node.insides()]
        obstacles = [obstacle for _, inside, *_ in insides for obstacle in inside]
        if obstacles:
            return obstacles, frozenset(), Pairs()
        moving = frozenset(
            port
            for body, _, values, _ in insides
            for port, value in body.outputs.items()
            if value in values
        )
        of_outputs = Pairs.of_all([of_body for *_, of_body in insides])
        entering = ports | moving.intersection(carry)  # the next copy reads them
        entering_pairs = pairs.through(of_outputs, carry)
        if (entering, entering_pairs) == (ports, pairs):
            moving |= ports.intersection(carry)
            moves = outputs if model_of(node) is not None else outputs & moving
            return [], moves, of_outputs
        ports, pairs = entering, entering_pairs


def _takes(node: Node, port: str, axis: str) -> bool:
    """Return whether a port of a template has an axis, so that an unknown value there moves."""
    type_ = None if isinstance(node, BlockNode) else node.body.inputs.get(port)
    return type_ is not None and bool(leads_of(type_, axis))


def _in_part(
    part: Part, ports: frozenset[str], axis: str, at: str, pairs: Pairs
) -> tuple[list[DecodingObstacle], Pairs]:
    """Return why a block cannot be computed step by step, and its outputs with pairs."""
    key = part.block.key
    obstacles = list(part_obstacles(part, pairs, axis, at))
    if obstacles:
        return obstacles, Pairs()
    summed = summed_names(part, pairs, axis)
    for name, stands_for in part.axes.items():
        along = lead_of_axis(stands_for, axis) is not None
        if along and part.signature.behavior.get(name) == "full" and name not in summed:
            problem = f"{key} reads later positions of {axis}"
            fields = type(part.params).model_fields
            fixes = {"direction": "'direction': \"forward\"", "causal": "'causal': true"}
            fixes["choose"] = "'choose': \"threshold\""
            if "causal" in fields and fields["causal"].default == "":
                fixes["causal"] = "'causal' with the axis of the queries"
            fix = next((text for name, text in fixes.items() if name in fields), "")
            advice = f"give {key} the param {fix}, or " if fix else ""
            if part.signature.factors and not fix:
                advice = "sum what is 0 for later keys, after a softmax@1 with 'causal', or "
            help_ = f"{advice}wire it to values without {axis}"
            if part.signature.passes_on:
                help_ = f"let the value with {axis} come last, and the others not depend on it"
            obstacles.append(DecodingObstacle(at, problem, help_))
    for port in sorted(ports):
        type_ = part.inputs.get(port)
        if type_ is not None and not moves_along(type_, axis):
            problem = f"port '{port}' of {key} depends on {axis} but no longer has that axis"
            obstacles.append(DecodingObstacle(at, problem, f"keep {axis} until the output"))
    obstacles += [] if obstacles else _other_leads(part, ports, axis, at)
    obstacles += [] if obstacles else _in_slots(part, ports, axis, at, pairs)
    return obstacles, pairs_out(part, pairs, axis)


def _in_slots(
    part: Part, ports: frozenset[str], axis: str, at: str, pairs: Pairs
) -> Iterator[DecodingObstacle]:
    """Yield why what fills the slots of a block cannot be computed step by step."""
    for slot, inner in part.fill.items():
        if axis == part.axes.get(part.signature.slot(slot).steps_over):
            continue  # it sees one position
        filling_at = f"{at}/fill/{slot}"
        others = ports.difference(part.signature.slot(slot).entries)
        inside = frozenset(
            port for port in inner.inputs if port in others or leads_of(inner.inputs[port], axis)
        )
        entering = into_slot(part, slot, pairs, axis)
        if isinstance(inner, TemplatePart):
            inner_obstacles, _, outputs = _in_scope(inner.body, inside, axis, entering)
        elif inner.stores:
            problem = f"{inner.key} in the slot '{slot}' pairs positions of {axis}"
            inner_obstacles = [DecodingObstacle(filling_at, problem, "compute it in a template")]
            outputs = Pairs()
        else:
            inner_obstacles, outputs = _in_part(inner, inside, axis, filling_at, entering)
        yield from inner_obstacles or slot_obstacles(part, slot, outputs, axis, filling_at)


def _other_leads(
    part: Part, ports: frozenset[str], axis: str, at: str
) -> Iterator[DecodingObstacle]:
    """Yield an obstacle if a block cannot step because positions come before the first one."""
    inputs = {port: leads_of(part.inputs[port], axis) for port in ports & part.inputs.keys()}
    different = {lead for leads in inputs.values() for lead in leads}
    if len(different) > 1:
        texts = ", ".join(f"{port} {part.inputs[port]}" for port in sorted(inputs))
        problem = f"{part.key} reads other numbers of positions before those of {axis}: {texts}"
        help_ = "drop the positions that only one of them has with slice@1"
        yield DecodingObstacle(at, problem, help_)
        return
    passes = part.signature.passes_on
    for output, type_ in part.outputs.items():
        if is_known(type_) and different and different.isdisjoint(leads_of(type_, axis)):
            if not leads_of(type_, axis):
                continue  # the axis is missing, which is another obstacle
            if output not in passes or not ports <= {*passes.values()}:
                problem = f"{part.key} joins {axis} to other positions than those before it"
                help_ = f"let the value with {axis} come last, and the others not depend on it"
                yield DecodingObstacle(at, problem, help_)
                return


def _without_axis(part: Part, axis: str, at: str) -> Iterator[DecodingObstacle]:
    """Yield the outputs that do not have the step axis; losses and scores need not have it."""
    for port, type_ in part.outputs.items():
        if not moves_along(type_, axis) and type_.kind not in ("loss", "score"):
            problem = f"output '{port}' of {part.block.key} depends on {axis} but lacks that axis"
            yield DecodingObstacle(at, problem, f"keep {axis} until the output")


def check_step(graph: Graph, checker: Checker, *, complete: bool) -> None:
    """Report why a graph cannot be decoded along its step axis.

    If that axis is wrong, the graph is checked along the only time axis of its outputs.
    """
    axis, report, spec = graph.step_axis, checker.findings.report, checker.context.spec
    obstacles: list[DecodingObstacle] = []
    if checker.context.lost.covers(pointer("axes", str(axis))):
        return
    if axis not in spec.axes:
        report(
            code="N05",
            at="/step/axis",
            problem=f"unknown axis '{axis}'",
            help=did_you_mean(str(axis), spec.axes),
            fix=respelled("/step/axis", str(axis), spec.axes),
        )
    elif spec.axes[axis] != "time":
        times = time_axes(spec.axes)
        report(
            code="D01",
            at="/step/axis",
            problem=f"axis '{axis}' is not a time axis, so the graph cannot be decoded along it",
            help=f"name a time axis: {', '.join(times)}" if times else "remove 'step'",
        )
    else:
        obstacles = list(find_obstacles(graph))
        moving = moving_values(graph.root, root_moving(graph))
        if complete and not obstacles and moving.isdisjoint(graph.root.outputs.values()):
            help_ = f"give 'outputs' a value that depends on {axis}"
            obstacles.append(
                DecodingObstacle("/step/axis", "no output depends on that axis", help_)
            )
    wrong = spec.axes.get(str(axis)) != "time" or any(o.at == "/step/axis" for o in obstacles)
    likely_axis = _step_of_outputs(graph, spec) if wrong else ""
    if likely_axis and likely_axis != axis:
        obstacles += find_obstacles(replace(graph, step_axis=likely_axis))
    crossed = tuple(pointer("blocks", name, "") for name in checker.doubts.crossed)
    for obstacle in obstacles:
        # An input whose type cannot be parsed may be the one with the step axis, unless no type
        # mentions that axis; and it is not known what an input of a template with crossed wires is.
        start = obstacle.at == "/step/axis"
        if not obstacle.at.startswith(crossed) and (
            not start or graph.inputs.keys() == spec.inputs.keys()
        ):
            report(
                code="D01",
                at=obstacle.at,
                problem=f"the graph cannot be decoded along {axis}: {obstacle.problem}",
                help=obstacle.help,
            )


def _step_of_outputs(graph: Graph, spec: SpecForm) -> str:
    """Return the only time axis that all outputs of a graph have, or ``""``."""
    axes = [set(type_.axes) for type_ in graph.outputs.values()]
    times = time_axes(spec.axes)
    shared = [name for name in times if axes and all(name in output_axes for output_axes in axes)]
    return shared[0] if len(shared) == 1 else ""


def segments_of(
    spec: SpecForm, values: ParamValues, findings: FindingSet
) -> DocumentSegments | None:
    """Return the segments of a spec, or None; report a memory that is not a positive integer."""
    if spec.segments is None:
        return None
    at = "/segments/memory"
    memory = values.resolve(spec.segments.memory, at)
    if memory is MISSING:
        return None
    if isinstance(memory, bool) or not isinstance(memory, int) or memory < 1:
        findings.report(
            code="O06",
            at=at,
            problem=f"the memory of segments is {memory!r:.40}, not a positive integer",
            help="write how many earlier positions are kept, such as 128",
        )
        return None
    return DocumentSegments(spec.segments.axis, memory)


def check_segments(spec: SpecForm, graph: Graph, findings: FindingSet) -> None:
    """Report why an objective cannot be computed segment by segment."""
    if graph.segments is None:
        return
    axis = graph.segments.axis
    times = [name for name, kind in spec.axes.items() if kind == "time"]
    if axis not in times:
        findings.report(
            code="O06",
            at="/segments/axis",
            problem=f"'{axis}' is not a time axis of the spec",
            help=did_you_mean(axis, times) or "name the time axis of the text",
            fix=respelled("/segments/axis", axis, times),
        )
        return
    if not graph.losses or graph.step_axis is not None:
        findings.report(
            code="O06",
            at="/segments",
            problem="only an objective is computed in segments, and this spec has no loss"
            if not graph.losses
            else "an objective in segments cannot have 'step'",
            help="remove 'segments'" if not graph.losses else "remove 'step'",
        )
        return
    along = replace(graph, step_axis=axis)
    obstacles = list(find_obstacles(along)) or [*_models(along), *_states(along)]
    if not obstacles and longest_lead(graph.root, axis):
        problem = f"other positions come before those of {axis}, which later segments do not have"
        obstacles = [DecodingObstacle("/segments/axis", problem, "remove them, or 'segments'")]
    for obstacle in obstacles:
        at = "/segments/axis" if obstacle.at == "/step/axis" else obstacle.at
        findings.report(
            code="O06",
            at=at,
            problem=f"the objective cannot be computed in segments of {axis}: {obstacle.problem}",
            help=obstacle.help,
        )


def _models(graph: Graph) -> Iterator[DecodingObstacle]:
    """Yield an obstacle for each model that does not decode along the axis of the segments."""

    def in_scope(scope: Scope, moving_in: frozenset[str]) -> Iterator[DecodingObstacle]:
        moving = moving_values(scope, moving_in)
        for node in scope.nodes:
            ports, model = moving_ports(node, moving), model_of(node)
            if not ports or not holds_model(node) or model is None:
                continue
            steps = root_moving(model) if model.step_axis is not None else frozenset[str]()
            if steps != ports:
                problem = f"the model '{model.name}' does not decode along it"
                help_ = f"give the model a 'step' along the axis of {', '.join(sorted(ports))}"
                yield DecodingObstacle(node.at, problem, help_)

    yield from in_scope(graph.root, root_moving(graph))


def _states(graph: Graph) -> Iterator[DecodingObstacle]:
    """Yield an obstacle for each block whose state cannot be carried."""
    from ..cost.decode_state import keepers  # noqa: PLC0415 - only segments need the states

    nodes = {node.name: node for node in graph.root.nodes}
    for keeper in keepers(graph):
        why = ""
        if isinstance(keeper.keeps, Part):
            carries = keeper.keeps.block.carries
            why = "its state cannot be carried" if carries is None else carries(keeper.keeps)
        elif keeper.at:
            why = "the values that it stores cannot be carried"
        if why:
            name = keeper.path.partition(".")[0]
            problem = f"{keeper.key} at {keeper.path}: {why}"
            use = "use a block whose state can be carried, such as attention@1 with relative"
            help_ = f"{use} positions and 'cache': \"inputs\""
            yield DecodingObstacle(nodes[name].at, problem, help_)


@dataclass(frozen=True, slots=True)
class DecodingObstacle:
    """A node that prevents decoding step by step, and the reason."""

    at: str
    problem: str
    help: str


class Pairs(NamedTuple):
    """The names of values, or of the ports that read them, that have pairs of positions."""

    names: frozenset[str] = frozenset()
    earlier: frozenset[str] = frozenset()
    """Those that are 0 where the key is later than the query."""

    def at(self, wires: Mapping[str, str]) -> Pairs:
        """Return the ports that read these values."""
        return Pairs(
            frozenset(port for port, value in wires.items() if value in self.names),
            frozenset(port for port, value in wires.items() if value in self.earlier),
        )

    def beside(self, others: Pairs) -> Pairs:
        """Return these and other names."""
        return Pairs(self.names | others.names, self.earlier | others.earlier)

    def of(self, node: Node) -> Pairs:
        """Return these outputs of a node as values of its scope."""
        return Pairs(
            frozenset(f"{node.name}.{port}" for port in self.names),
            frozenset(f"{node.name}.{port}" for port in self.earlier),
        )

    def through(self, outputs: Pairs, carry: tuple[str, ...]) -> Pairs:
        """Return what enters the copies of a repeat, given what leaves each of them."""
        lost = frozenset(carry) - outputs.earlier
        return Pairs(self.names | outputs.names.intersection(carry), self.earlier - lost)

    @staticmethod
    def of_all(several: list[Pairs]) -> Pairs:
        """Return what can be told of the outputs of all of several scopes."""
        names = frozenset[str]().union(*(pairs.names for pairs in several))
        lacks = (pairs.names - pairs.earlier for pairs in several)
        return Pairs(names, names.difference(*lacks))


def pairs_out(part: Part, reads: Pairs, axis: str) -> Pairs:
    """Return the outputs of a block that have pairs which a step computes.

    Args:
        part: the block.
        reads: its ports that read pairs.
        axis: the step axis.
    """
    pairs = Pairs()
    for port in part.signature.outputs:
        names = step_names(port.type, part.axes, axis)
        gives = part.block.written is not None or port.name in part.signature.pairs
        if len(names) > 1 and (gives or reads.names):
            zero = part.signature.earlier.get(port.name) == tuple(names) or _factors(
                part, reads, names, axis
            )
            pairs = pairs.beside(
                Pairs(frozenset({port.name}), frozenset({port.name} if zero else ()))
            )
    return pairs


def _factors(part: Part, reads: Pairs, names: list[str], axis: str) -> list[str]:
    """Return the ports whose zeros at later keys are zeros of a value with these names."""
    return [
        port.name
        for port in part.signature.inputs
        if port.name in part.signature.factors
        and port.name in reads.earlier
        and step_names(port.type, part.axes, axis) == names
    ]


def summed_names(part: Part, reads: Pairs, axis: str) -> set[str]:
    """Return the names of axes over which a block may sum, because later keys add nothing."""
    queries = step_names(part.signature.outputs[0].type, part.axes, axis)[:1]
    keys = {name for name in part.signature.behavior if _along(part.axes.get(name, 1), axis)}
    return {key for key in keys if _factors(part, reads, [*queries, key], axis)}


def into_slot(part: Part, slot: str, reads: Pairs, axis: str) -> Pairs:
    """Return the ports of what fills a slot that read pairs.

    Args:
        part: the block with the slot.
        slot: name of the slot.
        reads: the ports of the block that read pairs.
        axis: the step axis.
    """
    inner, signature = part.fill[slot].inputs, part.signature.slot(slot)
    passed = frozenset(inner) - frozenset(signature.entries)
    entries = {name for name in signature.entries if name in inner and has_pairs(inner[name], axis)}
    zeros = entries & {signature.input.name} if signature.earlier else set()
    return Pairs(reads.names & passed | entries, reads.earlier & passed | zeros)


def slot_obstacles(
    part: Part, slot: str, outputs: Pairs, axis: str, at: str
) -> Iterator[DecodingObstacle]:
    """Yield why a block cannot take back what fills its slot, of which `outputs` has pairs."""
    signature = part.signature.slot(slot)
    port, filling = signature.output.name, part.fill[slot]
    zeros = signature.earlier and has_pairs(filling.outputs[port], axis)
    if zeros and port not in outputs.earlier:
        problem = f"what fills '{slot}' of {part.key} may not be 0 at later positions of {axis}"
        help_ = "multiply what enters it, as dropout@1 and einsum@1 do, and add nothing"
        yield DecodingObstacle(at, problem, help_)


def has_pairs(type_: ValueType, axis: str) -> bool:
    """Return whether a value has the step axis twice."""
    return sum(_along(of_value, axis) for of_value in type_.axes) > 1


def part_obstacles(part: Part, reads: Pairs, axis: str, at: str) -> Iterator[DecodingObstacle]:
    """Yield what a step does not know of the pairs that a block reads or computes.

    Args:
        part: the block, as a node or in a slot.
        reads: its ports that read pairs.
        axis: the step axis.
        at: JSON Pointer of the block.
    """
    if part.block.written is None:
        takers = frozenset[str]().union(*(_taken(part, slot) for slot in part.fill))
        if not all(port in takers or _takes_pairs(part, port, axis) for port in reads.names):
            problem = f"{part.key} reads pairs of positions of {axis}"
            yield DecodingObstacle(at, problem, "sum over the keys first, with einsum@1")
        return
    queries = step_names(part.signature.outputs[0].type, part.axes, axis)[:1]
    for port in part.signature.inputs:
        names = step_names(port.type, part.axes, axis)
        if port.name in part.inputs and len(names) > 1 and queries and names[:1] != queries:
            problem = f"{part.key} exchanges the queries and the keys of {axis}"
            yield DecodingObstacle(at, problem, "keep the order of the two axes")
    if part.stores:
        yield from _storing(part, axis, at)


def _taken(part: Part, slot: str) -> frozenset[str]:
    """Return the ports of a block that only what fills a slot reads, at every step."""
    filling: Filling = part.fill[slot]
    if part.signature.slot(slot).steps_over:
        return frozenset()
    return frozenset(filling.inputs) - {port.name for port in part.signature.inputs}


def _takes_pairs(part: Part, port: str, axis: str) -> bool:
    """Return whether a block computes each pair of a value at a port by itself, or adds it."""
    if port in part.signature.pairs:
        return True
    names = [step_names(p.type, part.axes, axis) for p in part.signature.inputs if p.name == port]
    return (
        bool(names)
        and not part.block.steps
        and not part.signature.behavior
        and all(
            step_names(output.type, part.axes, axis) == names[0]
            for output in part.signature.outputs
        )
    )


def _storing(part: Part, axis: str, at: str) -> Iterator[DecodingObstacle]:
    """Yield why a step cannot store the values that a block pairs with its queries."""
    for port in part.signature.inputs:
        axes = [] if port.name not in part.inputs else [*part.inputs[port.name].axes]
        if port.name in part.stores:
            rows = bool(axes) and not _along(axes[0], axis) and not isinstance(axes[0], int)
            if not rows or not all(_along(a, axis) or isinstance(a, int) for a in axes[1:]):
                problem = f"{part.key} cannot store {part.inputs[port.name]} for later steps"
                yield DecodingObstacle(at, problem, f"give it a batch axis, {axis}, and numbers")
        elif axes and not any(_along(of_value, axis) for of_value in axes):
            problem = f"{part.key} pairs positions of {axis}, and '{port.name}' has none"
            yield DecodingObstacle(at, problem, f"multiply '{port.name}' in a node of its own")


def _along(axis: Axis, step: str) -> bool:
    """Return whether an axis is the step axis, perhaps after other positions."""
    return lead_of_axis(axis, step) is not None
