"""Nesting: nodes that contain a template several times, or the model that a param holds.

A carried value leaves one copy and enters the next, so its type must not change.  A collected
value is stacked along a new first axis.  A copy that uses another template must take the same
inputs and return the same types.

A model is checked as a spec of its own, in its own axes.  Then its inputs are matched with the
wires of the node like the ports of a template, which gives what its axes stand for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from ...specs import form
from ...specs.expressions import is_expression
from ...specs.findings import (
    Finding,
    InputError,
    SpecError,
    did_you_mean,
    nearest_shipped,
    pointer,
    renamed,
    respelled,
)
from ...specs.form import (
    MOST_COPIES,
    Use,
    UseNode,
    holds_spec,
    is_number,
    number_of_copies,
    selected_copies,
)
from ...specs.json_tree import parts_of
from ...specs.load import KEYS, LoadedSpec, load_held, spec_names
from ...specs.text_edits import Fix, below, replacing
from ...specs.wording import converted
from ..ir.block_type import Port
from ..ir.graph import (
    Graph,
    RepeatNode,
    Scope,
    TemplateNode,
    leading,
)
from ..ir.value_type import UNKNOWN, ValueType, same_type, sizes_of_inputs, substitute
from .records import MISSING, CheckContext, Checker, Doubts, FindingSet, holds_missing
from .renamed_axes import in_axes
from .template_params import CopyValues
from .wiring import Given, Reads, as_meant, fit_ports, report_unknown_ports, report_unwired


def read_count(
    context: CheckContext, findings: FindingSet, node: form.RepeatedTemplate, at: str
) -> Any:
    """Return the number of copies of a repeat, or `MISSING` if it is wrong and reported."""
    location = at + pointer("repeat")
    count = context.values.resolve(node.repeat, location)
    if count is MISSING:
        return MISSING
    if (number := number_of_copies(count)) is not None:
        return number
    if isinstance(count, str):
        context.values.read.add(count)  # most likely meant with a `=`
    where = context.values.blame(node.repeat, location)
    if where is not None:
        findings.report(
            code="P05",
            at=where,
            problem=f"'repeat' is {json.dumps(count, default=str)},"
            f" not a whole number from 1 to {MOST_COPIES:,}",
            evidence=(f"read at {location}",),
            help="write the number of copies, such as 6 or '=layers'",
            fix=_written_count(context, count, where),
        )
    return MISSING


def _written_count(context: CheckContext, count: Any, at: str) -> Fix | None:
    """Return the fix of a number of copies that was written as text, or without a `=`."""
    if isinstance(count, str) and count in context.values.written:
        return replacing(at, f"={count}", certain=True)
    return converted(at, "int", count)


def copies_selected(
    checker: Checker,
    node: form.RepeatedTemplate,
    key: str,
    count: Any,
    taken: Mapping[int, str],
    by_copy: CopyValues,
    at: str,
) -> Sequence[int]:
    """Return the separate copies that a key of `instead` selects, and report if it cannot.

    Args:
        checker: the state that the scopes share.
        node: the repeat as written.
        key: a number, a slice or an expression.
        count: number of copies, or `MISSING`: then a slice selects none.
        taken: copy to the key that selects it already.
        by_copy: the values that an expression reads.
        at: JSON Pointer of the key.
    """
    findings = checker.findings
    if node.share:
        findings.report(
            code="P07",
            at=at,
            problem=f"copy {key} cannot use another template: all copies share their weights",
            help="remove 'share', or patch every copy",
        )
        return ()
    if count is MISSING:
        return (int(key),) if is_number(key) else ()
    evidence = (f"repeat {count}  at {at.rpartition('/instead/')[0]}/repeat",)
    if is_expression(key):
        true = by_copy.selected(checker, key, at)
        if true == []:
            findings.report(
                code="P07",
                at=at,
                problem=f"'{key}' is true for none of the {count} copies",
                evidence=evidence,
                help="change what it reads, or remove it",
            )
        return _separate(findings, key, true or (), taken, evidence, at)
    selected = selected_copies(key, count)
    if not selected:
        findings.report(
            code="P07",
            at=at,
            problem=f"the slice '{key}' selects none of the {count} copies",
            evidence=evidence,
            help="write start:stop:step, such as '2::3' for the copies 2, 5, 8 and so on",
        )
    elif not 0 <= selected[0] <= selected[-1] < count:
        findings.report(
            code="P07",
            at=at,
            problem=f"there is no copy {key}: the copies are 0 to {count - 1}",
            evidence=evidence,
            help="name an existing copy",
        )
        return ()
    return _separate(findings, key, selected, taken, evidence, at)


def _separate(
    findings: FindingSet,
    key: str,
    selected: Sequence[int],
    taken: Mapping[int, str],
    evidence: tuple[str, ...],
    at: str,
) -> list[int]:
    """Return the copies that no other key selects, and report those that one does."""
    overlap = [index for index in selected if index in taken]
    if overlap:
        findings.report(
            code="P07",
            at=at,
            problem=f"both '{taken[overlap[0]]}' and '{key}' select copy {overlap[0]}",
            evidence=evidence,
            help="change one of them, so that each copy has one template",
        )
    return [index for index in selected if index not in taken]


def fit_repeat(
    checker: Checker,
    key: str,
    node: form.RepeatedTemplate,
    count: Any,
    body: Scope,
    others: Mapping[int, Scope],
    taken: Mapping[int, str],
    at: str,
) -> RepeatNode:
    """Return the repeat, and report where its copies do not fit together.

    Args:
        checker: the state that the scopes share.
        key: the node's name.
        node: the repeat as written.
        count: number of copies, or `MISSING`.
        body: the inside of its template.
        others: the insides of copies that use another template, by number.
        taken: copy to the key of `instead` that selects it.
        at: JSON Pointer of the node.
    """
    check_outputs(checker, node, body, at)
    types = body.gives()
    other_places = {
        (pointer("instead", taken[index]) if index in taken else "/params"): (index, other)
        for index, other in others.items()
    }
    for where, (index, other) in other_places.items():
        copy = "this copy" if index in taken else f"copy {index}"
        _check_same(checker.context, checker.findings, node, body, other, copy, at + where)
    if len(others) == count:
        body = others[0]
    others = {index: other for index, other in others.items() if other is not body}
    # A carried value has the type that enters, whatever leaves.
    enters = {**types, **body.inputs}
    outputs = {port: enters[port] for port in enters if port in node.carry}
    for port in node.collect:
        if outputs.pop(port, None) is None and port in types:
            type_, copies_ = types[port], UNKNOWN if count is MISSING else count
            outputs[port] = ValueType(type_.kind, (copies_, *type_.axes), type_.size)
    repeat = 1 if count is MISSING else count
    return RepeatNode(
        name=key,
        at=at,
        wires=leading(node.in_, body.inputs),
        outputs=outputs,
        body=body,
        repeat=repeat,
        carry=tuple(sorted(node.carry)),
        collect=tuple(sorted(node.collect)),
        share=node.share,
        instead={index: other for index, other in others.items() if index < repeat},
    )


def check_outputs(
    checker: Checker, node: form.RepeatedTemplate, body: Scope | None, at: str
) -> None:
    """Report outputs of a repeat that are not valid.

    Args:
        checker: the state that the scopes share.
        node: the repeat as written.
        body: the inside of its template; None if a mistake in it leaves the types unknown.
        at: JSON Pointer of the node.
    """
    template = checker.context.spec.blocks.get(node.block)
    if template is not None and node.block not in checker.memo.inside:
        _check_carry(checker.findings, checker.doubts, node, body, template.outputs, at)
        _check_collect(checker.findings, node, template.outputs, at)


def _check_carry(
    findings: FindingSet,
    doubts: Doubts,
    node: form.RepeatedTemplate,
    body: Scope | None,
    outputs: Mapping[str, str],
    at: str,
) -> None:
    """Report carried ports that are not valid."""
    name = node.block
    types = body.gives() if body is not None else {}
    for index, port in enumerate(node.carry):
        location = at + pointer("carry", index)
        if port not in outputs or port not in node.in_:
            side = "an output" if port not in outputs else "a wired input"
            findings.report(
                code="N03",
                at=location,
                problem=f"carry '{port}' is not {side} of '{name}'",
                help=did_you_mean(port, outputs if port not in outputs else node.in_),
                fix=respelled(location, port, set(outputs) - {*node.carry}),
            )
        elif (
            body is not None
            and port in types
            and port in body.inputs
            and not same_type(types[port], body.inputs[port])
        ):
            doubts.crossed |= {name} if types[port].axes != body.inputs[port].axes else set()
            findings.report(
                code="T05",
                at=location,
                problem=f"carry '{port}' changes its type from copy to copy",
                evidence=(
                    f"enters {body.inputs[port]}  as input '{port}' of '{name}'",
                    f"leaves {types[port]}  as output '{port}', by {body.outputs[port]}",
                ),
                help=f"make '{name}' return the type that it takes",
            )
    if not node.carry and not node.collect:
        findings.report(
            code="W10",
            at=at,
            problem="the repeat has no outputs: both 'carry' and 'collect' are empty",
            help="name an output of its template in 'carry' or 'collect'",
        )


def _check_collect(
    findings: FindingSet, node: form.RepeatedTemplate, outputs: Mapping[str, str], at: str
) -> None:
    """Report collected ports that are not valid."""
    for index, port in enumerate(node.collect):
        location = at + pointer("collect", index)
        if port not in outputs:
            findings.report(
                code="N03",
                at=location,
                problem=f"collect '{port}' is not an output of '{node.block}'",
                help=did_you_mean(port, outputs),
                fix=respelled(location, port, set(outputs) - {*node.carry, *node.collect}),
            )
        elif port in node.carry:
            findings.report(
                code="W10",
                at=location,
                problem=f"'{port}' is both carried and collected, so it would have two values",
                help=f"give '{node.block}' a second output with the same value, and collect that",
            )


def _check_same(
    context: CheckContext,
    findings: FindingSet,
    node: form.RepeatedTemplate,
    body: Scope,
    other: Scope,
    copy: str,
    at: str,
) -> None:
    """Report outputs in which a copy, by its name in findings, differs from the other copies."""
    types, other_types = body.gives(), other.gives()
    for port in (*node.carry, *node.collect):
        unknown = port in context.spec.blocks[other.name].outputs and port not in other_types
        expected = types.get(port) or (body.inputs.get(port) if port in node.carry else None)
        if expected is None or unknown:
            continue
        if port not in other_types or not same_type(other_types[port], expected):
            leaves = (
                f"given  {other_types[port]}"
                if port in other_types
                else f"'{other.name}' has no '{port}'"
            )
            findings.report(
                code="T07",
                at=at,
                problem=f"output '{port}' of {copy} differs from that of the other copies",
                evidence=(leaves, f"wanted {expected}  as output '{port}' of '{node.block}'"),
                help=f"make '{other.name}' return the types of '{node.block}'",
            )


MOST_NESTED = 4
"""Maximum number of models inside each other."""
MOST_HELD = 10_000
"""Maximum number of nodes of all models that a spec holds; copies of a repeat count once."""


def model_named(context: CheckContext, use: Use) -> str:
    """Return the param that holds the model which a node uses, or ``""``."""
    name = use.use[1:].strip() if is_expression(use.use) else ""
    return name if holds_spec(context.values.resolved.get(name)) else ""


def infer_model(
    checker: Checker, key: str, node: UseNode, inputs: Reads, at: str
) -> tuple[TemplateNode | None, tuple[str, ...] | None]:
    """Type a node that contains a model.

    Args:
        checker: the state that the scopes share.
        key: the name of the node.
        node: the node as written; its `use` names the param that holds the model.
        inputs: port to the value that it reads.
        at: JSON Pointer of the node.

    Returns:
        The node, or None after a mistake; and the names of its outputs, if they are known.
    """
    name = model_named(checker.context, node)
    checker.context.values.read.add(name)
    home, value = checker.context.values.place_of(name), checker.context.values.resolved[name]
    if node.params or node.fill:
        what = "params" if node.params else "fill"
        checker.findings.report(
            code="N04",
            at=at + pointer(what),
            problem=f"a node with the model '{name}' takes no {what}",
            help=f"set the params of the model in 'params' of '{name}'",
        )
    loaded = _loaded(checker, name, value, home)
    if loaded is None:
        return None, None
    ports = tuple(loaded.recovered.outputs)
    graph = _graph(checker, value, loaded, inputs, home)
    if graph is None:
        return None, ports
    names = {axis: f"axis_{axis.lower()}" for axis in graph.spec.axes}
    takes = [Port(port, substitute(type_, dict(names))) for port, type_ in graph.inputs.items()]
    report_unknown_ports(
        checker.findings, checker.doubts, graph.inputs, inputs, name, at + pointer("in")
    )
    before = checker.doubts.misfits
    fitted = fit_ports(checker, takes, as_meant(takes, inputs), {}, name, at + pointer("in"))
    report_unwired(checker, takes, inputs, name, at)
    certain = fitted.certain(checker.doubts.misfits - before)
    before, checker.memo.nested_nodes = (
        checker.memo.nested_nodes,
        checker.memo.nested_nodes + nodes_of(graph.root),
    )
    if checker.memo.nested_nodes > MOST_HELD:
        if before <= MOST_HELD:
            checker.findings.report(
                code="P06",
                at=at,
                problem=f"the models that params hold have more than {MOST_HELD:,} nodes",
                help="hold fewer models, or nest them less deeply",
            )
        return None, ports
    axes = {axis: certain.get(free, UNKNOWN) for axis, free in names.items()}
    same = ("body", id(graph), tuple(axes.items()))
    if same not in checker.memo.nested:
        checker.memo.nested[same] = in_axes(graph.root, axes)
    body = checker.memo.nested[same]
    model_node = TemplateNode(
        name=key,
        at=at,
        wires=leading(node.in_, body.inputs),
        outputs=body.gives(),
        body=body,
        model=graph,
    )
    return model_node, ports


def _loaded(checker: Checker, name: str, value: Mapping[str, Any], home: str) -> LoadedSpec | None:
    """Load the spec of a model once, and report why it cannot be loaded."""
    if name in checker.memo.models:
        return checker.memo.models[name]
    checker.memo.models[name] = None
    loaded: LoadedSpec | None = None
    for extra in (word for word in value if word not in KEYS):
        checker.findings.report(
            code="P03",
            at=home + pointer(extra),
            problem=f"a param that holds a spec has no key '{extra}'",
            help=did_you_mean(extra, KEYS),
            fix=renamed(home + pointer(extra), extra, KEYS),
        )
    if len(checker.context.outer) >= MOST_NESTED:
        checker.findings.report(
            code="W06",
            at=home,
            problem=f"models are nested more than {MOST_NESTED} levels deep",
            help="wire the models side by side",
        )
        return None
    is_object = isinstance(value.get("params", {}), dict)
    if not is_object:
        checker.findings.report(
            code="S04",
            at=home + "/params",
            problem="'params' must be an object",
            help='write the params of the model, such as {"layers": 3}',
        )
    if holds_missing(value) or not is_object:
        return None
    try:
        loaded = load_held(value, checker.context.source)
    except SpecError as error:
        for finding in error.findings:
            _adopt(checker.context, checker.findings, finding, None, home)
        return None
    except InputError as error:
        checker.findings.report(code="N08", at=home + pointer("spec"), problem=str(error)[:200])
        return None
    if loaded is None:
        reference = str(value["spec"])
        # A path is not a valid name, but its last part may be one.
        word, candidates = reference.rpartition("/")[2], spec_names(checker.context.source)
        checker.findings.report(
            code="N08",
            at=home + pointer("spec"),
            problem=f"unknown spec '{reference}'",
            help=nearest_shipped(word, candidates),
            fix=respelled(home + pointer("spec"), word, candidates),
        )
    checker.memo.models[name] = loaded
    return loaded


def _graph(
    checker: Checker, value: Mapping[str, Any], loaded: LoadedSpec, inputs: Reads, home: str
) -> Graph | None:
    """Return the graph of a model with its params, or None if it has mistakes, reported.

    Nodes with the same model and the same sizes have one graph, so that it is checked once.
    """
    spec = loaded.recovered
    params = {**value.get("params", {})}
    for key in [key for key in params if key not in spec.params]:
        del params[key]
        where = home + pointer("params", key)
        checker.findings.report(
            code="P04",
            at=where,
            problem=f"'{key}' is not a param of '{spec.name}'",
            help=did_you_mean(key, spec.params),
            fix=renamed(where, key, spec.params),
        )
    wired = {port: read.type for port, read in inputs.items() if isinstance(read, Given)}
    params |= sizes_of_inputs(spec.inputs, spec.params.keys() - params.keys(), wired)
    same = ("model", home, json.dumps(params, sort_keys=True, default=str))
    if same in checker.memo.nested:
        return cast("Graph | None", checker.memo.nested[same])
    configured = replace(loaded, overrides=params)
    graph, findings = checker.context.analyse(
        spec,
        checker.context.registry,
        params,
        source=loaded.source,
        lost=loaded.lost,
        outer=(*checker.context.outer, checker.context.source),
    )
    for finding in [*loaded.mistakes, *(configured.place(nested) for nested in findings)]:
        _adopt(checker.context, checker.findings, finding, configured, home)
    checker.memo.nested[same] = None if loaded.mistakes else graph
    return cast("Graph | None", checker.memo.nested[same])


def _adopt(
    context: CheckContext,
    findings: FindingSet,
    finding: Finding,
    model: LoadedSpec | None,
    home: str,
) -> None:
    """Report a finding about a model: in its file, or at the param that sets a wrong value."""
    name = [*parts_of(finding.at), "", ""][1]
    patched = finding.source == context.source and finding.at.startswith("/patch/")
    overridden = model and finding.source != model.source and name in model.overrides
    if patched or overridden:
        _report_at(findings, finding, home)
    else:
        findings.all.append(replace(finding, placed=True))


def _report_at(findings: FindingSet, finding: Finding, home: str) -> None:
    """Report a finding about a part of the param that holds a model."""
    findings.report(
        code=finding.code,
        at=home + finding.at,
        problem=finding.problem,
        evidence=finding.evidence,
        help=finding.help,
        fix=finding.fix and below(finding.fix, home),
    )


def nodes_of(scope: Scope) -> int:
    """Return the number of nodes of a scope, those of its models included."""
    return sum(
        nodes_of(node.model.root) if isinstance(node, TemplateNode) and node.model else 1
        for node in scope.nodes
    )
