"""Check: turn a spec into a typed graph, or report everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from ...specs.findings import (
    Finding,
    SpecError,
    did_you_mean,
    nearest,
    pointer,
    renamed,
    respelled,
    with_gap,
)
from ...specs.form import Spec, in_order
from ...specs.recovery.lost import NOTHING, Lost
from ...specs.text.edits import removing, replacing
from ..ir.block_type import Registry
from ..ir.dims import time_axes
from ..ir.graph import Graph, Scope
from ..ir.moving import moving_values, root_moving
from ..ir.value_type import ValueType, free_names, same_type, settled
from .block_params import check_choice
from .decodability import Obstacle, find_obstacles
from .limits import check_budgets, stand_ins, unused_templates, within_limits
from .objectives.initial import resolved_rules
from .objectives.objective import (
    check_objective,
    deployed,
    holds_models,
    loss_weights,
    self_contained,
    ties_of_models,
)
from .objectives.segments import check_segments, segments_of
from .params import check_requirements, evaluate_params
from .ports import Given
from .records import Checker, Context, Doubts, Findings, Memo, TooManyFindingsError
from .reserved_names import check_names, names_read
from .scopes import infer_scope, infer_template, template_ports, type_of_text
from .ties import check_ties, ties_fit, united, written_out
from .uses.idle_params import report_idle


def check(
    spec: Spec,
    registry: Registry,
    overrides: Mapping[str, Any] | None = None,
    *,
    source: str = "",
    checked: bool = False,
) -> Graph:
    """Turn a spec into a graph.

    Args:
        spec: the spec as written.
        registry: the blocks that it may name.
        overrides: values of params that replace the spec's own.
        source: name of the file, for findings.
        checked: whether the spec was made from a graph, as in a checkpoint.  Its params are then
            complete, and those without effect are not reported.

    Raises:
        SpecError: the spec is wrong; the error contains all findings.
    """
    graph, findings = analyse(spec, registry, overrides, source=source, checked=checked)
    if graph is None:
        raise SpecError(findings)
    return graph


class Explored(NamedTuple):
    """What a check found out about a spec, which may have mistakes."""

    graph: Graph | None
    """Its graph; if there are findings, as far as it is known, and None where nothing is."""
    templates: Mapping[str, Scope]
    """The inside of each template, typed for its first use or, if unused, for its own inputs."""
    findings: list[Finding]
    unplaced: Sequence[Finding] = ()
    """Where `findings` have their files: the same with the pointers of the merged spec."""


def analyse(
    spec: Spec,
    registry: Registry,
    overrides: Mapping[str, Any] | None = None,
    *,
    source: str = "",
    checked: bool = False,
    lost: Lost = NOTHING,
    outer: tuple[str, ...] = (),
) -> tuple[Graph | None, list[Finding]]:
    """Return the graph of a spec and no findings, or None and all findings; see `check`.

    `outer` has the files of the specs that contain this one as a model.

    Findings that may be consequences of `lost` parts of the spec are left out.
    """
    explored = explore(
        spec, registry, overrides, source=source, checked=checked, lost=lost, outer=outer
    )
    return (None if explored.findings else explored.graph), explored.findings


def explore(
    spec: Spec,
    registry: Registry,
    overrides: Mapping[str, Any] | None = None,
    *,
    source: str = "",
    checked: bool = False,
    lost: Lost = NOTHING,
    outer: tuple[str, ...] = (),
) -> Explored:
    """Return what is known of a spec, for editors; arguments as of `analyse`.

    Only a graph without findings can be built, drawn or measured: this one lacks the nodes whose
    blocks are unknown, and its wires are those that were written.
    """
    spec, overrides = in_order(spec), in_order(overrides or {})
    findings, insides = Findings(source, lost), dict[str, Scope]()
    graph: Graph | None = None
    with suppress(TooManyFindingsError):
        checker = _checker(spec, registry, overrides, findings, outer)
        graph = _analyse(checker, insides, checked=checked)
    return Explored(graph, insides, findings.all)


def _checker(
    spec: Spec,
    registry: Registry,
    overrides: Mapping[str, Any],
    findings: Findings,
    outer: tuple[str, ...],
) -> Checker:
    """Return the records of a check, after that of names, params, requirements and limits."""
    check_names(spec, findings)
    values = evaluate_params(spec, overrides, findings)
    check_requirements(spec, values, findings)
    context = Context(
        spec=spec,
        registry=registry,
        values=values,
        analyse=analyse,
        infer_template=infer_template,
        stand_ins=stand_ins(spec),
        lost=findings.lost,
        small=within_limits(spec, values, findings),
        source=findings.source,
        outer=outer,
    )
    return Checker(context, findings, Memo(), Doubts())


def _analyse(checker: Checker, insides: dict[str, Scope], *, checked: bool) -> Graph:
    """Return the graph, which is incomplete if there are findings.

    Args:
        checker: the records of the check.
        insides: receives the inside of each template.
        checked: as of `check`.
    """
    context, findings, memo, doubts = checker
    spec, values = context.spec, context.values
    inputs = _inputs(context, findings)
    root = infer_scope(checker, spec.name, spec.nodes, spec.outputs, inputs, "", doc=spec.doc)
    root = replace(root, init=resolved_rules(checker, spec.init, root, ""))
    _check_output_types(context, findings, root)
    _check_unused(checker)
    for body in memo.typed.values():
        if body is not None:
            insides.setdefault(body.name, body)
    if not checked:
        report_idle(findings)
    small = context.small and ties_fit(spec, root, findings)
    check_ties(checker, root, expand=small)
    written = spec.model_copy(update={"params": {**spec.params, **values.written}})
    ties = (*written_out(spec, root, expand=small), *(ties_of_models(root) if small else ()))
    graph = Graph(
        name=spec.name,
        doc=spec.doc,
        # After a mistake, a spec that holds itself could be written out without end.
        spec=written if findings.all else self_contained(written, context, memo),
        source=context.source,
        params=values.known,
        root=root,
        ties=united(ties),
        written_ties=ties,
        step_axis=spec.step.axis if spec.step else None,
        inputs=root.inputs,
        outputs=root.gives(),
        deploy=deployed(spec, root),
        losses=loss_weights(spec, values, root, findings),
        segments=segments_of(spec, values, findings),
        blocks=context.registry.added,
    )
    check_objective(spec, graph, findings)
    if not findings.all:
        check_segments(spec, graph, findings)
    if graph.step_axis is not None and not holds_models(root):
        _check_step(graph, checker, complete=not (findings.all or context.lost.places))
    check_budgets(graph, context, findings, doubts, small=small)
    return graph


def _check_step(graph: Graph, checker: Checker, *, complete: bool) -> None:
    """Report why a graph cannot be decoded along its step axis.

    If that axis is wrong, the graph is checked along the only time axis of its outputs.
    """
    axis, report, spec = graph.step_axis, checker.findings.report, checker.context.spec
    obstacles: list[Obstacle] = []
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
            obstacles.append(Obstacle("/step/axis", "no output depends on that axis", help_))
    wrong = spec.axes.get(str(axis)) != "time" or any(o.at == "/step/axis" for o in obstacles)
    meant = _step_of_outputs(graph, spec) if wrong else ""
    if meant and meant != axis:
        obstacles += find_obstacles(replace(graph, step_axis=meant))
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


def _step_of_outputs(graph: Graph, spec: Spec) -> str:
    """Return the only time axis that all outputs of a graph have, or ``""``."""
    axes = [set(type_.axes) for type_ in graph.outputs.values()]
    times = time_axes(spec.axes)
    shared = [name for name in times if axes and all(name in each for each in axes)]
    return shared[0] if len(shared) == 1 else ""


def _check_unused(checker: Checker) -> None:
    """Report templates and params that nothing uses, and check the inside of those templates."""
    context, findings = checker.context, checker.findings
    spec, values = context.spec, context.values
    # A template that a param chooses in the file counts as used, even if an override replaces it.
    choices = [value.get("use") for value in spec.params.values() if isinstance(value, dict)]
    for name in unused_templates(spec, values.known):
        ports = template_ports(context, findings, name)
        reads = {port.name: Given(port.type, f"input {port.name}") for port in ports}
        at = pointer("blocks", name)
        infer_template(checker, name, reads, at)
        if name not in checker.doubts.excused and name not in choices:
            findings.report(
                code="W03",
                at=at,
                problem=f"nothing uses template '{name}'",
                help="use it in a node, or remove it",
            )
    if context.lost.places:  # the nodes that read a block choice may be lost
        for name, value in spec.params.items():
            if isinstance(value, dict) and name not in values.read:
                check_choice(checker, name)
    read = values.read | names_read(spec)
    for name in spec.params:
        if name not in read and not values.unclear:
            findings.report(
                code="W08",
                at=pointer("params", name),
                problem=f"nothing reads param '{name}'",
                help=f"use it as '={name}', or remove it",
                fix=removing(pointer("params", name)),
            )


def _check_output_types(context: Context, findings: Findings, root: Scope) -> None:
    """Report every output whose type is not the declared one."""
    spec = context.spec
    for name, text in spec.output_types.items():
        at = pointer("output_types", name)
        if name not in spec.outputs:
            findings.report(
                code="N03",
                at=at,
                problem=f"the spec has no output '{name}'",
                help=did_you_mean(name, spec.outputs),
                fix=renamed(at, name, spec.outputs, spec.output_types),
            )
            continue
        value = spec.outputs[name]
        declared = read_type(context, findings, text, at, f"output '{name}'")
        type_ = root.type_of(value) if name in root.outputs else None
        if declared is None or type_ is None or same_type(declared, type_):
            continue
        findings.report(
            code="T08",
            at=at,
            problem=f"output '{name}' does not have the declared type",
            evidence=(f"given  {type_}  by {value}", f"wanted {declared}"),
            help="wire another value to the output, or declare its type",
        )


def _inputs(context: Context, findings: Findings) -> dict[str, ValueType | None]:
    """Return the types of a spec's inputs, which may not contain free names."""
    return {
        name: read_type(context, findings, text, pointer("inputs", name), f"input '{name}'")
        for name, text in context.spec.inputs.items()
    }


