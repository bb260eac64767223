"""Places: the parts of JSON texts and values by JSON Pointer, and what a finding shows of them.

A text is measured in the cells of a terminal: Chinese, Japanese and Korean characters and emoji are
two cells wide; marks over another character, and what is not visible, have no width (Unicode
Standard Annex 11, East Asian Width).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .tree import Value, tree

_JOINER, _EMOJI_STYLE = "\u200d", "\ufe0f"
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_INNER_HANGUL = range(0x1160, 0x1200)
"""Vowels and final consonants, which share the cells of the consonant before them."""


def cells(text: str) -> int:
    """Return the width of a text in character cells.

    >>> cells("dog"), cells("中国"), cells("cafe\u0301"), cells("\u2764\ufe0f")
    (3, 4, 4, 2)
    """
    if text.isascii():
        return len(text)
    total = last = 0
    before = ""
    for character in text:
        if character == _EMOJI_STYLE and last == 1:
            width = last = 1  # an emoji instead of a symbol: two cells together
        elif before == _JOINER or (last and ord(character) in _SKIN_TONES):
            width = 0
        else:
            width = _cells(character)
            last = width or last
        total += width
        before = character
    return total


def _cells(character: str) -> int:
    """Return the width of a character on its own."""
    if unicodedata.category(character) in ("Mn", "Me", "Cf") or ord(character) in _INNER_HANGUL:
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


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
        source = super().__new__(cls, name)
        source.text = text
        return source

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        """Pickle the text too: the findings of a worker process keep their places."""
        return str(self), self.text


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


def part_at(text: str, at: str) -> tuple[Value, bool]:
    """Return the value at a JSON Pointer, with its place.

    Returns:
        The value, and whether it is that very value; if the text does not contain it, it is the
        smallest part that would contain it.
    """
    part = tree(text)
    for key in parts_of(at):
        inner = part.get(key)
        if inner is None or inner.kind == "none":
            return part, False
        part = inner
    return part, True


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
    full_line = text[first : last if last >= 0 else len(text)].rstrip("\r")
    shift = (
        max(0, min(column - 1 - LEADING, len(full_line) - WIDTH)) if len(full_line) > WIDTH else 0
    )
    shown = "".join(c if c.isprintable() else " " for c in full_line[shift : shift + WIDTH])
    return Spot(line, column, end_line, end_column, shown, shift)
