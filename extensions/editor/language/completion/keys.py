"""The keys that an object of a file can have."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .....plugin import BlockType
from .....specs.patches.selections import SelectError, TooMuchError, Walk, read_selection
from ..document import Document, site
from ..ports import chosen, ports_of, record_at
from ..schemas import properties
from .items import Item

_MOST_SELECTED = 50
"""Number of selected records of a patch whose keys are offered."""


def keys_at(document: Document, path: tuple[str, ...]) -> Iterator[tuple[Item, str]]:
    """Yield the keys that the object at a path can have, each with the start of its value."""
    if document.kind == "spec":
        yield from _own(document, path)
    for name, inner in properties(document.kind, document.root.json(), path).items():
        default = f"default {json.dumps(inner['default'])}" if "default" in inner else ""
        detail = default or _type(inner)
        doc, rank = inner.get("description", ""), 2 if name.startswith("$") else 1
        yield Item(name, "key", name, detail=detail, doc=doc, rank=rank), _start(inner)


def _own(doc: Document, path: tuple[str, ...]) -> Iterator[tuple[Item, str]]:
    """Yield the keys that depend on the rest of the spec."""
    at = site(path)
    if at.node and at.rest == ("in",):
        record = record_at(doc, at.use) or doc.nodes(at.scope).get(at.node, {})
        for port in ports_of(doc, at.scope, record).values():
            detail = f"{port.type}{'?' if port.optional else ''}"
            rank = int(port.optional)
            yield Item(port.name, "key", port.name, detail=detail, doc=port.doc, rank=rank), '""'
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


def _dotted(doc: Document, path: tuple[str, ...]) -> Iterator[tuple[Item, str]]:
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


def selected(doc: Document, select: object) -> list[Mapping[str, Any]]:
    """Return the records that a selection selects in the parent of a spec, the first few."""
    if doc.loaded is None or not isinstance(select, str):
        return []
    try:
        selection = read_selection(select)
        walk = Walk(doc.merged, [selection])
    except (SelectError, TooMuchError, KeyError, TypeError):
        return []
    sites = [*(walk.found[0].paths or walk.found[0].near)][:_MOST_SELECTED]
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
