"""Infer: wire and type the nodes of a scope, reporting every wire that does not fit.

A value that could not be typed is left out and the nodes that read it stay
silent, so one mistake gives one finding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import networkx as nx

from ..specs.findings import did_you_mean, pointer
from ..specs.form import RepeatNode, UseNode
from .graph import Node, Scope
from .params import MISSING
from .parts import infer_part
from .ports import Checker, Given, Reads, fit_ports, report_unknown_output
from .shapes import TypeTextError, ValueType, parse_type, substitute
from .signature import Port

MOST_COPIES = 10_000
"""Copies that one repeat may have."""


def type_of_text(checker: Checker, text: str, at: str) -> tuple[ValueType, bool] | None:
    """Read a type of the spec, or report why it is none."""
    names = {k: v for k, v in checker.values.known.items() if v is not MISSING}
    try:
        type_, optional = parse_type(text, names, checker.axes)
    except TypeTextError as error:
        help_ = did_you_mean(error.word, error.known) if error.word else ""
        checker.report(code=error.code, at=at, problem=str(error), help=help_)
        return None
    for name in names:
        if name in text:
            checker.values.read.add(name)
    return type_, optional


def infer_scope(
    checker: Checker,
    name: str,
    nodes: Mapping[str, UseNode | RepeatNode],
    outputs: Mapping[str, str],
    inputs: Mapping[str, ValueType | None],
    at: str,
    doc: str = "",
) -> Scope:
    """Wire, order and type the nodes of one scope.

    Args:
        checker: what the scopes of the spec share.
        name: the template's name, or the spec's.
        nodes: the nodes as written.
        outputs: port to the value it gives, as written.
        inputs: type of each input; None when it could not be known.
        at: JSON Pointer of the record that holds `nodes` and `outputs`.
        doc: what the scope is.

    Returns:
        The scope; nodes that could not be typed are missing from it.
    """
    order, broken = _order(checker, nodes, inputs, at)
    values: dict[str, Given | None] = {
        port: None if type_ is None else Given(type_, f"input {port}")
        for port, type_ in inputs.items()
    }
    placed = []
    for key in order:
        here = at + pointer("nodes", key)
        node = nodes[key]
        given = _reads(values, node.in_, broken)
        made = (
            _infer_repeat(checker, key, node, given, here)
            if isinstance(node, RepeatNode)
            else _infer_use(checker, key, node, given, here)
        )
        if made is None:
            broken.add(key)
            continue
        placed.append(made)
        for port, type_ in made.outputs.items():
            values[f"{key}.{port}"] = Given(type_, f"{key}.{port}")
    ends = {}
    for port, value in outputs.items():
        where = at + pointer("outputs", port)
        if _resolves(checker, value, nodes, inputs, values, broken, where):
            ends[port] = value
    _unused(checker, nodes, outputs, inputs, at)
    known = {port: type_ for port, type_ in inputs.items() if type_ is not None}
    return Scope(name=name, inputs=known, outputs=ends, nodes=tuple(placed), doc=doc)


def _order(
    checker: Checker,
    nodes: Mapping[str, UseNode | RepeatNode],
    inputs: Mapping[str, ValueType | None],
    at: str,
) -> tuple[list[str], set[str]]:
    """Return the nodes in an order in which they can run, and those that never can."""
    wiring, broken = nx.DiGraph(), set()
    wiring.add_nodes_from(nodes)
    for key, node in nodes.items():
        for port, value in node.in_.items():
            here = at + pointer("nodes", key, "in", port)
            source, dot, _ = value.partition(".")
            if dot and source in nodes:
                wiring.add_edge(source, key)
            elif not dot and value in inputs:
                continue
            else:
                broken.add(key)
                _report_unknown(checker, value, nodes, inputs, here)
    for knot in list(nx.strongly_connected_components(wiring)):
        first = min(knot)
        if len(knot) > 1 or wiring.has_edge(first, first):
            names = " -> ".join(n for n in sorted(knot))
            checker.report(
                code="W02",
                at=at + pointer("nodes", first),
                problem=f"nodes read each other in a circle: {names}",
                help="cut one of these wires; a value that returns is a 'carry' of a repeat",
            )
            broken |= knot
            wiring.remove_nodes_from(knot)
    return list(nx.lexicographical_topological_sort(wiring)), broken


def _report_unknown(
    checker: Checker,
    value: str,
    nodes: Mapping[str, Any],
    inputs: Mapping[str, Any],
    at: str,
) -> None:
    source, dot, port_ = value.partition(".")
    if dot:
        help_ = did_you_mean(source, nodes)
        checker.report(code="N02", at=at, problem=f"unknown node '{source}'", help=help_)
    elif source in nodes:
        checker.report(
            code="N02",
            at=at,
            problem=f"'{value}' is a node, not a value",
            help=f"name its port, such as '{value}.{port_ or 'y'}'",
        )
    else:
        names = [*inputs, *(f"{node}.y" for node in nodes)]
        help_ = did_you_mean(value, names)
        checker.report(code="N02", at=at, problem=f"unknown value '{value}'", help=help_)


def _reads(values: Mapping[str, Given | None], wires: Mapping[str, str], broken: set[str]) -> Reads:
    """Return what each port reads: a value, None (unknown type), or the missing name."""
    reads: dict[str, Given | str | None] = {}
    for port_, value in wires.items():
        if value in values:
            reads[port_] = values[value]
        elif value.partition(".")[0] in broken or "." not in value:
            reads[port_] = None
        else:
            reads[port_] = value
    return reads


def _resolves(
    checker: Checker,
    value: str,
    nodes: Mapping[str, Any],
    inputs: Mapping[str, Any],
    values: Mapping[str, Given | None],
    broken: set[str],
    at: str,
) -> bool:
    """Say whether an output's value exists, reporting it when it does not."""
    if values.get(value) is not None:
        return True
    source, dot, port_ = value.partition(".")
    if value in values or source in broken:
        return False
    if dot and source in nodes:
        known = [name.partition(".")[2] for name in values if name.startswith(f"{source}.")]
        report_unknown_output(checker, source, port_, known, at)
    else:
        _report_unknown(checker, value, nodes, inputs, at)
    return False


