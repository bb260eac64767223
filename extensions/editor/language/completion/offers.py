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
from .....specs.held import spec_names
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


def offers(known: Document, path: tuple[str, ...], what: What) -> Iterator[Item]:
    """Yield what can stand at a path of a text; the ranges are set by the caller.

    Args:
        known: the document.
        path: keys and indices of the value.
        what: what is written there.
    """
    if what == "word":
        yield from _params(known)
    elif what == "type":
        yield from _type_words(known)
    elif what == "file":
        if path[-1:] in (("spec",), ("extends",), ("run",), ("objective",)):
            yield from _files(known, path[-1])
    else:
        at = site(path)
        yield from _in_node(known, at) if at.node else _outside(known, at)


def _in_node(known: Document, at: Site) -> Iterator[Item]:
    """Yield what can stand at a place of a node."""
    match at.rest:
        case ("in", port):
            yield from _wires(known, at, port)
        case ("use",):
            yield from _uses(known, at)
        case ("block",) | ("instead", _):
            yield from _templates(known)
        case ("share",):
            others = known.nodes(at.scope).items()
            yield from (item(name, "node") for name, node in others if "use" in node)
        case ("carry" | "collect" as key, _):
            template = str(known.nodes(at.scope).get(at.node, {}).get("block", ""))
            written = known.written(f"/blocks/{template}")
            inputs, outputs = written.get("inputs", {}), written.get("outputs", {})
            names = outputs if key == "collect" else [one for one in inputs if one in outputs]
            yield from (item(name, "value", str(inputs.get(name, ""))) for name in names)
        case ("params", *_, "spec"):
            yield from _files(known, "spec")
        case _:
            return


def _outside(known: Document, at: Site) -> Iterator[Item]:
    """Yield what can stand at a place outside of nodes."""
    match (*at.use[2:], *at.rest) if at.use[:1] == ("patch",) else at.rest:
        case ("outputs", _):
            for value in values_in(known, at.scope):
                yield Item(value.name, "wire", value.name, detail=str(value.type or ""))
        case (*_, "use"):
            yield from _uses(known, at)
        case ("deploy",):
            yield from (item(name, "node") for name in known.nodes(""))
        case ("extends",) | ("spec",) | ("params", *_, "spec"):
            yield from _files(known, "spec")
        case ("step", "axis"):
            axes = known.merged.get("axes", {}).items()
            yield from (item(name, "axis", kind) for name, kind in axes if kind == "time")
        case ("tie", _, _):
            yield from _weights(known, at.scope)
        case ("patch", _, "select") | ("init", _, "select"):
            yield from _paths(known)
        case _:
            return


def _params(known: Document) -> Iterator[Item]:
    """Yield the params that expressions can read, with their values."""
    for name, value in known.merged.get("params", {}).items():
        if not holds_spec(value):
            now = known.values.get(name, value)
            detail = json.dumps(now, ensure_ascii=False, default=str)
            yield Item(name, "param", name, detail=detail)


def _wires(known: Document, at: Site, port: str) -> Iterator[Item]:
    """Yield the values that fit a port; those of unknown type come last."""
    record = known.nodes(at.scope).get(at.node) or record_at(known, at.use)
    others = {**record, "in": {k: v for k, v in record.get("in", {}).items() if k != port}}
    ports = ports_of(known, at.scope, record)
    wanted = ports.get(port)
    bound = bindings(ports, given_types(known, at.scope, others)) or {}
    for value in values_in(known, at.scope, at.node):
        if wanted is None or value.type is None or fits_port(wanted, value.type, bound):
            detail, rank = str(value.type or ""), int(value.type is None)
            yield Item(value.name, "wire", value.name, detail=detail, rank=rank)


