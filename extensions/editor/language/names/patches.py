"""Find the names in the patches of a spec: in selections, dotted keys and the values they set.

A selection says in which scopes the keys of a patch lie, so it is matched against the spec as it
is before its patches, by the code that applies them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .....specs.findings import pointer
from .....specs.patches.select import SelectError, Selection, read_selection
from .....specs.patches.sites import Found, Site, TooMuchError, Walk
from .....specs.tree import Value
from .finder import Finder, Name, NameKind, entries

_SEGMENT = re.compile(r"(?P<mark>[./]|^)(?P<word>[^./]*)")
_NODE = 2
"""Number of keys from a scope to a node."""


class PatchFinder(Finder):
    """Walks over patches; names are resolved in the spec as it is before them."""

    def in_patches(self, patches: Value | None) -> Iterator[Name]:
        """Yield the names in a list of patches; one place has several if it stands for several."""
        for patch in patches.entries if patches is not None else ():
            yield from self._patch(patch)

    def _patch(self, patch: Value) -> Iterator[Name]:
        select = patch.get("select")
        if select is None or select.kind != "string":
            return
        parts = list(self._parts(select))
        texts = [str(select.plain), *(text for text, _, _ in parts)]
        found = self._found(texts)
        if found is None:
            return
        for (_, word, start), one in zip(parts, found[1:], strict=True):
            for scope, site in one.paths:
                if len(site) == _NODE and site[1] == word:
                    yield Name("node", _at(scope), word, start, start + len(word))
        yield from self._template(select)
        yield from self._conditions(select)
        sites = list(found[0].paths)
        for key, word, place in self._predicates(select):
            for scope, site in sites if key == "port" else ():
                yield from self._port(scope, site, word, place)
        for scope, site in sites:
            yield from self._action(patch, scope, site)

    def _parts(self, select: Value) -> Iterator[tuple[str, str, int]]:
        """Yield each name in a selection: the selection up to it, the name, and its place."""
        start, end = select.inside
        path = str(select.plain).partition("[")[0]
        if self.text[start:end] != select.plain or path.startswith("/"):
            return
        for found in _SEGMENT.finditer(path):
            word = found["word"]
            if found["mark"] != "/" and word and "*" not in word and not word[0].isdigit():
                yield path[: found.end()], word, start + found.start("word")

    def _found(self, texts: Sequence[str]) -> list[Found] | None:
        try:
            selections: list[Selection] = [read_selection(text) for text in texts]
            return Walk(self.merged, selections).found
        except (SelectError, TooMuchError, KeyError):  # a finding says what is wrong
            return None

    def _template(self, select: Value) -> Iterator[Name]:
        start, end = select.inside
        path = str(select.plain).partition("[")[0]
        name = path.removeprefix("/blocks/")
        if self.text[start:end] == select.plain and name != path and name in self.templates:
            yield Name("template", "", name, start + len(path) - len(name), start + len(path))

    def _port(self, scope: str, site: Site, word: str, place: int) -> Iterator[Name]:
        """Yield a port of the template that a selected node uses."""
        used = self._used(self.nodes(_at(scope)).get(site[1])) if len(site) == _NODE else ""
        if used:
            yield Name("port", pointer("blocks", used), word, place, place + len(word))

    def _action(self, patch: Value, scope: str, site: Site) -> Iterator[Name]:
        for root in self._records(patch, site):
            yield from self.in_scope(root, _at(scope)) if scope else self.in_spec(root)
        for key in ("port", "through"):
            value = patch.get(key)
            if value is not None and value.kind == "string":
                yield from self._port(scope, site, str(value.plain), value.inside[0])

    def _records(self, patch: Value, site: Site) -> Iterator[Value]:
        """Yield what a patch writes, each as a record of the scope of a site."""
        for key in ("insert_before", "insert_after"):
            for node in entries(patch.get(key)):
                yield _record(("nodes",), node)
        for entry in entries(patch.get("replace")):
            yield _record(site, entry)
        gone, removed = Value(0, 0, "none"), entries(patch.get("remove"))
        written = [(entry.name, entry.key_inside, entry) for entry in entries(patch.get("set"))]
        written += [(str(entry.plain), entry.inside, gone) for entry in removed]
        for dotted, span, value in written:
            if span is not None and self.text[slice(*span)] == dotted:
                yield _record(site, _placed(dotted, span[0], value))

    def _is_new(self, kind: NameKind, scope: str, name: str) -> bool:
        """Return whether a key of a patch adds a name, and does not set that of the parent."""
        if kind == "node":
            return name not in self.nodes(scope)
        record = self.templates.get(scope.removeprefix("/blocks/"), {}) if scope else self.merged
        keys = {"input": ("inputs",), "output": ("outputs",), "axis": ("axes",)}
        known: Mapping[str, Any] = record if isinstance(record, Mapping) else {}
        return all(name not in known.get(key, {}) for key in keys.get(kind, ("inputs", "outputs")))


def _at(scope: str) -> str:
    return pointer("blocks", scope) if scope else ""


def _record(site: Site, entry: Value) -> Value:
    """Return the record of a scope that has one entry at a site."""
    made = entry
    for key in reversed(site):
        made = Value(0, 0, "object", name=key, inner=[made])
    return Value(0, 0, "object", inner=[made])


def _placed(dotted: str, at: int, value: Value) -> Value:
    """Return what a dotted key sets as nested records, with the places of the key's parts."""
    made, end = value, at + len(dotted)
    for key in reversed(dotted.split(".")):
        span = (end - len(key) - 1, end + 1)
        if made is value:
            made = dataclasses.replace(value, name=key, key=span)
        else:
            made = Value(0, 0, "object", name=key, key=span, inner=[made])
        end -= len(key) + 1
    return made
