"""Scopes: wire, order and type the nodes of a scope, and report every wire that does not fit.

A value that could not be typed is omitted, and nothing is reported about the nodes that read it,
so that one mistake gives one finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any, cast

import networkx as nx

from ...specs.expressions import words_in
from ...specs.findings import did_you_mean, nearest, pointer, respelled
from ...specs.form import RepeatNode, UseNode
from ..ir.block_type import Port
from ..ir.graph import BlockNode, Node, Scope, TemplateNode
from ..ir.value_type import TypeTextError, ValueType, free_names, parse_type, substitute
from .block_params import refuse_params, template_named
from .blocks import infer_part
from .params import MISSING
from .ports import (
    Checker,
    Given,
    NoOutput,
    Reads,
    bind_ports,
    fit_ports,
    report_no_output,
    report_unwired,
)
from .repeats import check_outputs, fit_repeat, fits_count, read_count
from .wiring import report_unknown, report_unused

MOST_TYPED = 4_000
"""Maximum number of typed nodes; a template counts once for each combination of port types."""
TYPE_HELP = "a type is a kind and its axes, such as 'f[B S 512]' or 'ids:37000[B T]'"


def type_of_text(checker: Checker, text: str, at: str) -> tuple[ValueType, bool] | None:
    """Parse a type of the spec, or report why it cannot be parsed."""
    values = checker.values.known
    if any(values.get(name) is MISSING for name in words_in(text)):
        return None
    try:
        type_, optional = parse_type(text, values, checker.axes)
    except TypeTextError as error:
        word, known = error.word, error.known
        help_, fix = TYPE_HELP, None
        if word:
            spelled = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", "{}", text)
            help_, fix = did_you_mean(word, known), respelled(at, word, known, spelled)
        checker.report(code=error.code, at=at, problem=str(error), help=help_, fix=fix)
        return None
    return type_, optional


def infer_scope(
    checker: Checker,
    name: str,
    nodes: Mapping[str, UseNode | RepeatNode],
    outputs: Mapping[str, str],
    inputs: Mapping[str, ValueType | None],
    at: str,
    doc: str = "",
    absent: Iterable[str] = (),
) -> Scope:
    """Wire, order and type the nodes of one scope.

    Args:
        checker: the state that the scopes of the spec share.
        name: the template's name, or the spec's.
        nodes: the nodes as written.
        outputs: output port to the value that it returns, as written.
        inputs: type of each input; None if it is unknown.
        at: JSON Pointer of the record that contains `nodes` and `outputs`.
        doc: description of the scope.
        absent: optional inputs that are not wired; wires that read them are ignored.

    Returns:
        The scope, without the nodes that could not be typed.
    """
    absent = frozenset(absent)
    live = {key: _without(checker, absent, key, node, at) for key, node in nodes.items()}
    wanted, checker.wanted = checker.wanted, []
    order, broken = _order(checker, live, inputs, at)
    values: dict[str, Given | None] = {
        port: None if type_ is None else Given(type_, f"input {port}")
        for port, type_ in inputs.items()
    }
    gives: dict[str, tuple[str, ...]] = {}
    placed = []
    for key in order:
        here = at + pointer("nodes", key)
        node = live[key]
        given = _reads(values, gives, node.in_)
        made = (
            _infer_repeat(checker, key, node, given, here)
            if isinstance(node, RepeatNode)
            else _infer_use(checker, key, node, given, here)
        )
        if made is None or key in broken:
            broken.add(key)
            guess = _outputs_of(checker, node, given, here) if made is None else made.outputs
            if guess is not None:
                gives[key] = tuple(guess)
                for port, type_ in guess.items():
                    given_ = None if type_ is None else Given(type_, f"{key}.{port}")
                    values[f"{key}.{port}"] = given_
            continue
        placed.append(made)
        gives[key] = tuple(made.outputs)
        for port, type_ in made.outputs.items():
            values[f"{key}.{port}"] = Given(type_, f"{key}.{port}")
    ends = {}
    for port, value in outputs.items():
        where = at + pointer("outputs", port)
        if value in absent:
            checker.report(
                code="W01",
                at=where,
                problem=f"output '{port}' returns input '{value}', which is not wired",
                help=f"wire '{value}' wherever the template is used, and remove its '?'",
            )
        elif (
            _resolves(checker, value, nodes, inputs, values, gives, where)
            and value.partition(".")[0] not in broken
        ):
            ends[port] = value
    if len(order) == len(nodes):
        # Nodes in a cycle have not been typed: one of them may read a value that seems unused.
        names = {**dict.fromkeys(absent), **inputs}
        report_unused(checker, nodes, outputs, names, values, at)
    checker.wanted = wanted
    known = {port: type_ for port, type_ in inputs.items() if type_ is not None}
    return Scope(name=name, inputs=known, outputs=ends, nodes=tuple(placed), doc=doc)


def _outputs_of(
    checker: Checker, node: UseNode | RepeatNode, given: Reads, at: str
) -> Mapping[str, ValueType | None] | None:
    """Return the outputs of a node with a mistake, as far as they are known.

    The type of a port is None if it is unknown; a carried value has the type that enters.
    """
    name = node.block if isinstance(node, RepeatNode) else node.use
    template = checker.templates.get(name)
    if template is None or name in checker.inside:
        return None if isinstance(node, RepeatNode) else checker.outputs_of.get(at)
    if not isinstance(node, RepeatNode):
        return dict.fromkeys(template.outputs)
    if not {*node.carry, *node.collect} <= template.outputs.keys():
        return None
    ports = {port_.name: port_.type for port_ in template_ports(checker, name) or ()}
    bound = bind_ports(template_ports(checker, name) or (), given, {})
    if not {*node.carry} <= ports.keys():
        return dict.fromkeys((*node.carry, *node.collect))
    known = {
        port: substitute(ports[port], bound) if free_names(ports[port]) <= bound.keys() else None
        for port in node.carry
    }
    return {**dict.fromkeys(node.collect), **known}


def _without(
    checker: Checker, absent: frozenset[str], key: str, node: UseNode | RepeatNode, at: str
) -> UseNode | RepeatNode:
    """Return a node without the wires that read an absent input."""
    cut = {port: value for port, value in node.in_.items() if value in absent}
    for port, value in cut.items():
        checker.absent_wires[at + pointer("nodes", key, "in", port)] = value
    wires = {port: value for port, value in node.in_.items() if port not in cut}
    return node.model_copy(update={"in_": wires}) if cut else node


def _order(
    checker: Checker,
    nodes: Mapping[str, UseNode | RepeatNode],
    inputs: Mapping[str, ValueType | None],
    at: str,
) -> tuple[list[str], set[str]]:
    """Return the nodes in topological order, and those with unknown or cyclic wires."""
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
                report_unknown(checker, value, nodes, inputs, here)
    for cycle in list(nx.strongly_connected_components(wiring)):
        first = min(cycle)
        if len(cycle) > 1 or wiring.has_edge(first, first):
            names = ", ".join(f"'{name}'" for name in sorted(cycle))
            checker.report(
                code="W02",
                at=at + pointer("nodes", first),
                problem=f"nodes read each other in a cycle: {names}",
                help="remove one of these wires; pass a value to the next copy of a repeat with"
                " 'carry'",
            )
            broken |= cycle
            wiring.remove_nodes_from(cycle)
    return list(nx.lexicographical_topological_sort(wiring)), broken


def _reads(
    values: Mapping[str, Given | None],
    gives: Mapping[str, tuple[str, ...]],
    wires: Mapping[str, str],
) -> Reads:
    """Return what each port reads; None if the outputs of the node are unknown."""
    reads: dict[str, Given | NoOutput | None] = {}
    for port_, value in wires.items():
        source, _, out = value.partition(".")
        reads[port_] = (
            NoOutput(source, out, gives[source])
            if value not in values and source in gives
            else values.get(value)
        )
    return reads


def _resolves(
    checker: Checker,
    value: str,
    nodes: Mapping[str, Any],
    inputs: Mapping[str, Any],
    values: Mapping[str, Given | None],
    gives: Mapping[str, tuple[str, ...]],
    at: str,
) -> bool:
    """Return whether the value of an output exists, and report it if it does not."""
    if value in values:
        return values[value] is not None
    source, dot, out = value.partition(".")
    if not dot or source not in nodes:
        report_unknown(checker, value, nodes, inputs, at)
    elif source in gives:
        report_no_output(checker, NoOutput(source, out, gives[source]), at)
    return False


def _infer_use(
    checker: Checker,
    key: str,
    node: UseNode,
    given: Reads,
    at: str,
) -> Node | None:
    name = template_named(checker, node)
    if name:
        refuse_params(checker, node, name, at)
        body = infer_template(checker, name, given, at)
        if body is None:
            return None
        return TemplateNode(name=key, at=at, wires=node.in_, outputs=body.gives(), body=body)
    part = infer_part(checker, node, given, at, wires_at=at + pointer("in"))
    if part is None:
        return None
    return BlockNode(name=key, at=at, wires=node.in_, outputs=part.outputs, part=part)


def _infer_repeat(
    checker: Checker,
    key: str,
    node: RepeatNode,
    given: Reads,
    at: str,
) -> Node | None:
    count = read_count(checker, node, at)
    body = infer_template(checker, node.block, given, at, where=at + pointer("block"))
    others: dict[int, Scope] = {}
    sound = body is not None and count is not MISSING
    for index, name in node.instead.items():
        where = at + pointer("instead", index)
        other = infer_template(checker, name, given, at, where=where)
        sound = sound and other is not None
        fits = name not in checker.templates or fits_count(checker, node, int(index), count, where)
        if other is not None and fits:
            others[int(index)] = other
    if body is None or not sound or len(others) < len(node.instead):
        check_outputs(checker, node, body, at)
        return None
    return fit_repeat(checker, key, node, count, body, others, at)


def infer_template(
    checker: Checker,
    name: str,
    given: Reads,
    at: str,
    where: str = "",
) -> Scope | None:
    """Type the inside of a template for the values that one node wires to it."""
    template = checker.templates.get(name)
    if template is None:
        near = nearest(name, checker.templates)
        checker.excused |= {near} if near else checker.templates.keys()
        help_ = did_you_mean(name, checker.templates) or "add it to 'blocks'"
        checker.report(
            code="N01",
            at=where,
            problem=f"unknown template '{name}'",
            help=help_,
            fix=respelled(where, name, checker.templates),
        )
        return None
    if name in checker.inside:
        chain = [*checker.inside[checker.inside.index(name) :], name]
        checker.report(
            code="W06",
            at=at,
            problem=f"template '{name}' contains itself: {' -> '.join(chain)}",
            help="use 'repeat' for copies in a row",
        )
        return None
    ports = template_ports(checker, name)
    bound = None
    if ports is not None:
        bound = fit_ports(checker, ports, given, {}, name, at + pointer("in"), {})
        report_unwired(checker, ports, given, name, at)
    types: dict[str, ValueType | None] = dict.fromkeys(template.inputs)
    for port_ in ports or ():
        # Even if the wires do not fit, ports without free names have their declared types.
        if bound is not None:
            types[port_.name] = substitute(port_.type, bound)
        elif not free_names(port_.type):
            types[port_.name] = port_.type
    absent = frozenset(p.name for p in ports or () if p.optional and p.name not in given)
    types = {key: type_ for key, type_ in types.items() if key not in absent}
    body = _typed_template(checker, name, types, absent)
    return body if bound is not None else None


def template_ports(checker: Checker, name: str) -> list[Port] | None:
    """Return the ports of a template; None if the type of one cannot be parsed."""
    at = pointer("blocks", name, "inputs")
    ports = []
    texts = checker.templates[name].inputs
    for key, text in texts.items():
        read = type_of_text(checker, text, at + pointer(key))
        if read is not None:
            ports.append(Port(key, read[0], read[1]))
    return ports if len(ports) == len(texts) else None


def _few_enough(checker: Checker, name: str, count: int) -> bool:
    """Return whether `count` more nodes may be typed, and report when the limit is passed."""
    if checker.nodes_typed <= MOST_TYPED < checker.nodes_typed + count:
        checker.report(
            code="P06",
            at=pointer("blocks", name),
            problem=f"templates are used with so many types that more than {MOST_TYPED:,} nodes"
            " would have to be typed",
            help="use generic templates with fewer types",
        )
    checker.nodes_typed += count
    return checker.nodes_typed <= MOST_TYPED


def _typed_template(
    checker: Checker, name: str, types: Mapping[str, ValueType | None], absent: frozenset[str]
) -> Scope | None:
    """Return the inside of a template for the given port types, which are typed only once."""
    key = (name, tuple(sorted(types.items(), key=itemgetter(0))), absent)
    if key in checker.typed:
        return cast("Scope | None", checker.typed[key])
    template, own = checker.templates[name], pointer("blocks", name)
    if not _few_enough(checker, name, len(template.nodes)):
        return None
    checker.inside.append(name)
    body = infer_scope(
        checker,
        name,
        template.nodes,
        template.outputs,
        types,
        own,
        doc=template.doc,
        absent=absent,
    )
    checker.inside.pop()
    complete = (
        len(body.nodes) == len(template.nodes) and body.outputs.keys() == template.outputs.keys()
    )
    checker.typed[key] = body if complete else None
    return body if complete else None
