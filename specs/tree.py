"""Read a JSON text that may be broken, with the place of every part.

A text is broken most of the time while it is written.  This reader never fails: it skips what it
does not understand, closes what is open, and leaves out keys without a value.  Of a correct text,
it gives what `specs/reader.py` gives.
"""

from __future__ import annotations

import functools
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from .findings import pointer
from .text.scan import DEEPEST, STRING, blanked, end_of

_TOKEN = re.compile(
    rf'(?P<string>{STRING})|(?P<mark>[{{}}\[\],:])|(?P<word>[^\s{{}}\[\],:"]++)', re.S
)
_LINE_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*+"?')
"""A string that ends with its line, as one that is not closed does."""
_FILLING = threading.Lock()
"""Held while entries are read, because threads share the values that `tree` keeps."""


@dataclass(slots=True, eq=False)
class Value:
    """A value in a text, with its place in characters from the start of the text."""

    start: int
    end: int
    """Exclusive."""
    kind: Literal["object", "list", "string", "word", "none"]
    """`word` is a number, `true`, `false`, `null`, or anything else without quotes; `none` is the
    place of a value that is not written yet."""
    key: tuple[int, int] | None = None
    """Where its key begins and ends, quotes included."""
    name: str = ""
    """Its key, or its index as text."""
    plain: Any = None
    """The value of a string or word."""
    inner: list[Value] = field(default_factory=list)
    """Entries, as far as they have been read."""
    unread: str = field(default="", repr=False)
    """The text, if the entries have not been read yet."""
    outer: Value | None = field(default=None, repr=False)
    closed: bool = True
    """Whether its end is written."""

    @property
    def entries(self) -> list[Value]:
        """Entries of an object or a list, in order.

        Those of a correct object or list are read when they are asked for: most never are.
        """
        if self.unread:
            with _FILLING:
                if self.unread:
                    _Reader(self.unread).fill(self)
                    self.unread = ""
        return self.inner

    def get(self, *names: str) -> Value | None:
        """Return the value at a path of keys; of a duplicate key, the last one counts."""
        here = self
        for name in names:
            found = [entry for entry in here.entries if entry.name == name]
            if not found:
                return None
            here = found[-1]
        return here

    @property
    def path(self) -> tuple[str, ...]:
        """The keys and indices from the root to this value."""
        found, here = [], self
        while here.outer is not None:
            found.append(here.name)
            here = here.outer
        return tuple(reversed(found))

    @property
    def pointer(self) -> str:
        """Its JSON Pointer."""
        return pointer(*self.path)

    @property
    def inside(self) -> tuple[int, int]:
        """The place of a string without its quotes; of any other value, its place."""
        if self.kind != "string":
            return self.start, self.end
        return self.start + 1, self.end - 1 if self.closed else self.end

    @property
    def key_inside(self) -> tuple[int, int] | None:
        """The place of its key without quotes."""
        return self.key and (self.key[0] + 1, max(self.key[0] + 1, self.key[1] - 1))

    def json(self) -> Any:
        """Return it as JSON data; entries without a value are left out."""
        if unread := self.unread:
            return json.loads(unread[self.start : self.end])
        if self.kind == "object":
            pairs = ((entry.name, entry.json()) for entry in self.entries if entry.kind != "none")
            return dict(pairs)
        if self.kind == "list":
            return [entry.json() for entry in self.entries]
        return self.plain

    def walk(self) -> Iterator[Value]:
        """Yield it and every value inside it, outer ones first."""
        yield self
        for entry in self.entries:
            yield from entry.walk()


@functools.lru_cache(maxsize=16)
def tree(text: str) -> Value:
    """Return the value of a JSON text with the places of its parts.

    Args:
        text: any text; comments and trailing commas are permitted.

    Returns:
        The root; of an empty text, or one that is nested too deeply, a value of kind `none`.
    """
    plain, depth, _ = blanked(text)
    begin = len(plain) - len(plain.lstrip())
    empty = Value(min(begin, len(text)), len(plain.rstrip()), "none")
    return empty if depth > DEEPEST else _Reader(plain).read() or empty


