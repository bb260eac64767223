"""Selections: glob patterns over node paths, as used in patches.

    decoder.*.self_attention/f     the block in slot f of a node, in every copy
    decoder.0-2.**[use=sublayer@1] every sublayer of three copies
    /blocks/*_layer                templates; `/` is the spec itself

Matching a name takes at most the product of the two lengths, because the match never backtracks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

LONGEST = 400
"""Maximum number of characters in a selection."""
LONGEST_VALUE = 1000
"""Maximum length of a string that a predicate matches as a pattern."""

_SEGMENT = re.compile(r"[A-Za-z*][A-Za-z0-9_*]*", re.ASCII)
INDEX = re.compile(
    r"(?P<low>[0-9]{1,5})(?:-(?P<high>[0-9]{1,5}))?"
    r"|(?P<start>[0-9]{1,5})?:(?P<stop>[0-9]{1,5})?(?::(?P<step>[1-9][0-9]{0,4})?)?",
    re.ASCII,
)
"""A segment that selects copies: `4`, `0-3`, or a slice as in Python, such as `3::4`."""
_PREDICATE = re.compile(r"\[([A-Za-z_][A-Za-z0-9_.]*)=([^\[\]]*)\]", re.ASCII)
_MAJOR = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)
_HELP = "write a path such as 'decoder.*.self_attention/f', '**[use=linear@1]' or '/'"

Kind = Literal["name", "slot", "index"]
"""Kinds of path segments."""


class SelectError(ValueError):
    """A selection cannot be parsed; `help` says how to fix it."""

    def __init__(self, problem: str, help: str = _HELP) -> None:  # noqa: A002 - as Finding.help
        """Store problem and help."""
        self.help = help
        super().__init__(problem)


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment of a selection's path."""

    kind: Literal["name", "slot", "index", "one", "any"]
    """A name, a slot, a copy index, exactly one segment, or any number of segments."""
    text: str = ""
    low: int = 0
    high: int | None = 0
    """The last copy; None if all from `low` on are meant."""
    step: int = 1

    def fits(self, kind: Kind, word: str, index: int) -> bool:
        """Return whether this matches one segment of a path."""
        if self.kind == "one":
            return True
        if self.kind == "index":
            return kind == "index" and self.selects(index)
        if kind == "index":
            return self.kind == "name" and self.text == "*"
        return self.kind == kind and glob(self.text, word)

    def selects(self, copy: int) -> bool:
        """Return whether a segment with copies has this one."""
        inside = self.low <= copy and (self.high is None or copy <= self.high)
        return inside and (copy - self.low) % self.step == 0


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition on a record, such as `[params.heads=8]`."""

    key: tuple[str, ...]
    text: str

    def holds(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record, as written, satisfies the condition."""
        if self.key == ("port",):
            wires = record.get("in", {})
            return isinstance(wires, dict) and any(glob(self.text, port) for port in wires)
        value: Any = record
        for part in self.key:
            if not isinstance(value, dict) or part not in value:
                return False
            value = value[part]
        if self.key == ("use",) and _is_later(self.text, value):
            return True
        return self.text == "*" or _equals(self.text, value)


