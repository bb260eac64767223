"""Infer: wire and type the nodes of a scope, reporting every wire that does not fit.

A value that could not be typed is left out and the nodes that read it stay
silent, so one mistake gives one finding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import networkx as nx
from pydantic import BaseModel, ValidationError

from ..specs.findings import did_you_mean, pointer
from ..specs.form import RepeatNode, Template, Use, UseNode
from .graph import Node, Part, Scope
from .params import MISSING, Report, Values, holds_missing
from .shapes import (
    Bound,
    Misfit,
    TypeTextError,
    ValueType,
    fit,
    free_names,
    parse_type,
    substitute,
)
from .signature import BlockType, Port, Registry

ADAPTERS = {
    ("keep", "bias"): "no block turns keep into bias by itself: wire the keep mask",
    ("bias", "keep"): "wire the keep mask from which the bias was made",
    ("ids", "f"): "put an 'embedding@1' on this wire",
    ("f", "keep"): "a mask is not made from activations: wire a keep input",
    ("len", "keep"): "give the mask itself as an input of kind keep",
}
"""(given kind, wanted kind) to the way out."""

MOST_COPIES = 10_000
"""Copies that one repeat may have."""


@dataclass(slots=True)
class Checker:
    """What every scope of one spec shares while it is typed."""

    registry: Registry
    values: Values
    axes: Mapping[str, str]
    templates: Mapping[str, Template]
    report: Report
    used_templates: set[str] = field(default_factory=set)
    inside: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Given:
    """A value on a wire: its type and the words that name it."""

    type: ValueType
    name: str


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
    values: dict[str, _Given | None] = {
        port: None if type_ is None else _Given(type_, f"input {port}")
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
            values[f"{key}.{port}"] = _Given(type_, f"{key}.{port}")
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


def _reads(
    values: Mapping[str, _Given | None], wires: Mapping[str, str], broken: set[str]
) -> dict[str, _Given | str | None]:
    """Return what each port reads: a value, None (unknown type), or the missing name."""
    reads: dict[str, _Given | str | None] = {}
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
    values: Mapping[str, _Given | None],
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
        _unknown_output(checker, source, port_, known, at)
    else:
        _report_unknown(checker, value, nodes, inputs, at)
    return False


def _unknown_output(
    checker: Checker, node: str, port_: str, known: list[str], at: str
) -> None:
    checker.report(
        code="N03",
        at=at,
        problem=f"node '{node}' has no output '{port_}'",
        help=did_you_mean(port_, known),
    )


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
    given: dict[str, _Given | str | None],
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
    given: dict[str, _Given | str | None],
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
    given: dict[str, _Given | str | None],
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
    bound = _fit_ports(checker, ports, given, {}, name, at + pointer("in"), {}) if sound else None
    types: dict[str, ValueType | None] = {port_.name: None for port_ in ports}
    if bound is not None:
        types = {p.name: substitute(p.type, bound) for p in ports if p.name in given}
    checker.inside.append(name)
    body = infer_scope(
        checker, name, template.nodes, template.outputs, types, own, doc=template.doc
    )
    checker.inside.pop()
    complete = len(body.nodes) == len(template.nodes) and body.outputs.keys() == template.outputs.keys()
    return body if complete and bound is not None else None


def _fit_ports(
    checker: Checker,
    ports: list[Port],
    given: dict[str, _Given | str | None],
    same: Mapping[str, str],
    block: str,
    at: str,
    known: Bound,
    passed: frozenset[str] = frozenset(),
) -> Bound | None:
    """Match every wire of a node against its ports.

    Args:
        checker: what the scopes share.
        ports: the ports of the block or template.
        given: port to what it reads.
        same: axis names that stand for another.
        block: the block's name, for messages.
        at: JSON Pointer of the wires.
        known: names already settled.
        passed: wires that another block of the node takes, so not unknown here.

    Returns:
        What the ports' names stand for; None when something does not fit or is unknown.
    """
    by_name = {port_.name: port_ for port_ in ports}
    sound = True
    for name, read in given.items():
        if name not in by_name and name not in passed:
            checker.report(
                code="N03",
                at=at + pointer(name),
                problem=f"{block} has no port '{name}'",
                help=did_you_mean(name, by_name),
            )
            sound = False
        if isinstance(read, str):
            node, _, out = read.partition(".")
            _unknown_output(checker, node, out, [], at + pointer(name))
            sound = False
    bound, origin = dict(known), {}
    for port_ in ports:
        if port_.name not in given:
            if not port_.optional:
                checker.report(
                    code="W01",
                    at=at.removesuffix("/in"),
                    problem=f"port '{port_.name}' of {block} is not wired",
                    evidence=(f"wanted {port_.type}",),
                    help=f"add '{port_.name}' to 'in'",
                )
                sound = False
            continue
        read = given[port_.name]
        if not isinstance(read, _Given):
            sound = False
            continue
        learnt = fit(port_.type, read.type, bound, origin)
        if isinstance(learnt, Misfit):
            _report_misfit(checker, learnt, port_, read, block, at + pointer(port_.name))
            sound = False
            continue
        for name in learnt.keys() - bound.keys():
            origin[name] = port_.name
        bound = learnt
        for alias, target in same.items():
            if target in bound and alias not in bound:
                bound[alias] = bound[target]
                origin[alias] = origin.get(target, target)
    return bound if sound else None


def _report_misfit(
    checker: Checker, misfit: Misfit, port_: Port, read: _Given, block: str, at: str
) -> None:
    help_ = ADAPTERS.get((read.type.kind, port_.type.kind), "")
    if not help_ and port_.optional:
        help_ = f"drop '{port_.name}', or wire a value of the wanted type"
    elif not help_ and misfit.code == "T03" and read.type.kind == "f":
        help_ = "wire a value of the wanted type, or put a 'linear@1' on this wire to change a width"
    checker.report(
        code=misfit.code,
        at=at,
        problem=f"{misfit.problem} at port '{port_.name}'",
        evidence=(
            f"given  {read.type}  by {read.name}",
            f"wanted {misfit.detail}  by {block}, port {port_.name}",
        ),
        help=help_ or f"wire a value of kind {port_.type.kind}",
    )


def infer_part(
    checker: Checker,
    use: Use,
    given: dict[str, _Given | str | None],
    at: str,
    wires_at: str,
    passed: frozenset[str] = frozenset(),
) -> Part | None:
    """Type one use of a registered block, and what stands in its slots."""
    block, written = _find_block(checker, use, at)
    if block is None:
        return None
    params = _validate(checker, block, written, at + pointer("params"))
    if params is None:
        return None
    signature = block.signature(params, frozenset(given))
    own = {port_.name for port_ in signature.inputs}
    inner = {name: read for name, read in given.items() if name not in own}
    mine = frozenset(inner) if signature.slots else passed
    label = block.key
    bound = _fit_ports(
        checker, list(signature.inputs), given, signature.same, label, wires_at, {}, mine
    )
    fill = _infer_fill(checker, use, block, signature.slots, bound, inner, at, wires_at)
    if bound is None or fill is None:
        return None
    sizes = {name: value for name, value in bound.items() if isinstance(value, int)}
    try:
        arguments = block.arguments(params, sizes)
    except ValueError as error:
        checker.report(
            code="P02", at=at + pointer("params"), problem=f"{label}: {error}", help=_help_of(error)
        )
        return None
    names = set().union(*(free_names(port_.type) for port_ in signature.inputs))
    types = {port_.name: substitute(port_.type, bound) for port_ in signature.outputs}
    return Part(
        block=block,
        params=params,
        arguments=arguments,
        signature=signature,
        inputs={name: read.type for name, read in given.items() if isinstance(read, _Given)},
        outputs=types,
        axes={name: bound[name] for name in names if name in bound},
        fill=fill,
    )


def _help_of(error: ValueError) -> str:
    """Return the way out that a block's own check gives beside its problem."""
    return str(error.args[1]) if len(error.args) > 1 else ""


