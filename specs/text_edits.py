"""Edit JSON texts by JSON Patch (RFC 6902), leaving formatting and comments as they are."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from .json_tree import TextValue, blanked, part_at, parts_of

WIDEST = 100
"""Maximum length of a line with an object or a list on it, with its comma."""


@dataclass(frozen=True, slots=True)
class PatchOperation:
    """One operation of a JSON Patch."""

    op: Literal["add", "remove", "replace", "move"]
    path: str
    """JSON Pointer of the part; of `move`, the new pointer."""
    value: Any = None
    """The new value of `add` and `replace`."""
    old: str = ""
    """The old pointer of `move`, called `from` in JSON Patch."""

    def as_json(self) -> dict[str, Any]:
        """Return the operation as RFC 6902 defines it."""
        operation: dict[str, Any] = {"op": self.op, "path": self.path}
        if self.op in ("add", "replace"):
            operation["value"] = self.value
        if self.op == "move":
            operation["from"] = self.old
        return operation


@dataclass(frozen=True, slots=True)
class TextEdit:
    """A range of a text, in characters from its start, and what replaces it."""

    start: int
    end: int
    new: str

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {"start": self.start, "end": self.end, "new": self.new}


@dataclass(frozen=True, slots=True)
class Fix:
    """Edits that carry out the help of a finding."""

    edits: tuple[PatchOperation, ...]
    certain: bool = False
    """Whether nothing else can have been meant: `weft check --fix` applies only such fixes."""

    def as_json(self) -> dict[str, Any]:
        """Return the edits as a JSON Patch."""
        return {"certain": self.certain, "patch": [edit.as_json() for edit in self.edits]}


def replacing(at: str, value: Any, *, certain: bool = False) -> Fix:
    """Return the fix that replaces a value."""
    return Fix((PatchOperation("replace", at, value),), certain)


def removing(at: str, *, certain: bool = False) -> Fix:
    """Return the fix that removes a value with its key."""
    return Fix((PatchOperation("remove", at),), certain)


def adding(at: str, value: Any, *, certain: bool = False) -> Fix:
    """Return the fix that adds a key with a value."""
    return Fix((PatchOperation("add", at, value),), certain)


def renaming(at: str, name: str, *, certain: bool = False) -> Fix:
    """Return the fix that gives a value another key."""
    new = at.rpartition("/")[0] + "/" + name.replace("~", "~0").replace("/", "~1")
    return Fix((PatchOperation("move", new, old=at),), certain)


def below(fix: Fix, at: str) -> Fix:
    """Return a fix of a value for the same value inside another one, at a JSON Pointer there."""
    edits = (
        replace(edit, path=at + edit.path, old=edit.old and at + edit.old) for edit in fix.edits
    )
    return replace(fix, edits=tuple(edits))


class EditError(ValueError):
    """An edit names a part that the text does not have, or cannot be made in it."""


def edited(text: str, edits: Iterable[PatchOperation]) -> str:
    """Return a JSON text after some edits, one after another.

    Args:
        text: a JSON text, which may contain comments and trailing commas.
        edits: operations; `move` may only rename a key within its object.

    Raises:
        EditError: a part does not exist, or exists already where one is added.
    """
    for edit in edits:
        text = _edited(text, edit)
    return text


def _edited(text: str, edit: PatchOperation) -> str:
    if edit.op == "add":
        return _with(text, edit)
    part = _part(text, edit.old if edit.op == "move" else edit.path)
    if edit.op == "replace":
        indent = _indent(text, part.start)
        before = part.start - _line_start(text, part.start)
        return text[: part.start] + formatted(edit.value, indent, before) + text[part.end :]
    if edit.op == "remove":
        return _without(text, edit.path)
    old, new = edit.old.rpartition("/"), edit.path.rpartition("/")
    if old[0] != new[0] or part.key is None:
        msg = f"{edit.old} cannot be moved to {edit.path}"
        raise EditError(msg)
    name = parts_of(edit.path)[-1]
    if _part(text, new[0]).get(name) is not None:
        msg = f"{edit.path} exists already"
        raise EditError(msg)
    begin, end = part.key
    return text[:begin] + json.dumps(name, ensure_ascii=False) + text[end:]


def _part(text: str, at: str) -> TextValue:
    part, exact = part_at(text, at)
    if not exact:
        msg = f"the text has no {at or 'value'}"
        raise EditError(msg)
    return part


def _with(text: str, edit: PatchOperation) -> str:
    """Return a text with one more entry, after the last one of its object or list."""
    above, _, _ = edit.path.rpartition("/")
    outer, key = _part(text, above), parts_of(edit.path)[-1]
    listed = text[outer.start] == "["
    if text[outer.start] not in "[{" or (not listed and outer.get(key) is not None):
        msg = f"nothing can be added at {edit.path}"
        raise EditError(msg)
    indent = _indent(text, outer.start)
    written = "" if listed else f"{json.dumps(key, ensure_ascii=False)}: "
    if not outer.entries:
        inside = text[outer.start + 1 : outer.end - 1]
        if inside.strip():  # a comment alone
            inside = inside.rstrip() + "\n" + indent
        before = outer.start - _line_start(text, outer.start) + len(written) + 1
        added = written + formatted(edit.value, indent, before)
        return text[: outer.start + 1] + inside + added + text[outer.end - 1 :]
    last = outer.entries[-1]
    begins = last.key[0] if last.key else last.start
    head = _line_start(text, begins)
    separate = "\n" in text[outer.start : begins] and not text[head:begins].strip()
    inner = text[head:begins] if separate else indent
    gap = f"\n{inner}" if separate else " "
    before = len(inner if separate else text[_line_start(text, last.end) : last.end] + ", ")
    value = formatted(edit.value, inner, before + len(written))
    return f"{text[: last.end]},{gap}{written}{value}{text[last.end :]}"


def _without(text: str, at: str) -> str:
    """Return a text without one entry, and without the comma that separated it."""
    above, _, _ = at.rpartition("/")
    outer, part = _part(text, above), _part(text, at)
    if part is outer:
        msg = "the whole value cannot be removed"
        raise EditError(msg)
    begin, end = part.key[0] if part.key else part.start, part.end
    bare = blanked(text)[0]
    entries = outer.entries
    at_end = entries[-1] is part
    stop = outer.end - 1 if at_end else entries[entries.index(part) + 1].start
    comma = bare.find(",", end, stop)
    if comma >= 0:
        end = comma + 1
    elif len(entries) > 1:
        comma = bare.index(",", entries[-2].end, begin)
        text = text[:comma] + text[comma + 1 :]
        begin, end = begin - 1, end - 1
    return _cut(text, begin, end)


def _cut(text: str, begin: int, end: int) -> str:
    """Return a text without a range, and without the line or the spaces that it leaves empty."""
    head = _line_start(text, begin)
    stop = text.find("\n", end)
    stop = len(text) if stop < 0 else stop
    if not text[head:begin].strip() and not text[end:stop].strip() and head > 0:
        return text[: head - 1] + text[stop:]
    while begin > head and text[begin - 1] == " " and text[end : end + 1] in (" ", "]", "}"):
        begin -= 1
    if text[begin - 1 : begin] in ("{", "["):
        while text[end : end + 1] == " ":
            end += 1
    return text[:begin] + text[end:]


def _line_start(text: str, offset: int) -> int:
    return text.rfind("\n", 0, offset) + 1


def _indent(text: str, offset: int) -> str:
    """Return the spaces at the beginning of the line of an offset."""
    line = text[_line_start(text, offset) : offset]
    return line[: len(line) - len(line.lstrip())]


def formatted(value: Any, indent: str, before: int | None = None, *, wide: bool = True) -> str:
    """Return a value as JSON: what fits on a line on one line, the rest with one entry a line.

    Args:
        value: a JSON value.
        indent: the spaces before the line on which it begins.
        before: number of characters before it on that line; by default those of the indent.
        wide: whether the value itself may be on one line.
    """
    short = json.dumps(value, ensure_ascii=False)
    used = (len(indent) if before is None else before) + len(",")
    if not isinstance(value, dict | list) or not value or (wide and used + len(short) <= WIDEST):
        return short
    inner = f"{indent}  "
    if isinstance(value, list):
        entries = [formatted(element, inner) for element in value]
        opening, closing = "[]"
    else:
        keys = [f"{json.dumps(key, ensure_ascii=False)}: " for key in value]
        entries = [
            key + formatted(element, inner, len(inner + key))
            for key, element in zip(keys, value.values(), strict=True)
        ]
        opening, closing = "{}"
    lines = ",\n".join(f"{inner}{entry}" for entry in entries)
    return f"{opening}\n{lines}\n{indent}{closing}"


def smallest_edit(old: str, new: str) -> TextEdit:
    """Return the edit of one range that makes a text from another."""
    most = min(len(old), len(new))
    start = next((i for i in range(most) if old[i] != new[i]), most)
    tail = next((i for i in range(most - start) if old[-1 - i] != new[-1 - i]), most - start)
    return TextEdit(start, len(old) - tail, new[start : len(new) - tail])
