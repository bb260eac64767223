"""Check: turn a spec into a typed graph, or report everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod
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
from ...specs.form import SpecForm, in_order
from ...specs.json_tree import parts_of
from ...specs.load import inlined
from ...specs.lost_parts import NOTHING, Lost
from ...specs.references import references
from ...specs.text_edits import Fix, removing, replacing
from ..ir.block_type import Registry
from ..ir.carrying import carried
from ..ir.graph import Graph, Node, RepeatNode, Scope
from ..ir.losses import uncountable
from ..ir.traverse import model_of, scopes
from ..ir.value_type import ValueType, free_names, same_type, settled
from .block_params import check_choice, report_idle
from .declarations import (
    check_budgets,
    check_names,
    check_requirements,
    evaluate_params,
    ignored_inputs,
    unused_templates,
    within_limits,
)
from .decoding import check_segments, check_step, segments_of
from .records import (
    MISSING,
    CheckContext,
    Checker,
    Doubts,
    FindingSet,
    Memo,
    ParamValues,
    TooManyFindingsError,
)
from .scopes import infer_scope, infer_template, template_ports, type_of_text
from .template_params import Setting, check_declared, inside
from .weights import check_ties, resolved_rules, ties_fit, united, written_out
from .wiring import Given


def check(
    spec: SpecForm,
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
            complete, and neither those without effect nor unread inputs of templates are reported.

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
    spec: SpecForm,
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
    spec: SpecForm,
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
    findings, insides = FindingSet(source, lost), dict[str, Scope]()
    graph: Graph | None = None
    with suppress(TooManyFindingsError):
        checker = _checker(spec, registry, overrides, findings, outer, checked=checked)
        graph = _analyse(checker, insides, checked=checked)
    return Explored(graph, insides, findings.all)


def _checker(
    spec: SpecForm,
    registry: Registry,
    overrides: Mapping[str, Any],
    findings: FindingSet,
    outer: tuple[str, ...],
    *,
    checked: bool,
) -> Checker:
    """Return the records of a check, after that of names, params, requirements and limits."""
    inputs = {name: template.inputs for name, template in spec.blocks.items()}
    check_names(spec, findings)
    values = evaluate_params(spec, overrides, findings)
    check_requirements(spec, values, findings)
    context = CheckContext(
        spec=spec,
        registry=registry,
        values=values,
        analyse=analyse,
        infer_template=infer_template,
        ignored=inputs if checked else ignored_inputs(spec),
        lost=findings.lost,
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
    _carry_in(checker, root)
    if not checked:
        report_idle(findings)
    small = within_limits(root, findings) and ties_fit(spec, root, findings)
    check_ties(checker, root, expand=small)
    written = spec.model_copy(update={"params": {**spec.params, **values.written}})
    ties = (*written_out(spec, root, expand=small), *(ties_of_models(root) if small else ()))
    graph = Graph(
        name=spec.name,
        doc=spec.doc,
        # After a mistake, a spec that holds itself could be written out without end.
        spec=written if findings.all else self_contained(written, context, memo),
        source=context.source,
        params=values.resolved,
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
        _check_counted(graph, findings)
    if graph.step_axis is not None and not holds_models(root):
        check_step(graph, checker, complete=not (findings.all or context.lost.places))
    check_budgets(graph, context, findings, doubts, small=small)
    return graph


def _check_unused(checker: Checker) -> None:
    """Report templates and params that nothing uses, and check the inside of those templates."""
    context, findings, memo, _ = checker
    check_declared(checker)
    spec, values = context.spec, context.values
    # A template that a param chooses in the file counts as used, even if an override replaces it.
    choices = [value.get("use") for value in spec.params.values() if isinstance(value, dict)]
    for name in unused_templates(spec, values.resolved):
        ports = template_ports(inside(checker, name, Setting()).context, findings, name)
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
    unread = [("", name) for name in spec.params if name not in values.read]
    unread += [
        (pointer("blocks", template), name)
        for template, record in spec.blocks.items()
        for name in record.params.keys() - memo.params_read.get(template, set())
    ]
    unread = [] if values.unclear else sorted(unread)
    texts = references(spec.model_dump(by_alias=True)) if unread else ()
    read = {(text.scope, text.name) for text in texts if text.kind == "param" and not text.in_key}
    for scope, name in unread:
        if (scope, name) not in read:
            at = scope + pointer("params", name)
            findings.report(
                code="W08",
                at=at,
                problem=f"nothing reads param '{name}'",
                help=f"use it as '={name}', or remove it",
                fix=removing(at),
            )


def _carry_in(checker: Checker, root: Scope) -> None:
    """Say how templates can read the values from outside that they name."""
    spec, findings = checker.context.spec, checker.findings
    bodies = [body for body in checker.memo.typed.values() if body is not None]
    sources = set[str]()
    for number, finding in enumerate(findings.all):
        match parts_of(finding.at) if finding.code == "N02" else ():
            case ("blocks", template, "outputs", port):
                value = spec.blocks[template].outputs[port]
            case ("blocks", template, "nodes", node, "in", port):
                value = spec.blocks[template].nodes[node].in_[port]
            case _:
                continue
        params = checker.context.values.resolved
        way = carried(spec, params, template, value, root, bodies)
        if way is None:
            continue
        sources |= way.sources
        wiring = f"wire '{value}' to it wherever the template is used"
        help_ = f"inside template '{template}' it is called '{way.name}'"
        if way.type:
            inputs = ", ".join(sorted(spec.blocks[template].inputs))
            help_ = f"template '{template}' reads only its own inputs, {inputs}, and its nodes:"
            help_ += f" give it an input '{way.name}' of type {way.type}, and {wiring}"
        elif way.edits:
            help_ += f"; {wiring}"
        renamed_wire = replacing(finding.at, way.name).edits if way.name != value else ()
        fix = Fix((*way.edits, *renamed_wire), certain=True)
        findings.all[number] = replace(finding, help=help_, fix=fix)
    unread = [f for f in findings.all if f.code in ("W03", "W04") and f.at in sources]
    findings.all[:] = [finding for finding in findings.all if finding not in unread]


def _check_output_types(context: CheckContext, findings: FindingSet, root: Scope) -> None:
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
                fix=renamed(at, name, spec.outputs),
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


def _inputs(context: CheckContext, findings: FindingSet) -> dict[str, ValueType | None]:
    """Return the types of a spec's inputs, which may not contain free names."""
    return {
        name: read_type(context, findings, text, pointer("inputs", name), f"input '{name}'")
        for name, text in context.spec.inputs.items()
    }


