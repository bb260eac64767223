"""Lost parts: read a spec with mistakes of form, and tell what may only be a consequence of them.

Wrong parts are reported, and left out or replaced, so that the checker finds the mistakes of
meaning in the rest.  A part that could not be read is recorded as lost; findings that its loss may
have caused are not reported.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from .expressions import words_in
from .findings import MOST, Finding, SpecError, nearest, pointer
from .form import FORMAT, SpecForm
from .reader import FOR_EDITORS, parse, upgrade_format
from .wording import error_place

_SECTIONS = {
    "axes": ("N05", "D01"),
    "params": ("E02", "W08"),
    "blocks": ("N01", "N03", "N07", "W08", "W03"),
    "nodes": ("N02", "N07", "W08", "W03", "W04", "O01", "O04"),
    "inputs": ("N02", "N03", "D01", "W08"),
    "outputs": ("W03", "W04", "N03", "O02", "O04"),
    "step": ("D01",),
}
"""Part of a spec or template to the codes that its loss may cause."""
_OTHERS = frozenset({"format", "name", "doc", "require", "tie"})
"""Parts of a spec whose loss has no consequences."""
_ENTRIES = {
    "axes": ("N05",),
    "params": ("E02", "W08"),
    "blocks": ("W08", "W03"),
    "nodes": ("W08", "W03", "W04", "O04"),
    "inputs": ("W08",),
    "outputs": ("W03", "W04", "N03", "O02", "O04"),
}
"""Part of a spec or template to the codes that the loss of one of its entries may cause."""
_INSIDE = {
    "params": ("W08",),
    "fill": ("W05", "W08", "W03"),
    "in": ("W01", "N03", "O04"),
    "carry": ("W10", "N03"),
    "collect": ("N03",),
}
"""Key of a node to the codes that its loss may cause."""
_NODE_KEYS = frozenset({"use", "block", "repeat", "share", "instead", "doc"})
"""Keys of a node whose loss has no consequences, because the checker knows that they are lost."""
_UNKNOWN_KEY = ("W08", "W03", "W04", "W01", "W05", "W07", "W10", "P07", "O04")
"""Codes that an unknown key may cause, because it was meant to be a key that is missing."""
_LOCAL = frozenset({"N02", "W03", "W04", "W01", "W05", "W10", "W07", "P07", "O04"})
"""Codes that a loss can cause only in its own scope."""
_OF_NODE = frozenset({"W01", "W05", "W10", "W07", "P07"})
"""Codes that a lost key of a node can cause only at that node."""
_UNUSED = frozenset({"W03", "W04", "W08"})
"""Codes of parts that nothing reads."""

Words = Mapping[str, frozenset[str] | None]
"""Pointer of a lost part to the words in it; None if its content is unknown."""


@dataclass(frozen=True, slots=True)
class Lost:
    """JSON Pointers of the parts of a spec that could not be read."""

    places: frozenset[str] = frozenset()
    words: Words = field(default_factory=dict, hash=False)
    """The words in lost parts: only these names may be read there."""
    extra: frozenset[str] = frozenset()
    """Lost parts under unknown keys next to the known keys that they resemble."""

    def covers(self, at: str) -> bool:
        """Return whether a part is lost, or inside a lost part."""
        return bool(self.places) and any(part in self.places for part in _prefixes(at))

    def entries(self, at: str) -> frozenset[str]:
        """Return the keys of the lost entries of a record."""
        start = f"{at}/"
        keys = (
            location.removeprefix(start) for location in self.places if location.startswith(start)
        )
        return frozenset(key for key in keys if "/" not in key)

    def hides(self, code: str, at: str) -> bool:
        """Return whether a finding may be a consequence of a lost part."""
        if not self.places:
            return False
        if self.covers(at):
            return True
        scope, keys = scope_of(at)
        where = ["", f"scope {scope}", "/".join([scope, *keys[:2]])]
        if code == "W03" and not keys:
            where.append("template")  # its uses may be anywhere
        rules, name = _rules(self.places), at.rpartition("/")[2]
        return any(
            self._may_cause(location, code, name)
            for scope in where
            for location in rules.get((code, scope), ())
        )

    def _may_cause(self, location: str, code: str, name: str) -> bool:
        """Return whether the loss of a part may cause a finding about a name."""
        if code not in _UNUSED:
            return location not in self.extra
        words = self.words.get(location)
        return words is None or name in words


NOTHING = Lost()
"""No part is lost."""


def words_of(value: Any) -> frozenset[str] | None:
    """Return the words in the strings and keys of a lost value; None if it has no strings."""
    words = set[str]()
    waiting, unbounded = [value], False
    while waiting:
        current = waiting.pop()
        if isinstance(current, str):
            unbounded = True
            words |= words_in(current)
        elif isinstance(current, dict):
            words |= {word for key in current for word in words_in(str(key))}
            waiting += current.values()
        elif isinstance(current, list):
            waiting += current
    return frozenset(words) if unbounded else None


def _prefixes(at: str) -> Iterator[str]:
    """Yield a pointer and the pointers of the records that contain it."""
    while at:
        yield at
        at = at.rpartition("/")[0]


@functools.lru_cache(maxsize=8)
def _rules(places: frozenset[str]) -> Mapping[tuple[str, str], tuple[str, ...]]:
    """Return the codes that the loss of some places may cause, each with where, to the places.

    Where is `""` for anywhere, a scope, a node, or `template` for a template that nothing uses.
    """
    rules: dict[tuple[str, str], tuple[str, ...]] = {}
    for location in places:
        scope, keys = scope_of(location)
        for code in _codes(keys):
            if code == "N03" and keys == ["outputs"] and not scope:
                continue  # no wire reads the outputs of the spec itself
            where = _where(scope, keys, code)
            rules[code, where] = (*rules.get((code, where), ()), location)
            if code == "W03" and keys[:1] != ["outputs"]:
                rules[code, "template"] = (*rules.get((code, "template"), ()), location)
    return rules


def _where(scope: str, keys: list[str], code: str) -> str:
    """Return where the loss of a part may cause a finding."""
    of_node = len(keys) > 2 and code in _OF_NODE  # noqa: PLR2004 - a key of a node
    if of_node or (code == "N03" and keys[2:3] == ["in"]):
        return "/".join([scope, *keys[:2]])
    return f"scope {scope}" if keys and code in _LOCAL else ""


def _codes(keys: list[str]) -> tuple[str, ...]:
    """Return the codes that the loss of a part may cause, by its keys in its scope."""
    if not keys:  # a template
        return _ENTRIES["blocks"]
    section = keys[0]
    if len(keys) == 1:
        return _SECTIONS.get(section, () if section in _OTHERS else tuple(_UNUSED))
    if section == "nodes" and len(keys) > 2:  # noqa: PLR2004 - a key of a node
        return _codes_in_node(keys[2:])
    if section == "axes" and keys[1][:1].isupper():
        return ()  # the axis is known, but not its kind
    return _ENTRIES.get(section, ())


def _codes_in_node(keys: list[str]) -> tuple[str, ...]:
    """Return the codes that the loss of a part of a node may cause, by its keys in the node."""
    inner = next((key for key in keys if key in _INSIDE), "")
    if inner and (inner in keys[-2:] or inner == "in"):
        return _INSIDE[inner]
    is_known = keys[-1] in _NODE_KEYS or "instead" in keys
    return () if is_known else _UNKNOWN_KEY


def scope_of(at: str) -> tuple[str, list[str]]:
    """Return the pointer of the scope that contains a place, and the keys from there on."""
    keys = at.split("/")[1:]
    if keys[:1] == ["blocks"] and len(keys) > 1:
        return "/".join(["", *keys[:2]]), keys[2:]
    return "", keys


_CODES = frozenset({"S03", "S04", "N06"})
"""Findings after which the rest of a spec can be read."""
_ROUNDS = 4
"""Most rounds of repairs: a repaired part may contain further mistakes."""
_DROP: Any = object()
"""Stands for a part that is left out."""
_PORT = "lost"
"""Name of a port that stands for ports that could not be read."""
_Losses = dict[str, tuple[frozenset[str] | None, str]]
"""Pointer of a lost part to its words, and the key next to it that an unknown key resembles."""
_EMPTY: dict[str, Any] = {"inputs": {}, "outputs": {_PORT: ""}, "nodes": {}, "axes": {}}


@dataclass(frozen=True, slots=True)
class Recovered:
    """A spec as far as it could be read."""

    form: SpecForm
    findings: tuple[Finding, ...] = ()
    lost: Lost = NOTHING


def recover(value: Any, source: str) -> Recovered:
    """Validate a JSON value as a spec, without the parts that have mistakes of form.

    Args:
        value: any JSON value.
        source: name of its file, for findings.

    Raises:
        SpecError: the value cannot be read at all, or has too many mistakes.
    """
    try:
        return Recovered(parse(SpecForm, value, source))
    except SpecError as error:
        if len(error.findings) > MOST or {finding.code for finding in error.findings} - _CODES:
            raise
        repaired = _repaired(value)
        if repaired is None:
            raise
        return Recovered(repaired[0], error.findings, repaired[1])


def _repaired(value: Any) -> tuple[SpecForm, Lost] | None:
    if not isinstance(value, dict):
        return None
    repaired = copy.deepcopy(upgrade_format(value))
    repaired.pop(FOR_EDITORS, None)
    lost: _Losses = {}
    for _ in range(_ROUNDS):
        try:
            words = {at: words for at, (words, _) in lost.items()}
            extra = frozenset(at for at, (_, near) in lost.items() if near)
            return SpecForm.model_validate(repaired), Lost(frozenset(lost), words, extra)
        except ValidationError as errors:
            for error in reversed(errors.errors()):
                _repair(repaired, error, lost)
    return None


def _repair(value: dict[str, Any], error: ErrorDetails, lost: _Losses) -> None:
    """Remove or replace the part of a value that one error is about."""
    loc, candidates = error_place(error["loc"], SpecForm, value)
    try:
        record = _inner(value, loc[:-1])
    except (LookupError, TypeError):
        return  # an outer part has been replaced
    if not loc or type(record) not in (dict, list):
        return
    last = loc[-1]
    if error["type"] == "extra_forbidden":
        inner = record.pop(last, None)
        near = nearest(str(last), candidates)
        if near and near not in record:
            record[near] = inner
        elif _reads(inner):
            lost[pointer(*loc)] = words_of(inner), near
        return
    if loc[0] == "step":
        loc, record = ["step"], value
    wrong_key = error["type"] == "string_pattern_mismatch" and "[key]" in error["loc"]
    filler = _DROP if wrong_key else _filler(loc)
    while filler is _DROP and isinstance(record, list):
        loc = loc[:-1]  # without one entry, the pointers of the others would shift
        record, filler = _inner(value, loc[:-1]), _filler(loc)
    last = loc[-1]
    inner = record.get(last) if isinstance(record, dict) else record[int(last)]
    if filler is _DROP:
        record.pop(last, None)
    else:
        record[last] = filler
    lost[pointer(*loc)] = words_of(inner), ""


def _inner(value: Any, loc: list[int | str]) -> Any:
    """Return the part of a value at a path of keys."""
    for key in loc:
        value = value[key]
    return value


def _reads(value: Any) -> bool:
    """Return whether a part may read names that would otherwise seem unused."""
    return bool(value) and not isinstance(value, bool | int | float)


def _filler(loc: list[int | str]) -> Any:
    """Return what replaces a part with a mistake of form.

    A reference becomes an empty string, which the checker reports at a place that is lost.
    """
    if loc[0] == "blocks":
        if len(loc) <= 2:  # noqa: PLR2004 - `blocks`, or one template
            return _DROP
        loc = loc[2:]
    head, depth = loc[0], len(loc)
    if depth == 1:
        return {"format": FORMAT, "name": "spec", **copy.deepcopy(_EMPTY)}.get(str(head), _DROP)
    if head == "nodes":
        return _in_node(loc[2:])
    if head == "tie":
        return [] if depth == 2 else ""  # noqa: PLR2004 - one group
    return {"axes": "time", "inputs": "", "outputs": "", "require": "0 == 0"}.get(str(head), _DROP)


def _in_node(keys: list[int | str]) -> Any:
    """Return what replaces a node or a part of it."""
    in_slot = False
    while len(keys) > 1 and keys[0] == "fill":
        keys, in_slot = keys[2:], True
    if not keys:
        return {"use": ""} if in_slot else {"use": "", "in": {_PORT: ""}}
    if keys[0] == "in":
        return "" if len(keys) > 1 else {_PORT: ""}
    return {"use": "", "block": "", "params": {_PORT: "=?"}, "repeat": "=?"}.get(
        str(keys[0]), _DROP
    )
