"""Scopes: wire, order and type the nodes of a scope, and report every wire that does not fit.

After a mistake, typing continues with a guess, or with an unknown type that fits any port, so that
one mistake gives one finding and does not hide the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, NamedTuple, cast

from ...specs.expressions import words_in
from ...specs.findings import did_you_mean, nearest, pointer, respelled, with_gap
from ...specs.form import AnyNode, RepeatedTemplate, ShareNode, UseNode
from ...specs.text_edits import replacing
from ..ir.block_type import Port
from ..ir.graph import BlockNode, Node, Scope, TemplateNode, leading
from ..ir.value_type import TypeTextError, ValueType, parse_known, parse_type, settled, substitute
from .block_params import template_named
from .blocks import infer_part, part_of
from .declarations import DEEPEST
from .nesting import (
    check_outputs,
    copies_selected,
    fit_repeat,
    infer_model,
    model_named,
    read_count,
)
from .node_order import order_nodes, report_unknown, report_unused
from .records import MISSING, CheckContext, Checker, Doubts, FindingSet, Memo
from .template_params import (
    CopyValues,
    Setting,
    explain,
    note_reads,
    own_values,
    read_setting,
    read_settings,
)
from .template_params import inside as inside_of
from .weights import resolved_rules
from .wiring import (
    Given,
    NoOutput,
    Reads,
    as_meant,
    fit_ports,
    report_no_output,
    report_unknown_ports,
    report_unwired,
    with_read_outputs,
)

MOST_TYPED = 4_000
"""Maximum number of typed nodes; a template counts once for each combination of port types."""
TYPE_HELP = "a type is a kind and its axes, such as 'f[B S 512]' or 'ids:37000[B T]'"


class TypeRead(NamedTuple):
    """A type of the spec, as far as it can be parsed."""

    type: ValueType
    optional: bool
    sound: bool = True
    """Whether all of it could be parsed; otherwise some axes are unknown."""


def type_of_text(
    context: CheckContext, findings: FindingSet, text: str, at: str
) -> TypeRead | None:
    """Parse a type of the spec, or report why it cannot be parsed.

    Returns:
        The type, with unknown axes where it is wrong or reads a param with a mistake; None if even
        the kind is unknown.
    """
    values = context.values.resolved
    if not any(values.get(name) is MISSING for name in words_in(text)):
        try:
            return TypeRead(*parse_type(text, values, context.spec.axes))
        except TypeTextError as error:
            word, choices = error.word, error.candidates
            help_, fix = TYPE_HELP, None
            if spaced := _spaced(text, values, context.spec.axes):
                help_ = f"separate axes by spaces: '{spaced}'"
                fix = replacing(at, spaced, certain=True)
            elif word:
                help_ = did_you_mean(word, choices)
                fix = respelled(at, word, choices, with_gap(text, word))
            findings.report(code=error.code, at=at, problem=str(error), help=help_, fix=fix)
    parsed = parse_known(text, values, context.spec.axes)
    return None if parsed is None else TypeRead(*parsed, sound=False)


def _spaced(text: str, values: Mapping[str, Any], axes: Mapping[str, str]) -> str:
    """Return a type with spaces instead of commas between its axes; '' if that is no type."""
    spaced = " ".join(text.replace(",", " ").split())
    with contextlib.suppress(TypeTextError):
        parse_type(spaced, values, axes)
        return spaced
    return ""


def infer_scope(
    checker: Checker,
    name: str,
    nodes: Mapping[str, AnyNode],
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
        The scope, without the nodes whose blocks are unknown.
    """
    absent = frozenset(absent)
    shares = {key: node.share for key, node in nodes.items() if isinstance(node, ShareNode)}
    nodes = with_shared(checker.findings, nodes, at)
    live = {key: _without(checker.doubts, absent, key, node, at) for key, node in nodes.items()}
    unsatisfied, checker.doubts.unwired = checker.doubts.unwired, []
    order, live, guessed, cyclic = order_nodes(checker.context, checker.findings, live, inputs, at)
    values: dict[str, Given | None] = {
        port: None if type_ is None else Given(type_, f"input {port}")
        for port, type_ in inputs.items()
    }
    gives: dict[str, tuple[str, ...]] = {}
    placed = []
    for key in order:
        node = live[key]
        node_inputs = _reads(values, gives, node.in_, guessed.get(key, frozenset()))
        typed = (
            _infer_repeat(checker, key, node, node_inputs, at + pointer("nodes", key))
            if isinstance(node, RepeatedTemplate)
            else _infer_use(checker, key, node, node_inputs, at + pointer("nodes", key))
        )
        if key in shares and typed.node is not None:
            typed = replace(typed, node=replace(typed.node, shares=shares[key]))
        if typed.node is None:
            checker.doubts.unplaced.add(at + pointer("nodes", key))
        else:
            placed.append(typed.node)
        if typed.ports is None:
            continue
        gives[key] = typed.ports
        for port in typed.ports:
            type_ = typed.node.outputs.get(port) if typed.node is not None else None
            values[f"{key}.{port}"] = None if type_ is None else Given(type_, f"{key}.{port}")
    ends = {}
    for port, value in outputs.items():
        where = at + pointer("outputs", port)
        if value in absent:
            checker.findings.report(
                code="W01",
                at=where,
                problem=f"output '{port}' returns input '{value}', which is not wired",
                help=f"wire '{value}' wherever the template is used, and remove its '?'",
            )
        elif _resolves(
            checker.context, checker.findings, value, nodes, inputs, values, gives, where
        ):
            ends[port] = value
    if not cyclic and not _lacks_wires(checker.doubts, nodes, at):
        names = {**dict.fromkeys(absent), **inputs}
        report_unused(checker, nodes, outputs, names, values, at)
    checker.doubts.unwired = unsatisfied
    check_shared(checker.findings, placed, at)
    placed = with_read_outputs(placed, ends)
    typed_inputs = {port: type_ for port, type_ in inputs.items() if type_ is not None}
    read = (value for node in placed for value in node.wires.values())
    typed_inputs = leading(typed_inputs, read)
    positions = {value: number for number, value in enumerate([*typed_inputs, *_made_by(placed)])}
    ends = dict(sorted(ends.items(), key=lambda end: positions.get(end[1], 0)))
    return Scope(name=name, inputs=typed_inputs, outputs=ends, nodes=tuple(placed), doc=doc)