def _infer_fill(
    checker: Checker,
    use: Use,
    block: BlockType,
    slots: tuple[Any, ...],
    bound: Bound | None,
    inner: dict[str, _Given | str | None],
    at: str,
    wires_at: str,
) -> dict[str, Part] | None:
    """Type the blocks in the slots of a use; None when one could not be."""
    names = [slot.name for slot in slots]
    for name in use.fill:
        if name not in names:
            checker.report(
                code="W05",
                at=at + pointer("fill", name),
                problem=f"{block.key} has no slot '{name}'",
                help=did_you_mean(name, names),
            )
    fill: dict[str, Part] = {}
    for slot in slots:
        here = at + pointer("fill", slot.name)
        if slot.name not in use.fill:
            checker.report(
                code="W05",
                at=at,
                problem=f"slot '{slot.name}' of {block.key} is empty",
                evidence=(f"wanted {slot.input.type} -> {slot.output.type}",),
                help=f"add 'fill': {{'{slot.name}': {{'use': ...}}}}",
            )
            continue
        entry = None
        if bound is not None:
            entry = _Given(substitute(slot.input.type, bound), f"slot {slot.name} of {block.key}")
        part = infer_part(
            checker, use.fill[slot.name], {slot.input.name: entry, **inner}, here, wires_at
        )
        if part is None or bound is None:
            continue
        if slot.output.name not in part.outputs:
            _unknown_output(checker, part.block.key, slot.output.name, list(part.outputs), here)
            continue
        back = fit(slot.output.type, part.outputs[slot.output.name], bound, {})
        if isinstance(back, Misfit):
            given = _Given(part.outputs[slot.output.name], f"{part.block.key}, port {slot.output.name}")
            _report_misfit(checker, back, slot.output, given, f"{block.key}, slot {slot.name}", here)
            continue
        fill[slot.name] = part
    return fill if len(fill) == len(slots) == len(use.fill) else None