def read_type(
    context: Context, findings: Findings, text: str, at: str, what: str
) -> ValueType | None:
    """Return the type of an input or output of a spec, or report why it is not one.

    Args:
        context: what the check reads.
        findings: receives what is wrong.
        text: the type as written.
        at: its JSON Pointer.
        what: what has the type, for messages.

    Returns:
        The type, with unknown axes where it is wrong; None if even the kind is unknown.
    """
    read = type_of_text(context, findings, text, at)
    if read is None:
        return None
    if read.optional:
        findings.report(
            code="T01",
            at=at,
            problem=f"{what} of the spec cannot be optional",
            help="remove the '?'",
            fix=replacing(at, text.rstrip().removesuffix("?"), certain=True),
        )
    params = context.values.written
    for word in sorted(free_names(read.type)) if read.sound else ():
        if word == "...":
            findings.report(
                code="T01",
                at=at,
                problem=f"{what} of the spec must name its axes",
                help="write them out instead of '...'",
            )
        else:
            near = nearest(word, params)
            context.values.read.add(near)
            context.values.unclear |= not near
            findings.report(
                code="E02",
                at=at,
                problem=f"size '{word}' is not a param of the spec",
                help=did_you_mean(word, params) or f"add '{word}' to 'params'",
                fix=respelled(at, word, params, with_gap(text, word)),
            )
    return settled(read.type)
