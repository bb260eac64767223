"""Positions in a text: as lines and columns of the Language Server Protocol, and what is there."""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass
from typing import Literal

from ....specs.json_tree import TextValue, tree

Encoding = Literal["utf-8", "utf-16", "utf-32"]
"""What a column counts: bytes, UTF-16 code units, or characters."""
_LINE_END = re.compile(r"\r\n|\n|\r")


class Lines:
    """The lines of one text; lines and columns are counted from 0."""

    def __init__(self, text: str, encoding: Encoding = "utf-16") -> None:
        """Find the beginnings of the lines."""
        self.text, self.encoding = text, encoding
        self.starts = [0, *(match.end() for match in _LINE_END.finditer(text))]

    def position(self, offset: int) -> tuple[int, int]:
        """Return the line and the column of an offset in characters."""
        line = bisect.bisect_right(self.starts, offset) - 1
        return line, self._units(self.text[self.starts[line] : offset])

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a line and a column; past the end of the line, that of its end."""
        if line >= len(self.starts):
            return len(self.text)
        start = self.starts[line]
        end = self.starts[line + 1] if line + 1 < len(self.starts) else len(self.text)
        piece = self.text[start:end].rstrip("\r\n")
        if self.encoding == "utf-32" or piece.isascii():
            return start + min(column, len(piece))
        done = 0
        for index, character in enumerate(piece):
            if done >= column:
                return start + index
            done += self._units(character)
        return start + len(piece)

    def _units(self, piece: str) -> int:
        if self.encoding == "utf-32" or piece.isascii():
            return len(piece)
        if self.encoding == "utf-8":
            return len(piece.encode())
        return len(piece) + sum(ord(character) > 0xFFFF for character in piece)  # noqa: PLR2004


@dataclass(frozen=True, slots=True)
class Cursor:
    """What is at an offset of a text."""

    role: Literal["key", "value", "gap"]
    """In a key, in a value or where a value is to be written, or between entries."""
    value: TextValue
    """The value, or the value of the key; for `gap`, the object or list around the offset."""
    start: int
    """Where the text to replace begins: the inside of a string, or a word."""
    end: int
    typed: str
    """The text from `start` to the offset."""
    quoted: bool = True
    """Whether `start` is inside quotes."""


def cursor(text: str, offset: int) -> Cursor:
    """Return what is at an offset of a text.

    Args:
        text: the text.
        offset: characters from its start.
    """
    current = tree(text)
    while True:
        inner = next((entry for entry in current.entries if _covers(entry, offset)), None)
        if inner is None:
            break
        if inner.key and inner.key[0] < offset < inner.key[1] + (not _ended(text, inner.key)):
            return _at_key(text, inner, offset)
        if inner.key and offset <= inner.key[1]:
            return Cursor("gap", current, offset, offset, "", quoted=False)
        if inner.kind in ("object", "list") and inner.start < offset:
            current = inner
            continue
        return _at_value(text, inner, offset)
    if current.outer is None and current.kind not in ("object", "list"):
        return _at_value(text, current, offset)
    word = re.search(r"[\w@.=]*\Z", text[:offset])
    start = offset - len(word[0]) if word else offset
    return Cursor("gap", current, start, offset, text[start:offset], quoted=False)


def _covers(value: TextValue, offset: int) -> bool:
    start = value.key[0] if value.key else value.start
    if value.kind in ("object", "list"):
        return start <= offset < value.end or (not value.closed and offset == value.end)
    if value.kind == "string":
        return start <= offset < value.end or (not value.closed and offset == value.end)
    return start <= offset <= value.end


def _at_key(text: str, value: TextValue, offset: int) -> Cursor:
    start, end = value.key or (offset, offset)
    start, end = start + 1, end - _ended(text, (start, end))
    return Cursor("key", value, start, end, text[start:offset])


def _ended(text: str, key: tuple[int, int]) -> bool:
    """Return whether a key has its second quote."""
    return key[1] - key[0] > 1 and text[key[1] - 1] == '"'


def _at_value(text: str, value: TextValue, offset: int) -> Cursor:
    start, end = value.inside
    quoted = value.kind == "string"
    if value.kind == "none":
        start = end = offset
    return Cursor("value", value, start, end, text[start:offset] if start <= offset else "", quoted)
