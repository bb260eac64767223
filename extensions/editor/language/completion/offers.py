"""The values that the rest of a spec offers at a place: wires, blocks, templates, params, specs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Literal

from .....graphs.ir.traverse import visits
from .....graphs.ir.value_type import KINDS, SIZED
from .....plugin import BlockType, Slot, ValueType
from .....specs.form import holds_spec
from .....specs.load import spec_names
from .....specs.reader import RUN_FOLDER, shipped_names
from ..document import Document, Site, site
from ..ports import (
    bindings,
    example_signature,
    fits_port,
    fits_slot,
    given_types,
    ports_of,
    record_at,
    signature_of,
    template_ports,
    values_in,
)
from .items import Item, item

What = Literal["value", "type", "word", "file"]
"""A complete string, a part of a type, a name in an expression, or the name of another file."""
_MOST_PATHS = 300


def offers(doc: Document, path: tuple[str, ...], what: What) -> Iterator[Item]:
    """Yield what can stand at a path of a text; the ranges are set by the caller.

    Args:
        doc: the document.
        path: keys and indices of the value.
        what: what is written there.
    """
    if what == "word":
        yield from _params(doc)
    elif what == "type":
        yield from _type_words(doc)
    elif what == "file":
        if path[-1:] in (("spec",), ("extends",), ("run",), ("objective",)):
            yield from _files(doc, path[-1])
    else:
        at = site(path)
        yield from _in_node(doc, at) if at.node else _outside(doc, at)


def _in_node(doc: Document, at: Site) -> Iterator[Item]:
    """Yield what can stand at a place of a node."""
    match at.rest:
        case ("in", port):
            yield from _wires(doc, at, port)
        case ("use",):
            yield from _uses(doc, at)
        case ("block",) | ("instead", _):
            yield from _templates(doc)
        case ("share",):
            others = doc.nodes(at.scope).items()
            yield from (item(name, "node") for name, node in others if "use" in node)
        case ("carry" | "collect" as key, _):
            template = str(doc.nodes(at.scope).get(at.node, {}).get("block", ""))
            written = doc.written(f"/blocks/{template}")
            inputs, outputs = written.get("inputs", {}), written.get("outputs", {})
            names = outputs if key == "collect" else [name for name in inputs if name in outputs]
            yield from (item(name, "value", str(inputs.get(name, ""))) for name in names)
        case ("params", *_, "spec"):
            yield from _files(doc, "spec")
        case _:
            return


def _outside(doc: Document, at: Site) -> Iterator[Item]:
    """Yield what can stand at a place outside of nodes."""
    match (*at.use[2:], *at.rest) if at.use[:1] == ("patch",) else at.rest:
        case ("outputs", _):
            for value in values_in(doc, at.scope):
                yield Item(value.name, "wire", value.name, detail=str(value.type or ""))
        case (*_, "use"):
            yield from _uses(doc, at)
        case ("deploy",):
            yield from (item(name, "node") for name in doc.nodes(""))
        case ("extends",) | ("spec",) | ("params", *_, "spec"):
            yield from _files(doc, "spec")
        case ("step", "axis"):
            axes = doc.merged.get("axes", {}).items()
            yield from (item(name, "axis", kind) for name, kind in axes if kind == "time")
        case ("tie", _, _):
            yield from _weights(doc, at.scope)
        case ("patch", _, "select") | ("init", _, "select"):
            yield from _paths(doc)
        case _:
            return


def _params(doc: Document) -> Iterator[Item]:
    """Yield the params that expressions can read, with their values."""
    for name, value in doc.merged.get("params", {}).items():
        if not holds_spec(value):
            now = doc.values.get(name, value)
            detail = json.dumps(now, ensure_ascii=False, default=str)
            yield Item(name, "param", name, detail=detail)


def _wires(doc: Document, at: Site, port: str) -> Iterator[Item]:
    """Yield the values that fit a port; those of unknown type come last."""
    record = doc.nodes(at.scope).get(at.node) or record_at(doc, at.use)
    others = {**record, "in": {k: v for k, v in record.get("in", {}).items() if k != port}}
    ports = ports_of(doc, at.scope, record)
    expected = ports.get(port)
    bound = bindings(ports, given_types(doc, at.scope, others)) or {}
    for value in values_in(doc, at.scope, at.node):
        if expected is None or value.type is None or fits_port(expected, value.type, bound):
            detail, rank = str(value.type or ""), int(value.type is None)
            yield Item(value.name, "wire", value.name, detail=detail, rank=rank)


def _uses(doc: Document, at: Site) -> Iterator[Item]:
    """Yield the blocks, templates and params that a use can name, those that fit first."""
    record = record_at(doc, at.use)
    slot = _slot(doc, at)
    wired = given_types(doc, at.scope, record) if at.node and not slot else {}
    for block in doc.registry:
        key = block.key
        if slot is not None:
            rank = 0 if fits_slot(block, slot) else None
        else:
            rank = None if block.fills else _rank(block, wired)
        if rank is not None:
            needs = _needs(block, wired) if not slot else ""
            offer = item(key, "block", block.doc, f"{block.doc}\n\n{block.source}", rank)
            yield Item(key, "block", key, detail=needs or offer.detail, doc=offer.doc, rank=rank)
    for template in _templates(doc):
        ports = template_ports(doc, template.label)
        fit_all = wired.keys() <= ports.keys() and bindings(ports, wired) is not None
        if slot is None or slot.input.name in ports:
            yield Item(
                template.label,
                "template",
                template.new,
                detail=template.detail,
                rank=0 if fit_all else 3,
            )
    for name, value in doc.merged.get("params", {}).items():
        if isinstance(value, dict) and at.node:
            detail = str(value.get("use") or value.get("spec", ""))
            yield Item(f"={name}", "param", f"={name}", detail=detail)


def _slot(doc: Document, at: Site) -> Slot | None:
    """Return the slot that a use fills, or None for a node."""
    if len(at.use) < 2 or at.use[-2] != "fill":  # noqa: PLR2004 - fill and the name of the slot
        return None
    outer = signature_of(doc, record_at(doc, at.use[:-2]))
    slots = outer.slots if outer else ()
    return next((slot for slot in slots if slot.name == at.use[-1]), None)


def _rank(block: BlockType, wired: Mapping[str, ValueType]) -> int | None:
    """Return 0 for a block that fits the wires of a node, 1 if it needs more, None if none fit."""
    ports = {port.name: port for port in example_signature(block).inputs}
    slots = example_signature(block).slots
    if not wired:
        return 1
    unknown = wired.keys() - ports.keys()
    if (unknown and not slots) or not wired.keys() & ports.keys():
        return None
    if bindings(ports, wired) is None:
        return None
    return 1 if _needs(block, wired) else 0


def _needs(block: BlockType, wired: Mapping[str, ValueType]) -> str:
    """Return which ports and slots a block needs besides the wired ones."""
    signature = example_signature(block, bare=True)
    missing = [
        port.name for port in signature.inputs if not port.optional and port.name not in wired
    ]
    return f"needs {', '.join(missing)}" if missing and wired else ""


def _templates(document: Document) -> Iterator[Item]:
    for name in document.merged.get("blocks", {}):
        ports = template_ports(document, name)
        detail = ", ".join(f"{port.name} {port.type}" for port in ports.values())
        doc = document.written(f"/blocks/{name}").get("doc", "")
        yield Item(name, "template", name, detail=detail, doc=str(doc))


def _files(doc: Document, key: str) -> Iterator[Item]:
    """Yield the names of shipped specs and of those beside the file."""
    folders = {"run": (RUN_FOLDER,), "objective": ("objectives",)}.get(key)
    names = shipped_names(*folders) if folders else spec_names(doc.path or "x.json")
    for name in names:
        yield Item(name, "file", name)


def _type_words(document: Document) -> Iterator[Item]:
    for kind, doc in KINDS.items():
        yield Item(kind, "value", f"{kind}:" if kind in SIZED else f"{kind}[", detail=doc)
    for axis, what in document.merged.get("axes", {}).items():
        yield Item(axis, "axis", axis, detail=what)
    for name, value in document.values.items():
        if isinstance(value, int) and not isinstance(value, bool):
            yield Item(name, "param", name, detail=str(value))


def _weights(doc: Document, scope: str) -> Iterator[Item]:
    body = doc.scope(scope)
    weights = body.weights() if body else {}
    for path, shape in itertools.islice(weights.items(), _MOST_PATHS):
        yield Item(path, "value", path, detail=" x ".join(map(str, shape)))


def _paths(doc: Document) -> Iterator[Item]:
    """Yield what a patch or a rule can select: nodes, slots, and every use of a block."""
    uses = dict[str, int]()
    every = visits(doc.graph.root) if doc.graph else ()
    for visit in itertools.islice(every, _MOST_PATHS):
        key = visit.part.key if visit.part is not None else ""
        uses[key] = uses.get(key, 0) + 1
        yield Item(visit.path, "node", visit.path, detail=key)
    for key, count in uses.items():
        if "@" in key:
            label = f"**[use={key}]"
            yield Item(label, "block", label, detail=f"{count} places", rank=1)