class _Reader:
    """Read tokens into values; `here` is the innermost object or list that is open."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.root: Value | None = None
        self.here: Value | None = None
        self.key: tuple[int, int] | None = None
        self.colon = False

    def read(self) -> Value | None:
        """Read the root, and the entries around what is broken."""
        self._read(0)
        while self.here is not None:
            self._drop_key(len(self.text))
            self.here.end, self.here.closed = len(self.text), False
            self.here = self.here.outer
        return self.root

    def fill(self, value: Value) -> None:
        """Read the entries of a correct object or list."""
        self.root = self.here = value
        self._read(value.start + 1, value)

    def _read(self, at: int, inside: Value | None = None) -> None:
        """Read tokens from an offset until the root, or the value that they are in, is closed."""
        while found := _TOKEN.search(self.text, at):
            at = found.end()
            if found["string"] is not None:
                at = self._string(found.start(), at)
            elif found["word"] is not None:
                self._word(found.start(), at)
            elif found["mark"] in "{[" and (end := self._skip(found.start())):
                at = end
            elif not self._mark(found["mark"], found.start()) or (
                inside is not None and self.here is inside.outer
            ):
                break

    def _skip(self, start: int) -> int:
        """Add a correct object or list without reading its entries; return its end, or 0."""
        end = end_of(self.text, start)
        if not end:
            return 0
        kind: Literal["object", "list"] = "object" if self.text[start] == "{" else "list"
        self._add(Value(start, end, kind, unread=self.text))
        return end if self.here is not None else len(self.text)

    def _string(self, start: int, end: int) -> int:
        """Read a string; one that seems to contain a line feed ends with its line."""
        piece = self.text[start:end]
        if "\n" in piece:
            short = _LINE_STRING.match(self.text, start)
            end = short.end() if short else end
            piece = self.text[start:end].rstrip()
            end = start + len(piece)
        closed = len(piece) > 1 and piece.endswith('"') and _closes(piece)
        if self.here is not None and self.here.kind == "object" and not self.colon:
            self._drop_key(start)
            self.key = (start, end)
            return end
        made = Value(start, end, "string", plain=_plain(piece if closed else f'{piece}"'))
        made.closed = closed
        self._add(made)
        return end

    def _word(self, start: int, end: int) -> None:
        if self.here is not None and self.here.kind == "object" and not self.colon:
            self._drop_key(start)
            return
        piece = self.text[start:end]
        try:
            plain = json.loads(piece)
        except ValueError:
            plain = piece
        self._add(Value(start, end, "word", plain=plain))

    def _mark(self, mark: str, start: int) -> bool:
        """Read a bracket, a colon or a comma; return whether the root is still open."""
        if mark == ":":
            self.colon = self.key is not None
        elif mark == ",":
            self._drop_key(start)
        elif mark in "{[":
            made = Value(start, start + 1, "object" if mark == "{" else "list")
            self._add(made)
            self.here = made
        else:
            wanted = "object" if mark == "}" else "list"
            self._drop_key(start)
            around = self.here
            while around is not None and around.kind != wanted:
                around = around.outer
            if around is None:  # a bracket that closes nothing
                return self.here is not None
            while self.here is not around and self.here is not None:
                self.here.end, self.here.closed = start, False
                self.here = self.here.outer
            around.end = start + 1
            self.here = around.outer
        return self.here is not None or self.root is None

    def _add(self, made: Value) -> None:
        here = self.here
        if here is None:
            self.root = self.root or made
            return
        made.outer = here
        if here.kind == "list":
            made.name = str(len(here.inner))
        elif self.key is None:
            made.outer = None  # an object's value without a key is left out
        else:
            made.key, made.name = self.key, _key(self.text, self.key)
        if made.outer is not None:
            here.inner.append(made)
        else:
            made.outer = here
        self.key, self.colon = None, False

    def _drop_key(self, at: int) -> None:
        """Record a key whose value is not written."""
        if self.key is not None and self.here is not None:
            place = min(at, self.key[1] + 1) if not self.colon else at
            made = Value(place, place, "none", key=self.key, name=_key(self.text, self.key))
            made.outer = self.here
            self.here.inner.append(made)
        self.key, self.colon = None, False


def _closes(piece: str) -> bool:
    """Return whether the quote at the end of a string closes it, and is not escaped."""
    body = piece[1:-1]
    return (len(body) - len(body.rstrip("\\"))) % 2 == 0


def _plain(piece: str) -> str:
    try:
        return str(json.loads(piece, strict=False))
    except ValueError:
        return piece[1:-1]


def _key(text: str, span: tuple[int, int]) -> str:
    piece = text[slice(*span)]
    closed = len(piece) > 1 and piece.endswith('"') and _closes(piece)
    return _plain(piece if closed else f'{piece}"')


@dataclass(frozen=True, slots=True)
class Cursor:
    """What is at an offset of a text."""

    role: Literal["key", "value", "gap"]
    """In a key, in a value or where a value is to be written, or between entries."""
    value: Value
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
    here = tree(text)
    while True:
        inner = next((one for one in here.entries if _covers(one, offset)), None)
        if inner is None:
            break
        if inner.key and inner.key[0] < offset < inner.key[1] + (not _ended(text, inner.key)):
            return _at_key(text, inner, offset)
        if inner.key and offset <= inner.key[1]:
            return Cursor("gap", here, offset, offset, "", quoted=False)
        if inner.kind in ("object", "list") and inner.start < offset:
            here = inner
            continue
        return _at_value(text, inner, offset)
    if here.outer is None and here.kind not in ("object", "list"):
        return _at_value(text, here, offset)
    word = re.search(r"[\w@.=]*\Z", text[:offset])
    start = offset - len(word[0]) if word else offset
    return Cursor("gap", here, start, offset, text[start:offset], quoted=False)


def _covers(value: Value, offset: int) -> bool:
    start = value.key[0] if value.key else value.start
    if value.kind in ("object", "list"):
        return start <= offset < value.end or (not value.closed and offset == value.end)
    if value.kind == "string":
        return start <= offset < value.end or (not value.closed and offset == value.end)
    return start <= offset <= value.end


def _at_key(text: str, value: Value, offset: int) -> Cursor:
    start, end = value.key or (offset, offset)
    start, end = start + 1, end - _ended(text, (start, end))
    return Cursor("key", value, start, end, text[start:offset])


def _ended(text: str, key: tuple[int, int]) -> bool:
    """Return whether a key has its second quote."""
    return key[1] - key[0] > 1 and text[key[1] - 1] == '"'


def _at_value(text: str, value: Value, offset: int) -> Cursor:
    start, end = value.inside
    quoted = value.kind == "string"
    if value.kind == "none":
        start = end = offset
    return Cursor("value", value, start, end, text[start:offset] if start <= offset else "", quoted)
