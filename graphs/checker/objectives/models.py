"""Models: type a node that contains the model which a param holds.

The model is checked as a spec of its own, in its own axes.  Then its inputs are matched with the
wires of the node like the ports of a template, which gives what its axes stand for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from ....specs.expressions import is_expression
from ....specs.findings import (
    Finding,
    InputError,
    SpecError,
    did_you_mean,
    nearest_shipped,
    pointer,
    renamed,
    respelled,
)
from ....specs.form import Use, UseNode, holds_spec
from ....specs.held import KEYS, load_held, spec_names
from ....specs.load import LoadedSpec
from ...ir.block_type import Port
from ...ir.dims import UNKNOWN
from ...ir.graph import Graph, Scope, TemplateNode
from ...ir.value_type import sizes_of_inputs, substitute
from ...order import leading
from ..ports import Given, Reads, as_meant, fit_ports, report_unknown_ports, report_unwired
from ..records import Checker, Context, Findings, holds_missing
from .renamed import in_axes

MOST_NESTED = 4
"""Maximum number of models inside each other."""
MOST_HELD = 10_000
"""Maximum number of nodes of all models that a spec holds; copies of a repeat count once."""


def model_named(context: Context, use: Use) -> str:
    """Return the param that holds the model which a node uses, or ``""``."""
    name = use.use[1:].strip() if is_expression(use.use) else ""
    return name if holds_spec(context.values.known.get(name)) else ""


def infer_model(
    checker: Checker, key: str, node: UseNode, given: Reads, at: str
) -> tuple[TemplateNode | None, tuple[str, ...] | None]:
    """Type a node that contains a model.

    Args:
        checker: the state that the scopes share.
        key: the name of the node.
        node: the node as written; its `use` names the param that holds the model.
        given: port to the value that it reads.
        at: JSON Pointer of the node.

    Returns:
        The node, or None after a mistake; and the names of its outputs, if they are known.
    """
    name = model_named(checker.context, node)
    checker.context.values.read.add(name)
    home, value = checker.context.values.place_of(name), checker.context.values.known[name]
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
    graph = _graph(checker, value, loaded, given, home)
    if graph is None:
        return None, ports
    names = {axis: f"axis_{axis.lower()}" for axis in graph.spec.axes}
    takes = [Port(port, substitute(type_, dict(names))) for port, type_ in graph.inputs.items()]
    report_unknown_ports(
        checker.findings, checker.doubts, graph.inputs, given, name, at + pointer("in")
    )
    before = checker.doubts.misfits
    fitted = fit_ports(checker, takes, as_meant(takes, given), {}, name, at + pointer("in"))
    report_unwired(checker, takes, given, name, at)
    certain = fitted.certain(checker.doubts.misfits - before)
    before, checker.memo.held_nodes = (
        checker.memo.held_nodes,
        checker.memo.held_nodes + nodes_of(graph.root),
    )
    if checker.memo.held_nodes > MOST_HELD:
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
    if same not in checker.memo.held:
        checker.memo.held[same] = in_axes(graph.root, axes)
    body = checker.memo.held[same]
    made = TemplateNode(
        name=key,
        at=at,
        wires=leading(node.in_, body.inputs),
        outputs=body.gives(),
        body=body,
        model=graph,
    )
    return made, ports


def _loaded(checker: Checker, name: str, value: Mapping[str, Any], home: str) -> LoadedSpec | None:
    """Load the spec of a model once, and report why it cannot be loaded."""
    if name in checker.memo.models:
        return checker.memo.models[name]
    checker.memo.models[name] = None
    found: LoadedSpec | None = None
    for extra in (word for word in value if word not in KEYS):
        checker.findings.report(
            code="P03",
            at=home + pointer(extra),
            problem=f"a param that holds a spec has no key '{extra}'",
            help=did_you_mean(extra, KEYS),
            fix=renamed(home + pointer(extra), extra, KEYS, value),
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
        found = load_held(value, checker.context.source)
    except SpecError as error:
        for finding in error.findings:
            _adopt(checker.context, checker.findings, finding, None, home)
        return None
    except InputError as error:
        checker.findings.report(code="N08", at=home + pointer("spec"), problem=str(error)[:200])
        return None
    if found is None:
        named = str(value["spec"])
        # A path is not a valid name, but its last part may be one.
        word, known = named.rpartition("/")[2], spec_names(checker.context.source)
        checker.findings.report(
            code="N08",
            at=home + pointer("spec"),
            problem=f"unknown spec '{named}'",
            help=nearest_shipped(word, known),
            fix=respelled(home + pointer("spec"), word, known),
        )
    checker.memo.models[name] = found
    return found


def _graph(
    checker: Checker, value: Mapping[str, Any], loaded: LoadedSpec, given: Reads, home: str
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
            fix=renamed(where, key, spec.params, value.get("params", {})),
        )
    wired = {port: read.type for port, read in given.items() if isinstance(read, Given)}
    params |= sizes_of_inputs(spec.inputs, spec.params.keys() - params.keys(), wired)
    same = ("model", home, json.dumps(params, sort_keys=True, default=str))
    if same in checker.memo.held:
        return cast("Graph | None", checker.memo.held[same])
    own = replace(loaded, overrides=params)
    graph, findings = checker.context.analyse(
        spec,
        checker.context.registry,
        params,
        source=loaded.source,
        lost=loaded.lost,
        outer=(*checker.context.outer, checker.context.source),
    )
    for finding in [*loaded.mistakes, *(own.place(each) for each in findings)]:
        _adopt(checker.context, checker.findings, finding, own, home)
    checker.memo.held[same] = None if loaded.mistakes else graph
    return cast("Graph | None", checker.memo.held[same])


def _adopt(
    context: Context, findings: Findings, finding: Finding, model: LoadedSpec | None, home: str
) -> None:
    """Report a finding about a model: in its file, or at the param that sets a wrong value."""
    _, name, *_ = [*finding.at.split("/", 2)[1:], "", ""]
    patched = finding.source == context.source and finding.at.startswith("/patch/")
    overridden = model and finding.source != model.source and name in model.overrides
    if patched or overridden:
        _report_at(findings, finding, home)
    else:
        findings.all.append(replace(finding, placed=True))


def _report_at(findings: Findings, finding: Finding, home: str) -> None:
    """Report a finding about a part of the param that holds a model."""
    findings.report(
        code=finding.code,
        at=home + finding.at,
        problem=finding.problem,
        evidence=finding.evidence,
        help=finding.help,
    )


def nodes_of(scope: Scope) -> int:
    """Return the number of nodes of a scope, those of its models included."""
    return sum(
        nodes_of(node.model.root) if isinstance(node, TemplateNode) and node.model else 1
        for node in scope.nodes
    )
