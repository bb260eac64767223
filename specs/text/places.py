"""Find the places of the parts of a JSON text, by JSON Pointer."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .scan import DEEPEST, STRING, end_of, without_comments
from .width import cells

_TOKEN = re.compile(rf'{STRING}|[{{}}\[\],:]|[^\s{{}}\[\],:"]++', re.DOTALL)


WIDTH = 90
"""Maximum number of characters of a quoted line."""
LEADING = 30
"""Number of characters before the place that a long line is quoted with."""


class Source(str):
    """The name of a file, as the user wrote it, with the file's text if it is known.

    It is a string, so that whatever names the file of a finding needs no second value; findings
    take line and column from the text.
    """

    __slots__ = ("text",)

    text: str

    def __new__(cls, name: str, text: str) -> Source:
        """Create the name of a file with a text."""
        made = super().__new__(cls, name)
        made.text = text
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        """Pickle the text too: the findings of a worker process keep their places."""
        return str(self), self.text


@dataclass(slots=True)
class Part:
    """The place of one value in a text, as offsets in characters."""

    start: int
    """Where the value begins."""
    end: int = 0
    """Where it ends, exclusive."""
    key: tuple[int, int] | None = None
    """Where its key begins and ends, quotes included; None in a list and at the root."""
    unread: str = field(default="", repr=False, compare=False)
    """The text, if it is a correct value whose entries have not been read yet."""
    entries: dict[str, Part] = field(default_factory=dict)
    """Entries by key, or by index as text, as far as they have been read; see `inner`."""

    @property
    def inner(self) -> dict[str, Part]:
        """Entries by key, or by index as text."""
        if self.unread:
            text, self.unread = self.unread, ""
            _fill(self, text)
        return self.entries


def parts_of(at: str) -> tuple[str, ...]:
    """Return the keys in a JSON Pointer (RFC 6901).

    >>> parts_of("/nodes/a~1b")
    ('nodes', 'a/b')
    """
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in at.split("/")[1:])


def value_at(value: Any, at: str) -> Any:
    """Return the part of a JSON value at a JSON Pointer.

    Raises:
        KeyError: there is no such part.

    >>> value_at({"nodes": [1, {"a/b": 2}]}, "/nodes/1/a~1b")
    2
    """
    for part in parts_of(at):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise KeyError(at)
    return value


def is_in(value: Any, at: str) -> bool:
    """Return whether a JSON value has a part at a JSON Pointer."""
    try:
        value_at(value, at)
    except KeyError:
        return False
    return True


def part_at(text: str, at: str) -> tuple[Part, bool]:
    """Return the place of the value at a JSON Pointer.

    Returns:
        The place, and whether it is that of the very value; if the text does not contain the
        value, it is the place of the smallest part that would contain it.
    """
    part = parts(text)
    for key in parts_of(at):
        inner = part.inner.get(key)
        if inner is None:
            return part, False
        part = inner
    return part, True


@functools.lru_cache(maxsize=2)
def parts(text: str) -> Part:
    """Return the place of a JSON text's value, with the places of all its parts.

    A text that is not JSON gives the parts up to the mistake, or more, and one that is nested too
    deeply has no parts.  Of a duplicate key, the last value counts, as when the text is parsed.
    """
    plain, depth, _ = without_comments(text)
    root = here = Part(len(plain) - len(plain.lstrip()), len(plain.rstrip()))
    if depth > DEEPEST:
        return root
    above: list[Part] = []
    key: tuple[int, int] | None = None
    listed, begun, at = [False], False, 0
    while token := _TOKEN.search(plain, at):
        mark, at = token[0], token.end()
        if mark in "}]":
            if not above:
                break
            here.end, here = at, above.pop()
            listed.pop()
            key = None
        elif mark in ":,":
            continue
        elif mark[0] == '"' and not listed[-1] and above and key is None:
            key = token.span()
        else:
            end = end_of(plain, token.start()) if mark in "{[" and above else 0
            made = Part(token.start(), end or at, key, unread=plain if end else "")
            at = end or at
            if not above:
                if begun:
                    break
                begun, made = True, root
            elif listed[-1]:
                here.entries[str(len(here.entries))] = made
            elif key is not None:
                here.entries[_key(plain, key)] = made
            key = None
            if mark in "{[" and not end:
                above.append(here)
                listed.append(mark == "[")
                here = made
    return root


def _fill(part: Part, text: str) -> None:
    """Read the entries of a correct object or list."""
    at, key, listed = part.start + 1, None, text[part.start] == "["
    while (token := _TOKEN.search(text, at)) and token[0] not in "}]":
        start, at = token.span()
        if token[0] in ":,":
            continue
        if not listed and key is None:
            key = token.span()
            continue
        end = end_of(text, start) if token[0] in "{[" else 0
        name = str(len(part.entries)) if key is None else _key(text, key)
        part.entries[name] = Part(start, end or at, key, unread=text if end else "")
        at, key = end or at, None


def _key(text: str, span: tuple[int, int]) -> str:
    """Return the key that a quoted string denotes; a broken one denotes itself."""
    try:
        return str(json.loads(text[slice(*span)]))
    except ValueError:
        return text[slice(*span)]


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Return the line and the column of an offset, both counted from 1."""
    before = text.rfind("\n", 0, offset)
    return text.count("\n", 0, offset) + 1, offset - before


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a text: lines and columns are counted from 1, and the end is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str
    """The first line, or the part of it around the place if it is long."""
    shift: int
    """How many characters of the line stand before `text`."""

    def quoted(self) -> list[str]:
        """Return the line with its number, and a line that marks the place in it."""
        number = f"{self.line:>5}"
        begin = self.column - 1 - self.shift
        end = self.end_column - 1 - self.shift if self.end_line == self.line else len(self.text)
        before, marked = self.text[:begin], self.text[begin:end]
        marks = " " * cells(before) + "^" * max(1, cells(marked))
        return [f"{number} | {self.text}".rstrip(), f"{' ' * len(number)} | {marks}"]


def spot(text: str, at: str, offset: int | None = None, *, key: bool = False) -> Spot:
    """Return the place of a part of a JSON text.

    Args:
        text: the text.
        at: JSON Pointer of the part; if the text does not contain it, of the smallest part that
            would contain it.  The place of an object or a list is that of its key.
        offset: a place in the text, which replaces `at`.
        key: whether the place is that of the part's key.
    """
    if offset is not None:
        begin, end = min(offset, len(text)), min(offset + 1, len(text))
    else:
        part, exact = part_at(text, at)
        begin, end = part.start, part.end
        if part.key and (key or not exact or text[begin : begin + 1] in ("{", "[")):
            begin, end = part.key
        elif "\n" in text[begin:end]:
            end = begin + 1
    line, column = line_and_column(text, begin)
    end_line, end_column = line_and_column(text, end)
    first = begin - column + 1
    last = text.find("\n", first)
    whole = text[first : last if last >= 0 else len(text)].rstrip("\r")
    shift = max(0, min(column - 1 - LEADING, len(whole) - WIDTH)) if len(whole) > WIDTH else 0
    shown = "".join(c if c.isprintable() else " " for c in whole[shift : shift + WIDTH])
    return Spot(line, column, end_line, end_column, shown, shift)