def _unused(
    checker: Checker,
    nodes: Mapping[str, UseNode | RepeatNode],
    outputs: Mapping[str, str],
    inputs: Mapping[str, Any],
    at: str,
) -> None:
    """Report nodes and inputs that nothing reads."""
    read = {*outputs.values(), *(value for node in nodes.values() for value in node.in_.values())}
    sources = {value.partition(".")[0] for value in read}
    for key in nodes:
        if key not in sources:
            checker.report(
                code="W03",
                at=at + pointer("nodes", key),
                problem=f"nothing reads node '{key}'",
                help="wire one of its outputs, or remove it",
            )
    for key in inputs:
        if key not in read:
            checker.report(
                code="W04",
                at=at + pointer("inputs", key),
                problem=f"nothing reads input '{key}'",
                help="wire it, or remove it",
            )


def _infer_use(
    checker: Checker,
    key: str,
    node: UseNode,
    given: Reads,
    at: str,
) -> Node | None:
    if node.use in checker.templates:
        if node.params or node.fill:
            what = "params" if node.params else "fill"
            checker.report(
                code="N04",
                at=at + pointer(what),
                problem=f"template '{node.use}' takes no {what}",
                help="templates read the spec's params",
            )
        body = _infer_template(checker, node.use, given, at)
        if body is None:
            return None
        types = {port_: body.type_of(value) for port_, value in body.outputs.items()}
        return Node(name=key, at=at, wires=node.in_, outputs=types, body=body)
    part = infer_part(checker, node, given, at, wires_at=at + pointer("in"))
    if part is None:
        return None
    return Node(name=key, at=at, wires=node.in_, outputs=part.outputs, part=part)


def _infer_repeat(
    checker: Checker,
    key: str,
    node: RepeatNode,
    given: Reads,
    at: str,
) -> Node | None:
    count = checker.values.resolve(node.repeat, at + pointer("repeat"))
    if isinstance(count, float) and count.is_integer():
        count = int(count)
    if count is not MISSING and (
        isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_COPIES
    ):
        checker.report(
            code="P05",
            at=at + pointer("repeat"),
            problem=f"'repeat' is {count}, not a whole number from 1 to {MOST_COPIES}",
        )
        count = MISSING
    body = _infer_template(checker, node.block, given, at, where=at + pointer("block"))
    if body is None or count is MISSING:
        return None
    types = {port_: body.type_of(value) for port_, value in body.outputs.items()}
    ok = True
    for index, port_ in enumerate(node.carry):
        here = at + pointer("carry", index)
        if port_ not in types or port_ not in node.in_:
            side = "output" if port_ not in types else "wired input"
            checker.report(
                code="N03",
                at=here,
                problem=f"carry '{port_}' is no {side} of '{node.block}'",
                help=did_you_mean(port_, types if side == "output" else node.in_),
            )
            ok = False
        elif types[port_] != body.inputs[port_]:
            checker.report(
                code="T05",
                at=here,
                problem=f"carry '{port_}' changes its type from copy to copy",
                evidence=(
                    f"enters {body.inputs[port_]}  as input '{port_}' of '{node.block}'",
                    f"leaves {types[port_]}  as output '{port_}', by {body.outputs[port_]}",
                ),
                help=f"make '{node.block}' give back the type that it takes",
            )
            ok = False
    if not ok:
        return None
    outputs = {port_: type_ for port_, type_ in types.items() if port_ in node.carry}
    return Node(
        name=key,
        at=at,
        wires=node.in_,
        outputs=outputs,
        body=body,
        repeat=count,
        carry=node.carry,
    )


def _infer_template(
    checker: Checker,
    name: str,
    given: Reads,
    at: str,
    where: str = "",
) -> Scope | None:
    """Type the inside of a local template for the values that one node wires to it."""
    template = checker.templates.get(name)
    if template is None:
        help_ = did_you_mean(name, checker.templates)
        checker.report(code="N01", at=where, problem=f"unknown template '{name}'", help=help_)
        return None
    checker.used_templates.add(name)
    if name in checker.inside:
        chain = " -> ".join([*checker.inside, name])
        checker.report(
            code="W06",
            at=at,
            problem=f"template '{name}' contains itself: {chain}",
            help="use 'repeat' for copies in a row",
        )
        return None
    own = pointer("blocks", name)
    ports = []
    sound = True
    for key, text in template.inputs.items():
        read = type_of_text(checker, text, own + pointer("inputs", key))
        if read is None:
            sound = False
        else:
            ports.append(Port(key, read[0], read[1]))
    bound = fit_ports(checker, ports, given, {}, name, at + pointer("in"), {}) if sound else None
    types: dict[str, ValueType | None] = {port_.name: None for port_ in ports}
    if bound is not None:
        types = {p.name: substitute(p.type, bound) for p in ports if p.name in given}
    checker.inside.append(name)
    body = infer_scope(
        checker, name, template.nodes, template.outputs, types, own, doc=template.doc
    )
    checker.inside.pop()
    complete = (
        len(body.nodes) == len(template.nodes) and body.outputs.keys() == template.outputs.keys()
    )
    return body if complete and bound is not None else None