def read_type(
    context: CheckContext, findings: FindingSet, text: str, at: str, what: str
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


_NO_MODEL = "add a node that uses a param with a spec and is not frozen, or remove 'deploy'"


def self_contained(spec: SpecForm, context: CheckContext, memo: Memo) -> SpecForm:
    """Return a spec in which complete specs replace the names of the specs that params hold."""
    params = {
        name: inlined(spec.params[name], context.source, loaded)
        for name, loaded in memo.models.items()
        if loaded is not None and not loaded.mistakes and isinstance(spec.params.get(name), dict)
    }
    return spec.model_copy(update={"params": {**spec.params, **params}}) if params else spec


def ties_of_models(root: Scope) -> tuple[tuple[str, ...], ...]:
    """Return the tied parameters of the models in a graph, by their paths in the graph."""
    return tuple(
        tuple(f"{module}.{path}" for path in group)
        for module, model in _models(root, "")
        for group in model.ties
    )


def _models(scope: Scope, before: str) -> Iterator[tuple[str, Graph]]:
    """Yield the outermost models below a scope with the paths of their modules."""
    if not holds_models(scope):
        return
    for node in scope.nodes:
        model, path = model_of(node), f"{before}{node.name}"
        if node.shares:
            continue
        if model is not None:
            yield path, model
        elif isinstance(node, RepeatNode):
            for below, body in node.owners():
                yield from _models(body, f"{path}.{below}")
        else:
            for below, body, _ in node.insides():
                yield from _models(
                    body, f"{path}{below.replace('/', '.')}" if below else f"{path}."
                )


def holds_models(root: Scope) -> bool:
    """Return whether a node of a graph contains a model."""
    return any(model_of(node) for scope in scopes(root) for node in scope.nodes)


def deployed(spec: SpecForm, root: Scope) -> str | None:
    """Return the node whose model training leaves behind: the only one that it can be, or none."""
    models = [node.name for node in _trained(root)]
    if spec.deploy is not None:
        return spec.deploy if spec.deploy in models else None
    return models[0] if len(models) == 1 else None


def _trained(root: Scope) -> Iterator[Node]:
    """Yield the nodes with models that train."""
    for node in root.nodes:
        if model_of(node) and not node.shares and not node.frozen:
            yield node


def loss_weights(
    spec: SpecForm, values: ParamValues, root: Scope, findings: FindingSet
) -> dict[str, float]:
    """Return the weight of every loss, and report weights that are not numbers."""
    losses = [name for name, type_ in root.gives().items() if type_.kind == "loss"]
    weights = dict.fromkeys(losses, 1.0)
    for name, text in spec.losses.items():
        at = pointer("losses", name)
        value = values.resolve(text, at)
        if name not in spec.outputs or (name in root.outputs and name not in weights):
            findings.report(
                code="O02",
                at=at,
                problem=f"'{name}' is not a loss: no output of kind 'loss' has this name",
                help=did_you_mean(name, losses)
                or "add an output that reads a loss block, or remove the weight",
                fix=renamed(at, name, losses),
            )
        elif value is not MISSING and name in weights:
            if isinstance(value, bool) or not isinstance(value, int | float):
                findings.report(
                    code="O02",
                    at=at,
                    problem=f"the weight of loss '{name}' is not a number",
                    help="write a number, such as 0.5, or an expression that reads a param",
                )
            else:
                weights[name] = float(value)
    return weights


def check_objective(spec: SpecForm, graph: Graph, findings: FindingSet) -> None:
    """Report what is wrong with the losses and the models of an objective."""
    trained = [node.name for node in _trained(graph.root)]
    if spec.deploy is not None and spec.deploy not in trained and spec.deploy in spec.nodes:
        placed = any(node.name == spec.deploy for node in graph.root.nodes)
        if placed:
            findings.report(
                code="O01",
                at="/deploy",
                problem=f"node '{spec.deploy}' has no model that trains",
                help=did_you_mean(spec.deploy, trained) or _NO_MODEL,
            )
    elif spec.deploy is not None and spec.deploy not in spec.nodes:
        findings.report(
            code="O01",
            at="/deploy",
            problem=f"there is no node '{spec.deploy}' to deploy",
            help=did_you_mean(spec.deploy, trained) or _NO_MODEL,
            fix=respelled("/deploy", spec.deploy, trained),
        )
    complete = graph.outputs.keys() == spec.outputs.keys()
    if graph.step_axis is not None and holds_models(graph.root):
        findings.report(
            code="O05",
            at="/step",
            problem="a spec that decodes step by step cannot hold a model in a param",
            help="import it as a template, with 'spec' in 'blocks', or remove 'step'",
        )
    elif trained and complete and not graph.losses and (spec.deploy or spec.losses):
        findings.report(
            code="O03",
            at="/outputs",
            problem="none of the outputs of this objective is a loss",
            help="add an output that reads a loss block, such as cross_entropy@1",
        )
    if graph.losses:
        for node in _trained(graph.root):
            _check_outputs(spec, graph.root, node, findings)


def _check_counted(graph: Graph, findings: FindingSet) -> None:
    """Report losses inside templates whose items cannot be counted before the templates run."""
    for at, problem in dict(uncountable(graph.root)).items() if graph.losses else ():
        findings.report(
            code="O07",
            at=at,
            problem="the items of the loss of a template are counted before it runs, and"
            f" {problem}",
            help="compute what the loss counts, such as its mask or its labels, at the top, and"
            " wire it to an input of the template",
        )


def _check_outputs(spec: SpecForm, root: Scope, node: Node, findings: FindingSet) -> None:
    """Report outputs of a model that nothing reads although they have parameters of their own."""
    model = model_of(node)
    if model is None:
        return
    names = {other.name for other in root.nodes if other.module == node.name}
    wires = {value for record in spec.nodes.values() for value in record.in_.values()}
    wires |= set(spec.outputs.values())
    unread = [
        port
        for port, type_ in model.outputs.items()
        if type_.kind != "loss" and not any(f"{name}.{port}" in wires for name in names)
    ]
    read = [port for port in model.outputs if port not in unread]
    used = _behind(model.root, read)
    for port in unread:
        unused = _behind(model.root, [port]) - used
        size = sum(
            prod(shape)
            for inner in model.root.nodes
            if inner.name in unused
            for shape in inner.weights().values()
        )
        if size:
            findings.report(
                code="O04",
                at=node.at,
                problem=f"nothing reads output '{port}' of '{node.name}', so that its"
                f" {size:,} parameters do not train",
                help=f"wire '{node.name}.{port}' to a loss, or use a model without this output",
            )


def _behind(scope: Scope, ports: Iterable[str]) -> set[str]:
    """Return the nodes that some outputs of a scope depend on."""
    nodes = {node.name: node for node in scope.nodes}
    waiting = [scope.outputs[port].partition(".")[0] for port in ports if port in scope.outputs]
    visited: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in nodes and name not in visited:
            visited.add(name)
            waiting += [value.partition(".")[0] for value in nodes[name].wires.values()]
    return visited