@dataclass(frozen=True, slots=True)
class Selection:
    """A parsed selection."""

    text: str
    target: Literal["nodes", "spec", "templates"]
    segments: tuple[Segment, ...] = ()
    predicates: tuple[Predicate, ...] = ()

    @property
    def path(self) -> str:
        """The text without its predicates."""
        return self.text.partition("[")[0]

    def holds(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record satisfies all predicates."""
        return all(predicate.holds(record) for predicate in self.predicates)


def read_selection(text: str) -> Selection:
    """Parse a selection.

    Raises:
        SelectError: the text is not a valid selection.
    """
    if len(text) > LONGEST:
        raise SelectError(f"a selection has at most {LONGEST} characters", "shorten it")
    path, bracket, tail = text.partition("[")
    predicates, at = [], 0
    while bracket and at <= len(tail):
        match = _PREDICATE.match(f"[{tail}", at)
        if match is None:
            shown = f"[{tail}"[at:]
            raise SelectError(
                f"'{shown}' is not a predicate" if shown else "predicates must end the selection",
                "write '[key=value]', such as '[use=linear@1]', after the path",
            )
        predicates.append(Predicate(tuple(match[1].split(".")), match[2]))
        at = match.end()
        if at == len(tail) + 1:
            break
    if path == "/":
        return Selection(text, "spec", (), tuple(predicates))
    if path.startswith("/"):
        name = path.removeprefix("/blocks/")
        if name == path or not _SEGMENT.fullmatch(name):
            raise SelectError(
                f"'{path}' is neither '/' nor a template",
                "write '/' for the spec itself, or '/blocks/NAME'",
            )
        return Selection(text, "templates", (Segment("name", name),), tuple(predicates))
    return Selection(text, "nodes", _segments(path), tuple(predicates))


def _segments(path: str) -> tuple[Segment, ...]:
    """Return the segments of a path; a final `**` matches at least one segment."""
    segments: list[Segment] = []
    pieces = re.split(r"([./])", path)
    for mark, word in zip([".", *pieces[1::2]], pieces[::2], strict=True):
        index = INDEX.fullmatch(word)
        if word == "**":
            if not segments or segments[-1].kind != "any":
                segments.append(Segment("any"))
        elif index and mark == "." and segments:
            segments.append(_copies(index))
        elif _SEGMENT.fullmatch(word) and "**" not in word:
            segments.append(Segment("slot" if mark == "/" else "name", word))
        else:
            raise SelectError(f"'{word}' is not a path segment" if word else "a segment is missing")
    if segments[-1].kind == "any":
        segments[-1:] = [Segment("one"), Segment("any")]
    return tuple(segments)


def _copies(index: re.Match[str]) -> Segment:
    """Return the segment of a number, a range or a slice."""
    word = index[0]
    if ":" not in word:
        low, high = int(index["low"]), int(index["high"] or index["low"])
        if low > high:
            raise SelectError(f"'{word}' counts backwards", f"write '{high}-{low}'")
        return Segment("index", word, low, high)
    low, stop = int(index["start"] or 0), int(index["stop"]) if index["stop"] else None
    if stop is not None and stop <= low:
        raise SelectError(
            f"'{word}' selects no copy", f"stop after {low}, such as '{low}:{low + 1}'"
        )
    return Segment("index", word, low, None if stop is None else stop - 1, int(index["step"] or 1))


def glob(pattern: str, text: str) -> bool:
    """Return whether a text matches a pattern in which `*` stands for any text.

    >>> glob("self_*", "self_attention"), glob("*_layer", "layers")
    (True, False)
    """
    if len(text) > LONGEST_VALUE:
        return pattern in ("*", text)
    first, *pieces = pattern.split("*")
    if not pieces:
        return pattern == text
    *inner, last = pieces
    fits = text.startswith(first) and text.endswith(last)
    if not fits or len(text) < len(first) + len(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in inner:
        index = text.find(part, at, end)
        if index < 0:
            return False
        at = index + len(part)
    return True


def _is_later(key: str, value: Any) -> bool:
    """Return whether a value is the key of a later version of the block that a text names.

    >>> _is_later("linear@1", "linear@2"), _is_later("linear@2", "linear@1")
    (True, False)
    """
    name, at, major = key.partition("@")
    other, _, later = value.partition("@") if isinstance(value, str) else ("", "", "")
    numbers = _MAJOR.fullmatch(major) and _MAJOR.fullmatch(later)
    return bool(at and numbers) and name == other and int(later) > int(major)


def _equals(text: str, value: Any) -> bool:
    """Return whether a value equals a predicate's text, as a string pattern or as JSON."""
    if isinstance(value, str) and glob(text, value):
        return True
    try:
        expected = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(expected, bool) == isinstance(value, bool) and bool(expected == value)
