"""Completion: the keys and values that fit at an offset of a text."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ....graphs.ir.value_type import KINDS, SIZED
from ....plugin import BlockType, Slot, ValueType, visits
from ....specs.form import holds_spec
from ....specs.load import spec_names
from ....specs.patches.selections import SelectError, read_selection
from ....specs.patches.walk import TooMuchError, Walk
from ....specs.reader import FOR_EDITORS, RUN_FOLDER, shipped_names
from .document import Site, TextDocument, document, site
from .ports import (
    bindings,
    chosen,
    example_signature,
    fits_port,
    fits_slot,
    given_types,
    likely,
    ports_of,
    record_at,
    signature_of,
    template_ports,
    values_in,
)
from .positions import Cursor, cursor
from .schemas import at as schemas_at
from .schemas import choices, fits, properties

ItemKind = Literal["key", "block", "template", "param", "value", "wire", "node", "axis", "file"]


@dataclass(frozen=True, slots=True)
class Item:
    """One completion: a text to insert in place of a range."""

    label: str
    kind: ItemKind
    new: str
    start: int = 0
    """Where the replaced range begins, in characters."""
    end: int = 0
    detail: str = ""
    """One line: a type, a default, or what it is."""
    doc: str = ""
    rank: int = 0
    """Items of a lower rank come first."""

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        keys = ("label", "kind", "new", "start", "end", "detail", "doc", "rank")
        return {key: getattr(self, key) for key in keys}


def _item(
    label: str, kind: ItemKind, detail: str = "", doc: str = "", rank: int = 0, new: str = ""
) -> Item:
    """Return an item whose range is not known yet; `new` is the label if it is empty."""
    return Item(label, kind, new or label, detail=_line(detail), doc=doc, rank=rank)


def _line(text: str) -> str:
    first = re.split(r"(?<=[.;])\s|\n", text.strip())[0] if text else ""
    return first.rstrip(";")


def _as_string(candidate: Item, at: Cursor) -> Item:
    """Return an item that replaces the whole string at a cursor, in quotes."""
    new = candidate.new if at.quoted else json.dumps(candidate.new, ensure_ascii=False)
    return replace(candidate, new=new, start=at.start, end=at.end)


def _as_json_value(candidate: Item, value: Any, at: Cursor) -> Item:
    """Return an item that replaces the value at a cursor by another JSON value."""
    start, end = at.start - at.quoted, at.end + at.quoted
    if at.quoted and isinstance(value, str):
        return replace(candidate, new=value, start=at.start, end=at.end)
    written = json.dumps(value, ensure_ascii=False)
    return replace(candidate, new=written, start=max(0, start), end=end)


def _as_word(candidate: Item, at: Cursor, text: str, prefix: str = "") -> Item:
    """Return an item that replaces the word at a cursor, as in an expression or a type.

    Args:
        candidate: the item.
        at: the cursor.
        text: the complete text.
        prefix: what precedes the word where no string is begun, such as `=`.
    """
    if not at.quoted:
        new = json.dumps(prefix + candidate.new, ensure_ascii=False)
        return replace(candidate, new=new, start=at.start, end=at.end)
    before = re.search(r"\w*\Z", at.typed)
    after = re.match(r"\w*", text[at.start + len(at.typed) : at.end])
    start = at.start + len(at.typed) - len(before[0] if before else "")
    end = at.start + len(at.typed) + len(after[0] if after else "")
    begun = at.typed.startswith(prefix)
    return replace(
        candidate, new=candidate.new if begun else prefix + candidate.new, start=start, end=end
    )


def _as_key(candidate: Item, at: Cursor, text: str, value: str = "") -> Item:
    """Return an item that inserts a key, with the beginning of its value where it has none.

    Args:
        candidate: the item.
        at: the cursor.
        text: the complete text.
        value: JSON text of the value.
    """
    if at.role == "key":
        tail = text[at.end :].lstrip('"').lstrip()
        if tail.startswith(":"):
            return replace(candidate, start=at.start, end=at.end)
        closes = text[at.end : at.end + 1] == '"'
        new = f'{candidate.new}": {value}'
        return replace(candidate, new=new, start=at.start, end=at.end + closes)
    new = f"{json.dumps(candidate.new, ensure_ascii=False)}: {value}"
    return replace(candidate, new=new, start=at.start, end=at.end)


_MOST_SELECTED = 50
"""Number of selected records of a patch whose keys are offered."""


def _keys_at(document: TextDocument, path: tuple[str, ...]) -> Iterator[tuple[Item, str]]:
    """Yield the keys that the object at a path can have, each with the start of its value."""
    if document.kind == "spec":
        yield from _own(document, path)
    for name, inner in properties(document.kind, document.root.json(), path).items():
        default = f"default {json.dumps(inner['default'])}" if "default" in inner else ""
        detail = default or _type(inner)
        doc, rank = inner.get("description", ""), 2 if name.startswith("$") else 1
        yield (
            Item(name, "key", name, detail=detail, doc=doc, rank=rank),
            _start(inner) or _needed(document, path, name),
        )


def _needed(doc: TextDocument, path: tuple[str, ...], name: str) -> str:
    value = likely(doc, (*path, name))
    return "" if value is None else json.dumps(value)


def _own(doc: TextDocument, path: tuple[str, ...]) -> Iterator[tuple[Item, str]]:
    """Yield the keys that depend on the rest of the spec."""
    at = site(path)
    if at.node and at.below == ("in",):
        record = record_at(doc, at.use) or doc.nodes(at.scope).get(at.node, {})
        for port in ports_of(doc, at.scope, record).values():
            detail = f"{port.type}{'?' if port.optional else ''}"
            rank = int(port.optional)
            yield Item(port.name, "key", port.name, detail=detail, doc=port.doc, rank=rank), '""'
    elif at.node and at.below == ("params",):
        for name, value in _params_of_template(doc, at).items():
            detail = "required" if value is None else f"default {json.dumps(value)}"
            yield Item(name, "key", name, detail=detail, rank=int(value is not None)), ""
    elif path == ("params",) and doc.root.get("extends"):
        for name, value in doc.merged.get("params", {}).items():
            written = json.dumps(value, ensure_ascii=False)
            yield Item(name, "key", name, detail=f"inherited: {written}"), written
    elif path in (("output_types",), ("losses",)):
        for name in doc.written("").get("outputs", {}):
            type_ = doc.graph.outputs.get(name) if doc.graph else None
            if path == ("output_types",) or type_ is None or type_.kind == "loss":
                value = f'"{type_}"' if path == ("output_types",) else "1"
                yield Item(name, "key", name, detail=str(type_ or "")), value
    elif path[:1] == ("patch",) and path[2:] == ("set",):
        yield from _dotted(doc, path)


def _params_of_template(doc: TextDocument, at: Site) -> Mapping[str, Any]:
    """Return the params of the template that a use names, with their defaults."""
    record = record_at(doc, at.use)
    template = record.get("block") or chosen(doc, record.get("use"))[0]
    params = doc.written(f"/blocks/{template}").get("params", {})
    return params if isinstance(params, Mapping) else {}


def _dotted(doc: TextDocument, path: tuple[str, ...]) -> Iterator[tuple[Item, str]]:
    """Yield the keys that a patch can set in what it selects."""
    blocks, wired = dict[str, BlockType](), dict[str, str]()
    for record in selected(doc, record_at(doc, path[:2]).get("select")):
        used = record_at(doc, path).get("use", record.get("use"))
        block = doc.registry.get(chosen(doc, used)[0])
        if block is not None:
            blocks.setdefault(block.key, block)
        wired |= record.get("in", {})
    for block in blocks.values():
        for name, field in block.params.model_fields.items():
            default = "required" if field.is_required() else f"default {field.default!r}"
            candidate = Item(
                f"params.{name}",
                "key",
                f"params.{name}",
                detail=f"{block.key}, {default}",
                doc=field.description or "",
            )
            yield candidate, ""
    if blocks:
        yield Item("use", "key", "use", detail="another block"), '""'
    for port, value in wired.items():
        yield Item(f"in.{port}", "key", f"in.{port}", detail=f"reads {value}", rank=1), '""'


def selected(doc: TextDocument, select: object) -> list[Mapping[str, Any]]:
    """Return the records that a selection selects in the parent of a spec, the first few."""
    if doc.loaded is None or not isinstance(select, str):
        return []
    try:
        selection = read_selection(select)
        walk = Walk(doc.merged, [selection])
    except (SelectError, TooMuchError, KeyError, TypeError):
        return []
    sites = [*(walk.matches[0].paths or walk.matches[0].near)][:_MOST_SELECTED]
    records = (walk.record(scope, path) for scope, path in sites)
    return [record for record in records if isinstance(record, Mapping)]


def _type(inner: Mapping[str, Any]) -> str:
    kinds = {schema.get("type") for schema in (inner, *inner.get("anyOf", ())) if "type" in schema}
    return " or ".join(sorted(str(kind) for kind in kinds))


def _start(inner: Mapping[str, Any]) -> str:
    """Return the beginning of a value: its default, or the brackets of its type."""
    default = inner.get("default")
    if isinstance(default, bool | int | float) or (default and isinstance(default, str)):
        return json.dumps(default)
    starts = {"object": "{}", "array": "[]", "string": '""'}
    types = [schema.get("type") for schema in (inner, *inner.get("anyOf", ()))]
    return next((starts[type_] for type_ in types if type_ in starts), "") if types[0] else ""


What = Literal["value", "type", "word", "file"]
"""A complete string, a part of a type, a name in an expression, or the name of another file."""
_MOST_PATHS = 300


def _offers(doc: TextDocument, path: tuple[str, ...], what: What) -> Iterator[Item]:
    """Yield what can stand at a path of a text; the ranges are set by the caller.

    Args:
        doc: the document.
        path: keys and indices of the value.
        what: what is written there.
    """
    if what == "word":
        yield from _params(doc, site(path))
    elif what == "type":
        yield from _type_words(doc)
    elif what == "file":
        if path[-1:] in (("spec",), ("extends",), ("run",), ("objective",)):
            yield from _files(doc, path[-1])
    else:
        at = site(path)
        yield from _in_node(doc, at) if at.node else _outside(doc, at)


def _in_node(doc: TextDocument, at: Site) -> Iterator[Item]:
    """Yield what can stand at a place of a node."""
    match at.below:
        case ("in", port):
            yield from _wires(doc, at, port)
        case ("use",):
            yield from _uses(doc, at)
        case ("block",) | ("instead", _):
            yield from _templates(doc)
        case ("share",):
            others = doc.nodes(at.scope).items()
            yield from (_item(name, "node") for name, node in others if "use" in node)
        case ("carry" | "collect" as key, _):
            template = str(doc.nodes(at.scope).get(at.node, {}).get("block", ""))
            written = doc.written(f"/blocks/{template}")
            inputs, outputs = written.get("inputs", {}), written.get("outputs", {})
            names = outputs if key == "collect" else [name for name in inputs if name in outputs]
            yield from (_item(name, "value", str(inputs.get(name, ""))) for name in names)
        case ("params", *_, "spec"):
            yield from _files(doc, "spec")
        case _:
            return


def _outside(doc: TextDocument, at: Site) -> Iterator[Item]:
    """Yield what can stand at a place outside of nodes."""
    match (*at.use[2:], *at.below) if at.use[:1] == ("patch",) else at.below:
        case ("outputs", _):
            for value in values_in(doc, at.scope):
                yield Item(value.name, "wire", value.name, detail=str(value.type or ""))
        case (*_, "use"):
            yield from _uses(doc, at)
        case ("deploy",):
            yield from (_item(name, "node") for name in doc.nodes(""))
        case ("extends", *_) | ("spec",) | ("params", *_, "spec"):
            yield from _files(doc, "spec")
        case ("step", "axis"):
            axes = doc.merged.get("axes", {}).items()
            yield from (_item(name, "axis", kind) for name, kind in axes if kind == "time")
        case ("tie", _, _):
            yield from _weights(doc, at.scope)
        case ("patch", _, "select") | ("init", _, "select"):
            yield from _paths(doc)
        case _:
            return


def _params(doc: TextDocument, at: Site) -> Iterator[Item]:
    """Yield the params that expressions in a place can read, with their values."""
    index = record_at(doc, at.use).get("index") if at.node else None
    if isinstance(index, str) and at.below[:1] == ("params",):
        yield Item(index, "param", index, detail="number of the copy")
    inner = doc.written(at.scope).get("params", {}) if at.scope else {}
    for name, value in inner.items() if isinstance(inner, dict) else ():
        yield Item(name, "param", name, detail="required" if value is None else json.dumps(value))
    for name, value in doc.merged.get("params", {}).items():
        if not holds_spec(value):
            now = doc.values.get(name, value)
            detail = json.dumps(now, ensure_ascii=False, default=str)
            yield Item(name, "param", name, detail=detail)


def _wires(doc: TextDocument, at: Site, port: str) -> Iterator[Item]:
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


def _uses(doc: TextDocument, at: Site) -> Iterator[Item]:
    """Yield the blocks, templates and params that a use can name, those that fit first."""
    record = record_at(doc, at.use)
    slot = _slot(doc, at)
    wired = given_types(doc, at.scope, record) if at.node and not slot else {}
    for block in doc.registry:
        key = block.key
        if slot is not None:
            rank = 0 if fits_slot(block, slot) else None
        else:
            rank = None if block.fills and not block.steps else _rank(block, wired)
        if rank is not None:
            needs = _needs(block, wired) if not slot else ""
            offer = _item(key, "block", block.doc, f"{block.doc}\n\n{block.source}", rank)
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


def _slot(doc: TextDocument, at: Site) -> Slot | None:
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


def _templates(document: TextDocument) -> Iterator[Item]:
    for name in document.merged.get("blocks", {}):
        ports = template_ports(document, name)
        detail = ", ".join(f"{port.name} {port.type}" for port in ports.values())
        doc = document.written(f"/blocks/{name}").get("doc", "")
        yield Item(name, "template", name, detail=detail, doc=str(doc))


def _files(doc: TextDocument, key: str) -> Iterator[Item]:
    """Yield the names of shipped specs and of those beside the file."""
    folders = {"run": (RUN_FOLDER,), "objective": ("objectives",)}.get(key)
    names = shipped_names(*folders) if folders else spec_names(doc.path or "x.json")
    for name in names:
        yield Item(name, "file", name)


def _type_words(document: TextDocument) -> Iterator[Item]:
    for kind, doc in KINDS.items():
        yield Item(kind, "value", f"{kind}:" if kind in SIZED else f"{kind}[", detail=doc)
    for axis, what in document.merged.get("axes", {}).items():
        yield Item(axis, "axis", axis, detail=what)
    for name, value in document.values.items():
        if isinstance(value, int) and not isinstance(value, bool):
            yield Item(name, "param", name, detail=str(value))


def _weights(doc: TextDocument, scope: str) -> Iterator[Item]:
    body = doc.scope(scope)
    weights = body.weights() if body else {}
    for path, shape in itertools.islice(weights.items(), _MOST_PATHS):
        yield Item(path, "value", path, detail=" x ".join(map(str, shape)))


def _paths(doc: TextDocument) -> Iterator[Item]:
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


MOST = 400
"""Maximum number of items of one answer."""
_TYPES = ("inputs", "output_types")
_FIRST = {FOR_EDITORS, "format", "name", "doc", "params"}
"""Keys that a text may have before it is clear what it is."""


def complete(text: str, offset: int, path: str) -> list[Item]:
    """Return what can be written at an offset, the best first.

    The items are not filtered by what has been typed, which editors do.

    Args:
        text: a spec, a run or a study, which may be broken.
        offset: characters from its start.
        path: the file.
    """
    doc, caret = document(text, path), cursor(text, offset)
    if doc.kind == "other" and not _begun(doc):
        return []
    inside_list = caret.role == "gap" and caret.value.kind == "list"
    if caret.role == "key" or (caret.role == "gap" and not inside_list):
        candidates = _keys(doc, caret, text)
    else:
        more = (str(_index(caret, offset)),) if inside_list else ()
        candidates = _values(doc, caret, (*caret.value.path, *more), text)
    unique: dict[tuple[str, str], Item] = {}
    for candidate in candidates:
        unique.setdefault((candidate.label, candidate.new), candidate)
    return sorted(unique.values(), key=lambda candidate: candidate.rank)[:MOST]


def _begun(doc: TextDocument) -> bool:
    """Return whether a text may be the beginning of a spec."""
    value = doc.root.json()
    return value is None or (isinstance(value, dict) and value.keys() <= _FIRST)


def _index(caret: Cursor, offset: int) -> int:
    return sum(entry.end <= offset for entry in caret.value.entries)


def _keys(doc: TextDocument, caret: Cursor, text: str) -> Iterator[Item]:
    outer = caret.value.outer if caret.role == "key" else caret.value
    if outer is None or outer.kind != "object":
        return
    taken = {entry.name for entry in outer.entries if entry is not caret.value}
    for key, value in _keys_at(doc, outer.path):
        if key.label not in taken:
            yield _as_key(key, caret, text, value)


def _values(
    opened: TextDocument, caret: Cursor, path: tuple[str, ...], text: str
) -> Iterator[Item]:
    if opened.kind == "spec":
        at = site(path)
        key = at.below[0] if at.below else ""
        if not at.node and key in _TYPES and len(at.below) == 2:  # noqa: PLR2004 - key and name
            yield from (_as_word(word, caret, text) for word in _offers(opened, path, "type"))
            return
        candidates = list(_offers(opened, path, "value"))
        if candidates:
            yield from (_as_string(candidate, caret) for candidate in candidates)
            return
        if at.below[:1] == ("require",):
            yield from (_as_word(word, caret, text) for word in _offers(opened, path, "word"))
            return
    else:
        yield from (_as_string(file, caret) for file in _offers(opened, path, "file"))
    listed = schemas_at(opened.kind, opened.root.json(), path, blank=True)
    default = next((schema["default"] for schema in listed if "default" in schema), ...)
    for value, doc in choices(listed).items():
        detail = "default" if value is default or value == default else ""
        yield _as_json_value(_item(json.dumps(value), "value", detail, doc), value, caret)
    if opened.kind == "spec":
        yield from _expressions(opened, caret, path, text, listed)
    if default is not ... and not choices(listed):
        yield _as_json_value(_item(json.dumps(default), "value", "default", rank=1), default, caret)


def _expressions(
    doc: TextDocument, caret: Cursor, path: tuple[str, ...], text: str, listed: list[Any]
) -> Iterator[Item]:
    """Yield params of the spec that an expression can read here."""
    at = site(path)
    if "params" not in at.below and at.below[:1] not in (("repeat",), ("losses",), ("set",)):
        return
    begun = caret.quoted and caret.typed.startswith("=")
    value = likely(doc, path)
    if value is not None:
        label = value if isinstance(value, str) else json.dumps(value)
        yield _as_json_value(_item(label, "value", "fits here", rank=-1), value, caret)
    for word in _offers(doc, path, "word"):
        value = doc.values.get(word.label)
        alone = caret.typed.lstrip("=").isidentifier() or len(caret.typed) <= 1
        if not begun or alone:
            ok = value is None or fits(listed, value)
            label = f"={word.label}"
            expression = _item(label, "param", word.detail, word.doc, rank=0 if ok else 2)
            yield _as_string(expression, caret)
        else:
            yield _as_word(word, caret, text, "=")
