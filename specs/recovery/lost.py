"""Lost parts: which findings may only be consequences of parts that could not be read."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..expressions import words_in

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
        keys = (place.removeprefix(start) for place in self.places if place.startswith(start))
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
            self._may_cause(place, code, name)
            for each in where
            for place in rules.get((code, each), ())
        )

    def _may_cause(self, place: str, code: str, name: str) -> bool:
        """Return whether the loss of a part may cause a finding about a name."""
        if code not in _UNUSED:
            return place not in self.extra
        words = self.words.get(place)
        return words is None or name in words


NOTHING = Lost()
"""No part is lost."""


def words_of(value: Any) -> frozenset[str] | None:
    """Return the words in the strings and keys of a lost value; None if it has no strings."""
    words = set[str]()
    waiting, found = [value], False
    while waiting:
        here = waiting.pop()
        if isinstance(here, str):
            found = True
            words |= words_in(here)
        elif isinstance(here, dict):
            words |= {word for key in here for word in words_in(str(key))}
            waiting += here.values()
        elif isinstance(here, list):
            waiting += here
    return frozenset(words) if found else None


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
    for place in places:
        scope, keys = scope_of(place)
        for code in _codes(keys):
            if code == "N03" and keys == ["outputs"] and not scope:
                continue  # no wire reads the outputs of the spec itself
            where = _where(scope, keys, code)
            rules[code, where] = (*rules.get((code, where), ()), place)
            if code == "W03" and keys[:1] != ["outputs"]:
                rules[code, "template"] = (*rules.get((code, "template"), ()), place)
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
    known = keys[-1] in _NODE_KEYS or "instead" in keys
    return () if known else _UNKNOWN_KEY


def scope_of(at: str) -> tuple[str, list[str]]:
    """Return the pointer of the scope that contains a place, and the keys from there on."""
    keys = at.split("/")[1:]
    if keys[:1] == ["blocks"] and len(keys) > 1:
        return "/".join(["", *keys[:2]]), keys[2:]
    return "", keys
