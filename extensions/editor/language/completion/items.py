"""Completion items: what they insert, and where."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..positions import Cursor

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


def item(
    label: str, kind: ItemKind, detail: str = "", doc: str = "", rank: int = 0, new: str = ""
) -> Item:
    """Return an item whose range is not known yet; `new` is the label if it is empty."""
    return Item(label, kind, new or label, detail=_line(detail), doc=doc, rank=rank)


def _line(text: str) -> str:
    first = re.split(r"(?<=[.;])\s|\n", text.strip())[0] if text else ""
    return first.rstrip(";")


def as_string(candidate: Item, at: Cursor) -> Item:
    """Return an item that replaces the whole string at a cursor, in quotes."""
    new = candidate.new if at.quoted else json.dumps(candidate.new, ensure_ascii=False)
    return replace(candidate, new=new, start=at.start, end=at.end)


def as_json_value(candidate: Item, value: Any, at: Cursor) -> Item:
    """Return an item that replaces the value at a cursor by another JSON value."""
    start, end = at.start - at.quoted, at.end + at.quoted
    if at.quoted and isinstance(value, str):
        return replace(candidate, new=value, start=at.start, end=at.end)
    written = json.dumps(value, ensure_ascii=False)
    return replace(candidate, new=written, start=max(0, start), end=end)


def as_word(candidate: Item, at: Cursor, text: str, prefix: str = "") -> Item:
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


def as_key(candidate: Item, at: Cursor, text: str, value: str = "") -> Item:
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
