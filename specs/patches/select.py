"""Select: a glob over the paths of nodes, as a patch writes it.

    decoder.*.self_attention/f     what stands in slot f of a node of every copy
    decoder.0-2.**[use=sublayer@1] every sublayer of three copies
    /blocks/*_layer                templates themselves; `/` alone is the spec itself

Here a text becomes segments; `sites.py` follows them through a spec.  A name is matched
in at most the product of the two lengths: nothing is tried twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

LONGEST = 400
"""Characters that a selection may have."""
LONGEST_VALUE = 1000
"""Characters of a written text that a predicate looks at."""

_SEGMENT = re.compile(r"[A-Za-z*][A-Za-z0-9_*]*", re.ASCII)
_INDEX = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", re.ASCII)
_PREDICATE = re.compile(r"\[([A-Za-z_][A-Za-z0-9_.]*)=([^\[\]]*)\]", re.ASCII)
_HELP = "write a path such as 'decoder.*.self_attention/f', '**[use=linear@1]' or '/'"

Kind = Literal["name", "slot", "index"]
"""What a path is made of."""


class SelectError(ValueError):
    """A selection cannot be read; `help` is the way out."""

    def __init__(self, problem: str, help: str = _HELP) -> None:  # noqa: A002 - the finding's word
        """Keep problem and help."""
        self.help = help
        super().__init__(problem)


@dataclass(frozen=True, slots=True)
class Segment:
    """One piece of a selection's path."""

    kind: Literal["name", "slot", "index", "one", "any"]
    """A name, a slot, a number of a copy, any one of them, or any number of them."""
    text: str = ""
    low: int = 0
    high: int = 0

    def fits(self, kind: Kind, word: str, index: int) -> bool:
        """Say whether it matches one piece of a path."""
        if self.kind == "one":
            return True
        if self.kind == "index":
            return kind == "index" and self.low <= index <= self.high
        if kind == "index":
            return self.kind == "name" and self.text == "*"
        return self.kind == kind and glob(self.text, word)


@dataclass(frozen=True, slots=True)
class Predicate:
    """What a record must hold: `[params.heads=8]`."""

    key: tuple[str, ...]
    text: str

    def holds(self, record: Mapping[str, Any]) -> bool:
        """Say whether a record, as written, has it."""
        if self.key == ("port",):
            wires = record.get("in", {})
            return isinstance(wires, dict) and any(glob(self.text, port) for port in wires)
        value: Any = record
        for part in self.key:
            if not isinstance(value, dict) or part not in value:
                return False
            value = value[part]
        return self.text == "*" or _equals(self.text, value)


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection that has been read."""

    text: str
    target: Literal["nodes", "spec", "templates"]
    segments: tuple[Segment, ...] = ()
    predicates: tuple[Predicate, ...] = ()

    @property
    def path(self) -> str:
        """The text without its predicates."""
        return self.text.partition("[")[0]

    def holds(self, record: Mapping[str, Any]) -> bool:
        """Say whether a record has all that the brackets want."""
        return all(predicate.holds(record) for predicate in self.predicates)


def read_selection(text: str) -> Selection:
    """Return the selection that a text means.

    Raises:
        SelectError: it means none.
    """
    if len(text) > LONGEST:
        raise SelectError(f"a selection has at most {LONGEST} characters", "write a shorter one")
    path, bracket, rest = text.partition("[")
    predicates, at = [], 0
    while bracket and at <= len(rest):
        found = _PREDICATE.match(f"[{rest}", at)
        if found is None:
            shown = f"[{rest}"[at:]
            raise SelectError(
                f"'{shown}' is no predicate" if shown else "brackets end a selection",
                "write '[key=value]', such as '[use=linear@1]', after the path",
            )
        predicates.append(Predicate(tuple(found[1].split(".")), found[2]))
        at = found.end()
        if at == len(rest) + 1:
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
    """Return the pieces of a path; `**` at the end needs at least one piece inside."""
    found: list[Segment] = []
    pieces = re.split(r"([./])", path)
    for mark, word in zip([".", *pieces[1::2]], pieces[::2], strict=True):
        index = _INDEX.fullmatch(word)
        if word == "**":
            if not found or found[-1].kind != "any":
                found.append(Segment("any"))
        elif index and mark == "." and found:
            low, high = int(index[1]), int(index[2] or index[1])
            if low > high:
                raise SelectError(f"'{word}' counts backwards", f"write '{high}-{low}'")
            found.append(Segment("index", word, low, high))
        elif _SEGMENT.fullmatch(word) and "**" not in word:
            found.append(Segment("slot" if mark == "/" else "name", word))
        else:
            raise SelectError(f"'{word}' is no piece of a path" if word else "a piece is missing")
    if found[-1].kind == "any":
        found[-1:] = [Segment("one"), Segment("any")]
    return tuple(found)


def glob(pattern: str, text: str) -> bool:
    """Say whether a text has the form of a pattern in which `*` is anything.

    >>> glob("self_*", "self_attention"), glob("*_layer", "layers")
    (True, False)
    """
    if len(text) > LONGEST_VALUE:
        return pattern in ("*", text)
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == text
    *inner, last = rest
    fits = text.startswith(first) and text.endswith(last)
    if not fits or len(text) < len(first) + len(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in inner:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _equals(text: str, value: Any) -> bool:
    """Say whether a written value is what a predicate says: its text, or its JSON value."""
    if isinstance(value, str) and glob(text, value):
        return True
    try:
        wanted = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(wanted, bool) == isinstance(value, bool) and bool(wanted == value)
