"""Ports, slots and values that a node of a text has or could have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from ....graphs.ir.value_type import Bound, TypeTextError, fit
from ....plugin import (
    BlockNode,
    BlockType,
    Port,
    Signature,
    Slot,
    TemplateNode,
    ValueType,
    parse_type,
)
from ....specs.expressions import is_expression
from .document import TextDocument, evaluated, site
from .proposals import by_name, candidates, named_sizes, needs, widths_in

Json = Mapping[str, Any]


class Candidate(NamedTuple):
    """A value that a wire can read."""

    name: str
    """`node.port`, or the name of an input."""
    type: ValueType | None
    """Its type; None if it is not known."""


def chosen(doc: TextDocument, use: object) -> tuple[str, Json]:
    """Return the block or template that a use names, through a param, and that param's params."""
    if is_expression(use):
        choice = doc.values.get(str(use)[1:], doc.merged.get("params", {}).get(str(use)[1:]))
        if isinstance(choice, dict):
            return str(choice.get("use", "")), choice.get("params", {})
        return str(choice or ""), {}
    return (use, {}) if isinstance(use, str) else ("", {})


def record_at(doc: TextDocument, path: Iterable[str]) -> Json:
    """Return the JSON object at a path of the text; empty if there is none."""
    value_ = doc.root.get(*path)
    value = value_.json() if value_ else None
    return value if isinstance(value, dict) else {}


def signature_of(doc: TextDocument, record: Json) -> Signature | None:
    """Return the ports of a use of a block; None if its block is unknown or a template."""
    key, preset = chosen(doc, record.get("use"))
    block = doc.registry.get(key)
    if block is None:
        return None
    wired = {*record.get("in", {}), *block.example_inputs}
    wired |= {f"/{slot}" for slot in record.get("fill", {})}
    written = {**evaluated(doc, preset), **evaluated(doc, record.get("params", {}))}
    try:
        params = block.params.model_validate(written)
        return block.signature(params, frozenset(wired))
    except (ValidationError, ValueError, KeyError, TypeError):  # params are not complete yet
        return example_signature(block)


def example_signature(block: BlockType, *, bare: bool = False) -> Signature:
    """Return the ports of the smallest use of a block.

    Args:
        block: a block.
        bare: whether no port is wired; otherwise those of its example are.
    """
    wired = frozenset() if bare else frozenset(block.example_inputs)
    return block.signature(block.params.model_validate(block.example), wired)


def ports_of(doc: TextDocument, scope: str, record: Json) -> dict[str, Port]:
    """Return the ports of a node by name, with those that it passes on to its slots.

    Args:
        doc: the document.
        scope: pointer of the node's scope.
        record: the node as JSON data.
    """
    template = record.get("block") or chosen(doc, record.get("use"))[0]
    if template in doc.merged.get("blocks", {}):
        return template_ports(doc, template)
    share = record.get("share")
    if isinstance(share, str) and share != record.get("name"):
        other = doc.nodes(scope).get(share, {})
        return ports_of(doc, scope, other) if "share" not in other else {}
    model = _model(doc, scope, record)
    if model is not None:
        return {name: Port(name, type_) for name, type_ in model.body.inputs.items()}
    signature = signature_of(doc, record)
    if signature is None:
        return {}
    ports = {port.name: port for port in signature.inputs}
    for name, inner in record.get("fill", {}).items():
        slot = next((slot for slot in signature.slots if slot.name == name), None)
        if slot is not None and isinstance(inner, dict):
            passed = ports_of(doc, scope, {**inner, "in": record.get("in", {})})
            ports |= {key: port for key, port in passed.items() if key not in slot.entries}
    return ports


def _model(doc: TextDocument, scope: str, record: Json) -> TemplateNode | None:
    """Return the node that contains the model that a param holds."""
    used, body = record.get("use"), doc.scope(scope)
    if not is_expression(used) or body is None:
        return None
    same = (name for name, node in doc.nodes(scope).items() if node.get("use") == used)
    nodes = (doc.node(scope, name) for name in same)
    models = (node for node in nodes if isinstance(node, TemplateNode) and node.model is not None)
    return next(models, None)


def template_ports(doc: TextDocument, name: str) -> dict[str, Port]:
    """Return the ports of a template by name; those whose type cannot be read are left out."""
    ports = {}
    inputs = doc.written(f"/blocks/{name}").get("inputs", {})
    for key, text in inputs.items() if isinstance(inputs, dict) else ():
        try:
            type_, optional = parse_type(str(text), doc.values)
        except TypeTextError:
            continue
        ports[key] = Port(key, type_, optional)
    return ports


