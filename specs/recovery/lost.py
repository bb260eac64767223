"""Lost parts: which findings may only be consequences of parts that could not be read."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

_NAMES = {
    "axes": ("N05", "D01"),
    "params": ("E02", "W08"),
    "blocks": ("N01", "N03", "N07", "W08", "W03"),
    "nodes": ("N02", "N07", "D01", "W08", "W03", "W04"),
    "inputs": ("N02", "N03", "D01", "W08"),
    "outputs": ("W03", "W04", "N03", "W08"),
    "step": ("D01",),
}
"""Part of a spec or template to the codes that its loss may cause."""
_INSIDE = {
    "use": ("D01", "N07"),
    "block": ("D01", "N07"),
    "params": ("W08", "D01"),
    "fill": ("W05", "W08", "W03", "D01", "N07"),
    "in": ("W01", "N03"),
    "carry": ("W10", "N03", "D01"),
    "collect": ("N03",),
}
"""Key of a node to the codes that its loss may cause."""
_LOCAL = frozenset({"N02", "W03", "W04", "W01", "W05", "W10"})
"""Codes that a loss can cause only in its own scope."""


@dataclass(frozen=True, slots=True)
class Lost:
    """JSON Pointers of the parts of a spec that could not be read."""

    places: frozenset[str] = frozenset()

    def hides(self, code: str, at: str) -> bool:
        """Return whether a finding may be a consequence of a lost part."""
        if not self.places:
            return False
        if any(part in self.places for part in _prefixes(at)):
            return True
        rules, (scope, keys) = _rules(self.places), scope_of(at)
        where = ["", f"scope {scope}", "/".join([scope, *keys[:2]])]
        if code == "W03" and not keys:
            where.append("template")  # its uses may be anywhere
        return any((code, each) in rules for each in where)


NOTHING = Lost()
"""No part is lost."""


def _prefixes(at: str) -> Iterator[str]:
    """Yield a pointer and the pointers of the records that contain it."""
    while at:
        yield at
        at = at.rpartition("/")[0]


@functools.lru_cache(maxsize=8)
def _rules(places: frozenset[str]) -> frozenset[tuple[str, str]]:
    """Return the codes that the loss of some places may cause, each with where.

    That is `""` for anywhere, a scope, a node, or `template` for a template that nothing uses.
    """
    rules = set[tuple[str, str]]()
    for place in places:
        scope, keys = scope_of(place)
        node, codes = "", _NAMES.get(keys[0] if keys else "blocks", ())
        if keys[:1] == ["nodes"] and len(keys) > 2:  # noqa: PLR2004 - a key of a node
            inner = next((key for key in keys[2:] if key in _INSIDE), "")
            node = "/".join([scope, *keys[:2]]) if inner == "in" else ""
            codes = _INSIDE.get(inner, ())
        for code in codes:
            rules.add((code, node or (f"scope {scope}" if keys and code in _LOCAL else "")))
        if "W03" in codes:
            rules.add(("W03", "template"))
    return frozenset(rules)


def scope_of(at: str) -> tuple[str, list[str]]:
    """Return the pointer of the scope that contains a place, and the keys from there on."""
    keys = at.split("/")[1:]
    if keys[:1] == ["blocks"] and len(keys) > 1:
        return "/".join(["", *keys[:2]]), keys[2:]
    return "", keys
