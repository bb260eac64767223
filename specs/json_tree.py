"""The tree of a JSON text, which may be broken or have comments, and the places of its parts.

A text is broken most of the time while it is written.  This reader never fails: it skips what it
does not understand, closes what is open, and leaves out keys without a value.  Of a correct text,
it gives what `specs/reader.py` gives.

What a finding shows of a text is measured in the cells of a terminal: Chinese, Japanese and Korean
characters and emoji are two cells wide; marks over another character, and what is not visible, have
no width (Unicode Standard Annex 11, East Asian Width).
"""

from __future__ import annotations

import functools
import json
import re
import threading
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal

DEEPEST = 64
"""Maximum nesting depth of objects and lists."""

STRING = r'"(?:[^"\\]|\\.?)*+(?:"|\Z)'
_MARK = re.compile(rf"{STRING}|//[^\n\r]*|/\*|[\[\]{{}}]", re.DOTALL)
"""A string, whose brackets do not count, a comment or a bracket."""
_TRAILING = re.compile(rf'({STRING}|[^\s\[{{,:"])(\s*+),(?=\s*+[}}\]])|{STRING}', re.DOTALL)
"""The end of a value with a comma behind it that separates nothing, or another string."""
_DECODER = json.JSONDecoder()
_VISIBLE = re.compile(r"[^\n\r]")
_NO_BRACKETS = re.compile(rf'[^\[\]{{}}"]++|{STRING}', re.DOTALL)
"""What stands between brackets, and strings, whose brackets do not count."""
_COMMA = re.compile(r",\s*+[}\]]")
_STEPS = {"[": 1, "{": 1, "]": -1, "}": -1}
"""Bracket to the levels that it opens."""


def without_comments(text: str) -> tuple[str, int, int | None]:
    """Return a text of the same length with spaces for comments and trailing commas.

    Returns:
        As `blanked`.
    """
    stripped, depth, unclosed = blanked(text)
    if not _COMMA.search(stripped):
        return stripped, depth, unclosed
    return _TRAILING.sub(_without_comma, stripped), depth, unclosed


def blanked(text: str) -> tuple[str, int, int | None]:
    """Return a text of the same length with spaces for comments.

    Returns:
        The text; the nesting depth of its objects and lists, counted no further than one above
        `DEEPEST`; and where a comment begins that does not end, if any.
    """
    if "//" not in text and "/*" not in text:
        deepest = max(accumulate(map(_STEPS.__getitem__, _NO_BRACKETS.sub("", text))), default=0)
        return text, min(max(deepest, 0), DEEPEST + 1), None
    pieces: list[str] = []
    done = start = depth = deepest = 0
    while mark := _MARK.search(text, start):
        token, start = mark[0], mark.end()
        if token[0] == "/":
            end = start if token != "/*" else text.find("*/", start) + 2
            if end < start:
                return text, deepest, mark.start()
            pieces += [text[done : mark.start()], _VISIBLE.sub(" ", text[mark.start() : end])]
            done = start = end
            continue
        depth += _STEPS.get(token, 0)
        deepest = max(deepest, depth)
        if deepest > DEEPEST:
            return text, deepest, None
    return "".join([*pieces, text[done:]]), deepest, None


def end_of(text: str, start: int) -> int:
    """Return where a correct object or list ends, exclusive, or 0 if it is not correct JSON.

    This is much faster than reading its tokens, so most parts of a text are read only if their
    places are asked for.
    """
    try:
        return _DECODER.raw_decode(text, start)[1]
    except ValueError:
        return 0


def _without_comma(match: re.Match[str]) -> str:
    return match[0] if match[1] is None else f"{match[1]}{match[2]} "


_TOKEN = re.compile(
    rf'(?P<string>{STRING})|(?P<mark>[{{}}\[\],:])|(?P<word>[^\s{{}}\[\],:"]++)', re.S
)
_LINE_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*+"?')
"""A string that ends with its line, as one that is not closed does."""
_FILLING = threading.Lock()
"""Held while entries are read, because threads share the values that `tree` keeps."""


@dataclass(slots=True, eq=False)
class TextValue:
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
    scalar: Any = None
    """The value of a string or word."""
    inner: list[TextValue] = field(default_factory=list)
    """Entries, as far as they have been read."""
    unread: str = field(default="", repr=False)
    """The text, if the entries have not been read yet."""
    outer: TextValue | None = field(default=None, repr=False)
    closed: bool = True
    """Whether its end is written."""

    @property
    def entries(self) -> list[TextValue]:
        """Entries of an object or a list, in order.

        Those of a correct object or list are read when they are asked for: most never are.
        """
        if self.unread:
            with _FILLING:
                if self.unread:
                    _Reader(self.unread).fill(self)
                    self.unread = ""
        return self.inner

    def get(self, *names: str) -> TextValue | None:
        """Return the value at a path of keys; of a duplicate key, the last one counts."""
        current = self
        for name in names:
            matches = [entry for entry in current.entries if entry.name == name]
            if not matches:
                return None
            current = matches[-1]
        return current

    @property
    def path(self) -> tuple[str, ...]:
        """The keys and indices from the root to this value."""
        names, current = [], self
        while current.outer is not None:
            names.append(current.name)
            current = current.outer
        return tuple(reversed(names))

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
        return self.scalar

    def walk(self) -> Iterator[TextValue]:
        """Yield it and every value inside it, outer ones first."""
        yield self
        for entry in self.entries:
            yield from entry.walk()