def _uses(known: Document, at: Site) -> Iterator[Item]:
    """Yield the blocks, templates and params that a use can name, those that fit first."""
    record = record_at(known, at.use)
    slot = _slot(known, at)
    given = given_types(known, at.scope, record) if at.node and not slot else {}
    for block in known.registry:
        key = block.key
        if slot is not None:
            rank = 0 if fits_slot(block, slot) else None
        else:
            rank = None if block.fills else _rank(block, given)
        if rank is not None:
            needs = _needs(block, given) if not slot else ""
            made = item(key, "block", block.doc, f"{block.doc}\n\n{block.source}", rank)
            yield Item(key, "block", key, detail=needs or made.detail, doc=made.doc, rank=rank)
    for one in _templates(known):
        ports = template_ports(known, one.label)
        fit_all = given.keys() <= ports.keys() and bindings(ports, given) is not None
        if slot is None or slot.input.name in ports:
            yield Item(one.label, "template", one.new, detail=one.detail, rank=0 if fit_all else 3)
    for name, value in known.merged.get("params", {}).items():
        if isinstance(value, dict) and at.node:
            detail = str(value.get("use") or value.get("spec", ""))
            yield Item(f"={name}", "param", f"={name}", detail=detail)


def _slot(known: Document, at: Site) -> Slot | None:
    """Return the slot that a use fills, or None for a node."""
    if len(at.use) < 2 or at.use[-2] != "fill":  # noqa: PLR2004 - fill and the name of the slot
        return None
    outer = signature_of(known, record_at(known, at.use[:-2]))
    slots = outer.slots if outer else ()
    return next((slot for slot in slots if slot.name == at.use[-1]), None)


def _rank(block: BlockType, given: Mapping[str, ValueType]) -> int | None:
    """Return 0 for a block that fits the wires of a node, 1 if it needs more, None if none fit."""
    ports = {port.name: port for port in example_signature(block).inputs}
    slots = example_signature(block).slots
    if not given:
        return 1
    unknown = given.keys() - ports.keys()
    if (unknown and not slots) or not given.keys() & ports.keys():
        return None
    if bindings(ports, given) is None:
        return None
    return 1 if _needs(block, given) else 0


def _needs(block: BlockType, given: Mapping[str, ValueType]) -> str:
    """Return which ports and slots a block needs besides the wired ones."""
    made = example_signature(block, bare=True)
    missing = [port.name for port in made.inputs if not port.optional and port.name not in given]
    return f"needs {', '.join(missing)}" if missing and given else ""


def _templates(known: Document) -> Iterator[Item]:
    for name in known.merged.get("blocks", {}):
        ports = template_ports(known, name)
        detail = ", ".join(f"{port.name} {port.type}" for port in ports.values())
        doc = known.written(f"/blocks/{name}").get("doc", "")
        yield Item(name, "template", name, detail=detail, doc=str(doc))


def _files(known: Document, key: str) -> Iterator[Item]:
    """Yield the names of shipped specs and of those beside the file."""
    folders = {"run": (RUN_FOLDER,), "objective": ("objectives",)}.get(key)
    names = shipped_names(*folders) if folders else spec_names(known.path or "x.json")
    for name in names:
        yield Item(name, "file", name)


def _type_words(known: Document) -> Iterator[Item]:
    for kind, doc in KINDS.items():
        yield Item(kind, "value", f"{kind}:" if kind in SIZED else f"{kind}[", detail=doc)
    for axis, what in known.merged.get("axes", {}).items():
        yield Item(axis, "axis", axis, detail=what)
    for name, value in known.values.items():
        if isinstance(value, int) and not isinstance(value, bool):
            yield Item(name, "param", name, detail=str(value))


def _weights(known: Document, scope: str) -> Iterator[Item]:
    found = known.scope(scope)
    weights = found.weights() if found else {}
    for path, shape in itertools.islice(weights.items(), _MOST_PATHS):
        yield Item(path, "value", path, detail=" x ".join(map(str, shape)))


def _paths(known: Document) -> Iterator[Item]:
    """Yield what a patch or a rule can select: nodes, slots, and every use of a block."""
    uses = dict[str, int]()
    every = visits(known.graph.root) if known.graph else ()
    for visit in itertools.islice(every, _MOST_PATHS):
        key = visit.part.key if visit.part is not None else ""
        uses[key] = uses.get(key, 0) + 1
        yield Item(visit.path, "node", visit.path, detail=key)
    for key, count in uses.items():
        if "@" in key:
            label = f"**[use={key}]"
            yield Item(label, "block", label, detail=f"{count} places", rank=1)
