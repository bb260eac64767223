"""The outline of a text: params, inputs, templates, nodes, patches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ....specs.json_tree import TextValue
from .document import document

SymbolKind = Literal[
    "section", "param", "input", "output", "template", "node", "slot", "patch", "key"
]
_SECTIONS: dict[str, SymbolKind] = {
    "params": "param",
    "inputs": "input",
    "outputs": "output",
    "blocks": "template",
    "nodes": "node",
    "patch": "patch",
    "rows": "section",
}


@dataclass(frozen=True, slots=True)
class OutlineSymbol:
    """A part of a text with a name."""

    name: str
    kind: SymbolKind
    detail: str
    start: int
    """Where it begins, in characters, with its key."""
    end: int
    name_start: int
    name_end: int
    children: tuple[OutlineSymbol, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        keys = ("name", "kind", "detail", "start", "end", "name_start", "name_end")
        children = [child.as_json() for child in self.children]
        return {**{key: getattr(self, key) for key in keys}, "children": children}


def symbols(text: str, path: str) -> list[OutlineSymbol]:
    """Return the outline of a text.

    Args:
        text: a spec, a run or a study.
        path: its file.
    """
    doc = document(text, path)
    entries = doc.root.entries if doc.root.kind == "object" else []
    return [_section(entry) for entry in entries if entry.key]


def _section(entry: TextValue) -> OutlineSymbol:
    kind = _SECTIONS.get(entry.name)
    if kind is None:
        return _symbol(entry, "key", _short(entry))
    return _symbol(entry, "section", "", tuple(_part(entry_, kind) for entry_ in entry.entries))


def _part(entry: TextValue, kind: SymbolKind) -> OutlineSymbol:
    if kind == "template":
        inner = entry.get("nodes")
        nodes = tuple(_part(node, "node") for node in inner.entries) if inner else ()
        return _symbol(entry, kind, "", nodes)
    if kind == "node":
        word = next((entry.get(key) for key in ("use", "block", "share") if entry.get(key)), None)
        count = entry.get("repeat")
        detail = _short(word) + (f" x {_short(count)}" if count else "")
        fill = entry.get("fill")
        slots = tuple(_part(slot, "node") for slot in fill.entries) if fill else ()
        return _symbol(entry, kind, detail, slots)
    if kind == "patch":
        return _symbol(entry, kind, "", (), _short(entry.get("select")) or f"patch {entry.name}")
    return _symbol(entry, kind, _short(entry))


def _symbol(
    entry: TextValue,
    kind: SymbolKind,
    detail: str,
    inner: tuple[OutlineSymbol, ...] = (),
    name: str = "",
) -> OutlineSymbol:
    start, stop = entry.key or (entry.start, min(entry.end, entry.start + 1))
    shown = name or entry.name or "(no name)"
    return OutlineSymbol(shown, kind, detail, start, max(entry.end, stop), start, stop, inner)


def _short(value: TextValue | None) -> str:
    if value is None or value.kind in ("object", "list", "none"):
        return ""
    return str(value.scalar)[:60]