@functools.lru_cache(maxsize=16)
def tree(text: str) -> TextValue:
    """Return the value of a JSON text with the places of its parts.

    Args:
        text: any text; comments and trailing commas are permitted.

    Returns:
        The root; of an empty text, or one that is nested too deeply, a value of kind `none`.
    """
    stripped, depth, _ = blanked(text)
    begin = len(stripped) - len(stripped.lstrip())
    empty = TextValue(begin, max(begin, len(stripped.rstrip())), "none")
    return empty if depth > DEEPEST else _Reader(stripped).read() or empty


class _Reader:
    """Read tokens into values; `here` is the innermost object or list that is open."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.root: TextValue | None = None
        self.current: TextValue | None = None
        self.key: tuple[int, int] | None = None
        self.colon = False

    def read(self) -> TextValue | None:
        """Read the root, and the entries around what is broken."""
        self._read(0)
        while self.current is not None:
            self._drop_key(len(self.text))
            self.current.end, self.current.closed = len(self.text), False
            self.current = self.current.outer
        return self.root

    def fill(self, value: TextValue) -> None:
        """Read the entries of a correct object or list."""
        self.root = self.current = value
        self._read(value.start + 1, value)

    def _read(self, at: int, inside: TextValue | None = None) -> None:
        """Read tokens from an offset until the root, or the value that they are in, is closed."""
        while match := _TOKEN.search(self.text, at):
            at = match.end()
            if match["string"] is not None:
                at = self._string(match.start(), at)
            elif match["word"] is not None:
                self._word(match.start(), at)
            elif match["mark"] in "{[" and (end := self._skip(match.start())):
                at = end
            elif not self._mark(match["mark"], match.start()) or (
                inside is not None and self.current is inside.outer
            ):
                break

    def _skip(self, start: int) -> int:
        """Add a correct object or list without reading its entries; return its end, or 0."""
        end = end_of(self.text, start)
        if not end:
            return 0
        kind: Literal["object", "list"] = "object" if self.text[start] == "{" else "list"
        self._add(TextValue(start, end, kind, unread=self.text))
        return end if self.current is not None else len(self.text)

    def _string(self, start: int, end: int) -> int:
        """Read a string; one that seems to contain a line feed ends with its line."""
        piece = self.text[start:end]
        if "\n" in piece:
            short = _LINE_STRING.match(self.text, start)
            end = short.end() if short else end
            piece = self.text[start:end].rstrip()
            end = start + len(piece)
        closed = len(piece) > 1 and piece.endswith('"') and _closes(piece)
        if self.current is not None and self.current.kind == "object" and not self.colon:
            self._drop_key(start)
            self.key = (start, end)
            return end
        node = TextValue(start, end, "string", scalar=_plain(piece if closed else f'{piece}"'))
        node.closed = closed
        self._add(node)
        return end

    def _word(self, start: int, end: int) -> None:
        if self.current is not None and self.current.kind == "object" and not self.colon:
            self._drop_key(start)
            return
        piece = self.text[start:end]
        try:
            data = json.loads(piece)
        except ValueError:
            data = piece
        self._add(TextValue(start, end, "word", scalar=data))

    def _mark(self, mark: str, start: int) -> bool:
        """Read a bracket, a colon or a comma; return whether the root is still open."""
        if mark == ":":
            self.colon = self.key is not None
        elif mark == ",":
            self._drop_key(start)
        elif mark in "{[":
            node = TextValue(start, start + 1, "object" if mark == "{" else "list")
            self._add(node)
            self.current = node
        else:
            expected = "object" if mark == "}" else "list"
            self._drop_key(start)
            around = self.current
            while around is not None and around.kind != expected:
                around = around.outer
            if around is None:  # a bracket that closes nothing
                return self.current is not None
            while self.current is not around and self.current is not None:
                self.current.end, self.current.closed = start, False
                self.current = self.current.outer
            around.end = start + 1
            self.current = around.outer
        return self.current is not None or self.root is None

    def _add(self, node: TextValue) -> None:
        parent = self.current
        if parent is None:
            self.root = self.root or node
            return
        node.outer = parent
        if parent.kind == "list":
            node.name = str(len(parent.inner))
        elif self.key is None:
            node.outer = None  # an object's value without a key is left out
        else:
            node.key, node.name = self.key, _key(self.text, self.key)
        if node.outer is not None:
            parent.inner.append(node)
        else:
            node.outer = parent
        self.key, self.colon = None, False

    def _drop_key(self, at: int) -> None:
        """Record a key whose value is not written."""
        if self.key is not None and self.current is not None:
            position = min(at, self.key[1] + 1) if not self.colon else at
            node = TextValue(
                position, position, "none", key=self.key, name=_key(self.text, self.key)
            )
            node.outer = self.current
            self.current.inner.append(node)
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


def part_at(text: str, at: str) -> tuple[TextValue, bool]:
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