def _made_by(nodes: Iterable[Node]) -> Iterator[str]:
    """Yield the values that nodes output."""
    return (f"{node.name}.{port}" for node in nodes for port in node.outputs)


def _lacks_wires(doubts: Doubts, nodes: Mapping[str, UseNode | RepeatedTemplate], at: str) -> bool:
    """Return whether an unknown block has no wires, and may be meant to read any value."""
    places = (at + pointer("nodes", key) for key, node in nodes.items() if not node.in_)
    return not doubts.unplaced.isdisjoint(places)


@dataclass(frozen=True, slots=True)
class _Typed:
    """A node, and the names of its outputs; None where they are unknown."""

    node: Node | None
    ports: tuple[str, ...] | None


def _without(
    doubts: Doubts, absent: frozenset[str], key: str, node: UseNode | RepeatedTemplate, at: str
) -> UseNode | RepeatedTemplate:
    """Return a node without the wires that read an absent input."""
    cut = {port: value for port, value in node.in_.items() if value in absent}
    for port, value in cut.items():
        doubts.absent_wires[at + pointer("nodes", key, "in", port)] = value
    wires = {port: value for port, value in node.in_.items() if port not in cut}
    return node.model_copy(update={"in_": wires}) if cut else node


def _reads(
    values: Mapping[str, Given | None],
    gives: Mapping[str, tuple[str, ...]],
    wires: Mapping[str, str],
    guessed: Collection[str],
) -> Reads:
    """Return what each port reads; None if the type of the value is unknown.

    Args:
        values: value to its type.
        gives: node to its outputs, where they are known.
        wires: port to the value that it reads.
        guessed: ports whose wires have mistakes and are replaced by guesses.
    """
    reads: dict[str, Given | NoOutput | None] = {}
    for port_, value in wires.items():
        source, _, out = value.partition(".")
        if value not in values and source in gives:
            outputs = gives[source]
            near = nearest(out, outputs) or (outputs[0] if len(outputs) == 1 else "")
            guess = values.get(f"{source}.{near}")
            guess = None if guess is None else replace(guess, guessed=True)
            reads[port_] = guess if port_ in guessed else NoOutput(source, out, outputs, guess)
            continue
        read = values.get(value)
        reads[port_] = replace(read, guessed=True) if read and port_ in guessed else read
    return reads