def likely(doc: TextDocument, path: tuple[str, ...]) -> Any:
    """Return the likeliest value of a param that a block needs; None for any other place.

    Args:
        doc: the document.
        path: path of the param, set or not.
    """
    at = site(path)
    if not at.node or at.below[:1] != ("params",) or len(at.below) != 2:  # noqa: PLR2004
        return None
    name, block = at.below[1], doc.registry.get(chosen(doc, record_at(doc, at.use).get("use"))[0])
    if block is None or name not in needs(block, {}):
        return None
    record = doc.nodes(at.scope).get(at.node, {})
    outputs = outputs_of(doc, at.scope, at.node).values()
    widths = widths_in([*filter(None, outputs), *given_types(doc, at.scope, record).values()])
    inner = doc.written(at.scope).get("params", {}) if at.scope else {}
    values = {**doc.values, **inner}
    sizes = named_sizes(doc.merged, values)
    return candidates(block, name, values, by_name(widths, sizes))[0]


def outputs_of(doc: TextDocument, scope: str, name: str) -> dict[str, ValueType | None]:
    """Return the outputs of a node with their types, as far as they are known."""
    node = doc.node(scope, name)
    if node is not None:
        return {**node.outputs, **(node.part.offers if isinstance(node, BlockNode) else {})}
    record = doc.nodes(scope).get(name, {})
    template = record.get("block") or chosen(doc, record.get("use"))[0]
    if "repeat" in record:
        return dict.fromkeys([*record.get("carry", ()), *record.get("collect", ())])
    if template in doc.merged.get("blocks", {}):
        return dict.fromkeys(doc.written(f"/blocks/{template}").get("outputs", {}))
    signature = signature_of(doc, record)
    return dict.fromkeys(port.name for port in signature.outputs) if signature else {}


def values_in(doc: TextDocument, scope: str, before: str = "") -> Iterator[Candidate]:
    """Yield the values of a scope: its inputs and the outputs of its nodes.

    Args:
        doc: the document.
        scope: pointer of the scope.
        before: a node that must not be among the origins of a value, lest there be a cycle.
    """
    inputs = doc.written(scope).get("inputs", {})
    for name in inputs if isinstance(inputs, dict) else ():
        yield Candidate(name, doc.type_of(scope, name))
    later = _later(doc, scope, before) if before else frozenset()
    for name in doc.nodes(scope):
        if name not in later:
            for port, type_ in outputs_of(doc, scope, name).items():
                yield Candidate(f"{name}.{port}", type_)


def _later(doc: TextDocument, scope: str, start: str) -> set[str]:
    """Return a node and all nodes that read its outputs, directly or not."""
    readers: dict[str, list[str]] = {}
    for name, node in doc.nodes(scope).items():
        wires = node.get("in", {}) if isinstance(node, dict) else {}
        for value in wires.values():
            readers.setdefault(str(value).partition(".")[0], []).append(name)
    reached, waiting = {start}, [start]
    while waiting:
        more = {*readers.get(waiting.pop(), ())} - reached
        reached |= more
        waiting += more
    return reached


def given_types(doc: TextDocument, scope: str, record: Json) -> dict[str, ValueType]:
    """Return the types of the values that a node reads, by port, where they are known."""
    wires = record.get("in", {})
    pairs = ((port, doc.type_of(scope, str(value))) for port, value in wires.items())
    return {port: type_ for port, type_ in pairs if type_ is not None}


def bindings(ports: Mapping[str, Port], types: Mapping[str, ValueType]) -> Bound | None:
    """Return what the ports' names stand for, given some values; None if one does not fit."""
    bound: Bound = {}
    for name, type_ in types.items():
        if name in ports:
            fitted = fit(ports[name].type, type_, bound, {})
            if not isinstance(fitted, dict):
                return None
            bound = fitted
    return bound


def fits_port(port: Port, type_: ValueType, bound: Bound) -> bool:
    """Return whether a value fits a port, after others have bound the names of its type."""
    return isinstance(fit(port.type, type_, bound, {}), dict)


def fits_slot(block: BlockType, slot: Slot) -> bool:
    """Return whether a block has the ports that a slot gives, or is of the kind that it takes."""
    if slot.takes or block.fills:
        return block.fills == slot.takes
    signature = example_signature(block)
    inputs = {port.name: port for port in signature.inputs}
    outputs = {port.name: port for port in signature.outputs}
    entry, leave = inputs.get(slot.input.name), outputs.get(slot.output.name)
    return (
        entry is not None
        and leave is not None
        and (entry.type.kind, leave.type.kind) == (slot.input.type.kind, slot.output.type.kind)
    )