def _find_block(checker: Checker, use: Use, at: str) -> tuple[BlockType | None, dict[str, Any]]:
    """Return the block that a use names, and its params, a block choice followed."""
    key, written = use.use, dict(use.params)
    if key.startswith("="):
        choice = checker.values.resolve(key, at + pointer("use"))
        if choice is MISSING:
            return None, {}
        if not isinstance(choice, dict) or not isinstance(choice.get("use"), str):
            checker.report(
                code="P03",
                at=at + pointer("use"),
                problem=f"'{key}' is not a block choice",
                help='give the param a value such as {"use": "relu@1"}',
            )
            return None, {}
        key, written = choice["use"], {**written, **choice.get("params", {})}
    block = checker.registry.get(key)
    if block is None:
        near = checker.registry.suggest(key)
        templates = did_you_mean(key, checker.templates) if not near else ""
        checker.report(
            code="N01",
            at=at + pointer("use"),
            problem=f"unknown block '{key}'",
            help=f"did you mean '{near}'?" if near else templates or "see 'weft blocks'",
        )
    return block, written


def _validate(
    checker: Checker, block: BlockType, written: dict[str, Any], at: str
) -> BaseModel | None:
    """Return a block's params in their form, or report each that is wrong."""
    resolved = checker.values.resolve(written, at)
    known = list(block.params.model_fields)
    sound = True
    for name in resolved:
        if name not in known:
            checker.report(
                code="N04",
                at=at + pointer(name),
                problem=f"{block.key} has no param '{name}'",
                help=did_you_mean(name, known) or f"{block.key} has no params",
            )
            sound = False
    resolved = {name: value for name, value in resolved.items() if name in known}
    if holds_missing(resolved):
        return None
    try:
        params = block.params.model_validate(resolved)
    except ValidationError as errors:
        for error in errors.errors():
            where = at + pointer(*(str(part) for part in error["loc"]))
            if error["type"] == "missing":
                name = str(error["loc"][-1])
                checker.report(
                    code="W07",
                    at=at.removesuffix("/params"),
                    problem=f"param '{name}' of {block.key} is missing",
                    help=f"add '{name}' to 'params'",
                )
                continue
            message = error["msg"].removeprefix("Value error, ")
            checker.report(
                code="P01",
                at=where,
                problem=f"{block.key}: {message[:1].lower()}{message[1:]}",
                evidence=(f"given  {error['input']!r}"[:120],),
            )
        return None
    return params if sound else None