def _resolves(
    context: CheckContext,
    findings: FindingSet,
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
        report_unknown(context, findings, value, nodes, inputs, at)
    elif source in gives:
        report_no_output(findings, NoOutput(source, out, gives[source]), at)
    return False


def _infer_use(checker: Checker, key: str, node: UseNode, inputs: Reads, at: str) -> _Typed:
    if model_named(checker.context, node):
        made_model, outputs_of = infer_model(checker, key, node, inputs, at)
        frozen = made_model and replace(made_model, frozen=node.frozen)
        return _Typed(frozen, outputs_of)
    name = template_named(checker.context, node)
    if name:
        setting = read_setting(checker, node, name, at)
        body = infer_template(checker, name, inputs, at, setting=setting)
        if body is None:
            return _Typed(None, None)
        ports = tuple(checker.context.spec.blocks[name].outputs)
        outputs = body.gives()
        return _Typed(
            TemplateNode(
                name=key,
                at=at,
                wires=leading(node.in_, body.inputs),
                outputs=outputs,
                body=body,
                frozen=node.frozen,
            ),
            ports,
        )
    part = part_of(checker, node, inputs, at, infer_part)
    if part is None:
        return _Typed(None, None)
    if part.block.fills and not part.block.steps:
        help_ = f"use it in a slot for parts of kind '{part.block.fills}'"
        problem = f"{part.key} is a part of another block, and not a node"
        checker.findings.report(code="W15", at=at + pointer("use"), problem=problem, help=help_)
    block_node = BlockNode(
        name=key,
        at=at,
        wires=leading(node.in_, part.inputs),
        outputs=part.outputs,
        part=part,
        frozen=node.frozen,
    )
    return _Typed(block_node, tuple(port.name for port in part.signature.outputs))


def _infer_repeat(
    checker: Checker, key: str, node: RepeatedTemplate, inputs: Reads, at: str
) -> _Typed:
    count = read_count(checker.context, checker.findings, node, at)
    if count is MISSING:
        checker.doubts.uncounted.add(at)
    taken: dict[int, str] = {}
    by_copy = CopyValues(checker, node, count, at)
    for written, name in node.instead.items():
        where = at + pointer("instead", written)
        if name in checker.context.spec.blocks:
            copies = copies_selected(checker, node, written, count, taken, by_copy, where)
            taken |= dict.fromkeys(copies, written)
    settings = read_settings(checker, node, by_copy, at)
    insides: dict[tuple[str, str], Scope | None] = {}

    def inside(name: str, copy: int, where: str) -> Scope | None:
        """Return the inside of a copy; each template is typed once for the same params."""
        setting = settings[min(copy, len(settings) - 1)]
        same = name, repr([argument.value for argument in setting.arguments.values()])
        if same not in insides:
            insides[same] = infer_template(checker, name, inputs, at, where, setting)
        return insides[same]

    default = [copy for copy in range(len(settings)) if copy not in taken] or [0]
    body = inside(node.block, default[0], at + pointer("block"))
    others = {copy: inside(node.block, copy, at + pointer("block")) for copy in default[1:]}
    for written, name in node.instead.items():
        copies = [copy for copy, of in taken.items() if of == written] or [0]
        where = at + pointer("instead", written)
        others |= {copy: inside(name, copy, where) for copy in copies if copy in taken}
        inside(name, copies[0], where)
    different = {copy: other for copy, other in sorted(others.items()) if other is not None}
    template = meant_template(checker.context, node.block)
    if template is None:
        check_outputs(checker, node, None, at)
        return _Typed(None, None)
    node = node.model_copy(update={"block": template})
    ports = (*node.carry, *node.collect)
    declared = checker.context.spec.blocks[template].outputs.keys()
    outputs = ports if ports and {*ports} <= declared else None
    if body is None:
        check_outputs(checker, node, body, at)
        return _Typed(None, outputs)
    return _Typed(fit_repeat(checker, key, node, count, body, different, taken, at), outputs)


def infer_template(
    checker: Checker,
    name: str,
    inputs: Reads,
    at: str,
    where: str = "",
    setting: Setting = Setting(),  # noqa: B008 - it is not changed
) -> Scope | None:
    """Type the inside of a template for the values that one node wires to it.

    Args:
        checker: the state that the scopes share.
        name: the template.
        inputs: port to the value that it reads.
        at: JSON Pointer of the use.
        where: JSON Pointer of the name of the template.
        setting: the params that the use sets.
    """
    if name in checker.context.lost.entries("/blocks"):
        return None
    if name not in checker.context.spec.blocks:
        near = nearest(name, checker.context.spec.blocks)
        checker.doubts.excused |= {near} if near else checker.context.spec.blocks.keys()
        help_ = did_you_mean(name, checker.context.spec.blocks) or "add it to 'blocks'"
        checker.findings.report(
            code="N01",
            at=where,
            problem=f"unknown template '{name}'",
            help=help_,
            fix=respelled(where, name, checker.context.spec.blocks),
        )
        name = meant_template(checker.context, name) or ""
        if not name:
            return None
    if name in checker.memo.inside:
        chain = [*checker.memo.inside[checker.memo.inside.index(name) :], name]
        checker.findings.report(
            code="W06",
            at=at,
            problem=f"template '{name}' contains itself: {' -> '.join(chain)}",
            help="use 'repeat' for copies in a row",
        )
    elif len(checker.memo.inside) >= DEEPEST:
        checker.findings.report(
            code="W06",
            at=at,
            problem=f"templates are nested more than {DEEPEST} levels deep",
            evidence=(f"from '{checker.memo.inside[0]}' on",),
            help="use 'repeat' for copies in a row",
        )
    if name in checker.memo.inside or len(checker.memo.inside) >= DEEPEST:
        return None
    inner, template = inside_of(checker, name, setting), checker.context.spec.blocks[name]
    ports = template_ports(inner.context, checker.findings, name)
    corrected = as_meant(ports, inputs)
    report_unknown_ports(
        checker.findings, checker.doubts, template.inputs, inputs, name, at + pointer("in")
    )
    before = checker.doubts.misfits
    fitted = fit_ports(checker, ports, corrected, {}, name, at + pointer("in"))
    certain = fitted.certain(checker.doubts.misfits - before)
    report_unwired(checker, ports, inputs, name, at)
    types: dict[str, ValueType | None] = dict.fromkeys(template.inputs)
    types |= {port_.name: settled(substitute(port_.type, certain)) for port_ in ports}
    absent = frozenset(p.name for p in ports if p.optional and p.name not in corrected)
    types = {key: type_ for key, type_ in types.items() if key not in absent}
    body = _typed_template(inner, name, types, absent)
    note_reads(checker, inner, name)
    return body


def meant_template(context: CheckContext, name: str) -> str | None:
    """Return a template, or the template that a misspelled name most likely means."""
    if name in context.spec.blocks:
        return name
    lost = context.lost.entries("/blocks")
    near = nearest(name, [*context.spec.blocks, *lost])
    return near if near in context.spec.blocks else None


def template_ports(context: CheckContext, findings: FindingSet, name: str) -> list[Port]:
    """Return the ports of a template, without those whose kind is unknown."""
    at = pointer("blocks", name, "inputs")
    ports = []
    for key, text in context.spec.blocks[name].inputs.items():
        read = type_of_text(context, findings, text, at + pointer(key))
        if read is not None:
            ports.append(Port(key, read.type, read.optional))
    return ports


def _few_enough(findings: FindingSet, memo: Memo, name: str, count: int) -> bool:
    """Return whether `count` more nodes may be typed, and report when the limit is passed."""
    if memo.nodes_typed <= MOST_TYPED < memo.nodes_typed + count:
        findings.report(
            code="P06",
            at=pointer("blocks", name),
            problem="templates are used with so many types and params that more than"
            f" {MOST_TYPED:,} nodes would have to be typed",
            help="use templates with fewer types and values of params",
        )
    memo.nodes_typed += count
    return memo.nodes_typed <= MOST_TYPED


def _typed_template(
    checker: Checker, name: str, types: Mapping[str, ValueType | None], absent: frozenset[str]
) -> Scope | None:
    """Return the inside of a template for some types and params, which is typed only once."""
    ports = tuple(sorted(types.items(), key=itemgetter(0)))
    key = (name, ports, absent, own_values(checker, name))
    if key in checker.memo.typed:
        return cast("Scope | None", checker.memo.typed[key])
    template, location = checker.context.spec.blocks[name], pointer("blocks", name)
    if not _few_enough(checker.findings, checker.memo, name, len(template.nodes)):
        return None
    checker.memo.inside.append(name)
    nodes, outputs, doc = template.nodes, template.outputs, template.doc
    reported = len(checker.findings.all)
    body = infer_scope(checker, name, nodes, outputs, types, location, doc=doc, absent=absent)
    checker.memo.inside.pop()
    explain(checker, name, reported)
    init = resolved_rules(checker, template.init, body, location)
    values = checker.context.values
    params = {name: (values.resolved[name], values.place_of(name)) for name in template.params}
    body = replace(body, ties=template.tie, init=init, params=params)
    checker.memo.typed[key] = body
    return body


_SHAPES_SHOWN = 8
"""Maximum number of weights that a finding about their shapes lists."""


def with_shared(
    findings: FindingSet, nodes: Mapping[str, AnyNode], at: str
) -> dict[str, UseNode | RepeatedTemplate]:
    """Return the nodes of a scope, those that share a module as uses of its block."""
    expanded: dict[str, UseNode | RepeatedTemplate] = {}
    owners = {key: node for key, node in nodes.items() if not isinstance(node, ShareNode)}
    for key, node in nodes.items():
        if not isinstance(node, ShareNode):
            expanded[key] = node
            continue
        name, where = node.share, at + pointer("nodes", key, "share")
        if name not in owners:
            also = f"'{name}' shares the module of another node" if name in nodes else ""
            findings.report(
                code="N02",
                at=where,
                problem=also or f"there is no node '{name}' whose module could be shared",
                help=did_you_mean(name, owners),
                fix=respelled(where, name, owners),
            )
            name = nearest(name, owners) or next(iter(owners), "")
        if name in owners:
            expanded[key] = owners[name].model_copy(update={"in_": node.in_, "doc": node.doc})
    return expanded


def check_shared(findings: FindingSet, nodes: Collection[Node], at: str) -> None:
    """Report nodes that share a module whose weights have other shapes than they need."""
    owners = {node.name: node for node in nodes if not node.shares}
    for node in nodes:
        if node.shares not in owners:
            continue
        needed, available = replace(node, shares="").weights(), owners[node.shares].weights()
        if needed != available:
            differ = [
                name for name in {**available, **needed} if available.get(name) != needed.get(name)
            ]
            findings.report(
                code="W13",
                at=at + pointer("nodes", node.name, "share"),
                problem=f"'{node.name}' shares the module of '{node.shares}', but for its wires the"
                " weights would have other shapes",
                evidence=tuple(
                    f"{name}  {[*available.get(name, ())]} and {[*needed.get(name, ())]}"
                    for name in differ[:_SHAPES_SHOWN]
                ),
                help="wire values of the same widths and sizes",
            )
