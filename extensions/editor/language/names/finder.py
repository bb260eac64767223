"""Find the names in the text of a spec: those that it defines, and those that it uses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .....specs.expressions import WORD, calls, is_expression
from .....specs.findings import pointer
from .....specs.form import BUDGETS
from .....specs.patches.select import glob
from .....specs.tree import Value

NameKind = Literal["node", "template", "param", "input", "output", "port", "axis", "file", "block"]
"""What a name names; a `port` is an input or output of a template, an `input` or `output` one of
the spec, a `file` another spec, and a `block` a registered one."""
_INDEX = re.compile(r"[0-9]+(?:-[0-9]+)?")
_PREDICATE = re.compile(r"\[([^\[\]=]*)=([^\[\]]*)\]")


@dataclass(frozen=True, slots=True)
class Name:
    """One occurrence of a name in a text."""

    kind: NameKind
    scope: str
    """Pointer of the scope in which it is defined: empty, or `/blocks/NAME`."""
    name: str
    start: int
    end: int
    defines: bool = False

    @property
    def symbol(self) -> tuple[NameKind, str, str]:
        """What all occurrences of one name share."""
        return self.kind, self.scope, self.name


class Finder:
    """Walks over records of a text; names are resolved in a value that has more than the text."""

    def __init__(self, text: str, merged: Mapping[str, Any]) -> None:
        """Read what names can mean.

        Args:
            text: the text of the records.
            merged: the spec as JSON data, with what it inherits.
        """
        self.text, self.merged = text, merged
        blocks, params = merged.get("blocks", {}), merged.get("params", {})
        self.templates: Mapping[str, Any] = blocks if isinstance(blocks, dict) else {}
        self.params: Mapping[str, Any] = params if isinstance(params, dict) else {}
        axes = merged.get("axes", {})
        self.axes = axes.keys() if isinstance(axes, dict) else ()

    def nodes(self, at: str) -> Mapping[str, Any]:
        """Return the nodes of a scope as JSON data, with those that it inherits."""
        scope = self.templates.get(at.removeprefix("/blocks/"), {}) if at else self.merged
        nodes = scope.get("nodes", {}) if isinstance(scope, dict) else {}
        return nodes if isinstance(nodes, dict) else {}

    def in_spec(self, root: Value) -> Iterator[Name]:
        """Yield the names in a spec, or in a part of one, without those in its patches."""
        for param in entries(root.get("params")):
            yield from self._key("param", "", param)
            yield from self._values(param)
        for text in entries(root.get("require")):
            yield from self._words(text, 0)
        for axis in entries(root.get("axes")):
            yield from self._key("axis", "", axis)
        yield from self._file(root.get("extends"))
        for key in ("output_types", "losses"):
            for entry in entries(root.get(key)):
                yield from self._key("output", "", entry, defines=False)
                yield from self._type(entry) if key == "output_types" else self._values(entry)
        yield from self._whole("axis", "", root.get("step", "axis"))
        yield from self._whole("axis", "", root.get("segments", "axis"))
        yield from self._whole("node", "", root.get("deploy"))
        yield from self.in_scope(root, "")
        for template in entries(root.get("blocks")):
            yield from self._key("template", "", template)
            yield from self._file(template.get("spec"))
            yield from self._values(template.get("params"))
            yield from self.in_scope(template, pointer("blocks", template.name))

    def in_scope(self, record: Value, at: str) -> Iterator[Name]:
        """Yield the names in the spec itself or a template, or in a part of one."""
        for entry in entries(record.get("inputs")):
            yield from self._key("port" if at else "input", at, entry)
            yield from self._type(entry)
        for entry in entries(record.get("outputs")):
            yield from self._key("port" if at else "output", at, entry)
            yield from self._wire(entry, at)
        for node in entries(record.get("nodes")):
            yield from self._key("node", at, node)
            yield from self._node(node, at)
        for group in entries(record.get("tie")):
            for path in group.entries:
                yield from self._path(path, at)
        for rule in entries(record.get("init")):
            select = rule.get("select")
            yield from self._path(select, at)
            yield from self._conditions(select) if select is not None else ()
            yield from self._values(rule)

    def _node(self, node: Value, at: str) -> Iterator[Name]:
        yield from self._use(node)
        used = self._used(node.json()) or self._used(self.nodes(at).get(node.name))
        for wire in entries(node.get("in")):
            if used:
                yield from self._key("port", pointer("blocks", used), wire, defines=False)
            yield from self._wire(wire, at)
        yield from self._whole("template", "", node.get("block"))
        for key in ("carry", "collect"):
            for port in entries(node.get(key)):
                if used:
                    yield from self._whole("port", pointer("blocks", used), port)
        share = node.get("share")
        if share is not None and share.kind == "string":
            yield from self._whole("node", at, share)
        for other in entries(node.get("instead")):
            yield from self._whole("template", "", other)
        yield from self._values(node.get("repeat"))

    def _use(self, use: Value) -> Iterator[Name]:
        named = use.get("use")
        if named is not None and named.kind == "string":
            if is_expression(named.plain):
                yield from self._words(named, 1)
            elif named.plain in self.templates:
                yield from self._whole("template", "", named)
            else:
                yield from self._whole("block", "", named)
        yield from self._values(use.get("params"))
        for inner in entries(use.get("fill")):
            yield from self._use(inner)

    def _values(self, value: Value | None) -> Iterator[Name]:
        """Yield the params that expressions in a value read, and the blocks that it chooses."""
        if value is None:
            return
        if value.kind == "string":
            yield from self._words(value, 1) if is_expression(value.plain) else ()
            return
        if value.kind == "object" and value.get("use"):
            yield from self._use(value)
            return
        held = value.kind == "object" and value.get("spec") is not None
        if held:
            yield from self._file(value.get("spec"))
        for entry in value.entries:
            if not (held and entry.name in ("patch", "spec")):
                yield from self._values(entry)

    def _words(self, value: Value, skip: int) -> Iterator[Name]:
        """Yield the params that an expression reads; `skip` characters precede it."""
        for word, start, end in self._pieces(value, skip):
            if word in self.params or word not in BUDGETS:
                yield Name("param", "", word, start, end)

    def _type(self, value: Value) -> Iterator[Name]:
        """Yield the axes and params in a type."""
        text = str(value.plain) if value.kind == "string" else ""
        kind = len(text) - len(text.lstrip("abcdefghijklmnopqrstuvwxyz "))
        for word, start, end in self._pieces(value, kind):
            if word in self.axes or word in self.params:
                yield Name("axis" if word in self.axes else "param", "", word, start, end)

    def _pieces(self, value: Value, skip: int) -> Iterator[tuple[str, int, int]]:
        """Yield the words of a text, without the functions that it calls, and their places."""
        start, end = value.inside
        piece = self.text[start:end]
        if value.kind != "string" or piece != value.plain:
            return  # an escaped character shifts the places
        for found in WORD.finditer(piece, skip):
            if found[1] and not calls(found):
                yield found[1], start + found.start(1), start + found.end(1)

    def _wire(self, value: Value, at: str) -> Iterator[Name]:
        start, end = value.inside
        if value.kind != "string" or self.text[start:end] != value.plain:
            return
        node, dot, port = value.plain.partition(".")
        if not dot:
            yield Name("port" if at else "input", at, node, start, end)
            return
        yield Name("node", at, node, start, start + len(node))
        used = self._used(self.nodes(at).get(node))
        if used:
            scope = pointer("blocks", used)
            yield Name("port", scope, port, start + len(node) + 1, end)

    def _path(self, value: Value | None, at: str) -> Iterator[Name]:
        """Yield the nodes that a path or a selection names: those that lie in one scope only."""
        if value is None or value.kind != "string":
            return
        start, end = value.inside
        if self.text[start:end] != value.plain:
            return
        scopes, path = {at}, value.plain.partition("[")[0]
        if path.startswith("/blocks/") and "*" not in path:
            yield Name("template", "", path[8:], start + 8, start + len(path))
        if path.startswith("/"):
            return
        for found in re.finditer(r"(?P<mark>[./]|^)(?P<word>[^./]*)", path):
            word = found["word"]
            if found["mark"] == "/" or _INDEX.fullmatch(word):
                continue
            if word == "**":
                scopes = self._below(scopes)
            elif word != "*" or found.start() == 0:
                inside = [s for s in sorted(scopes) if word in self.nodes(s)]
                if len(inside) == 1:
                    place = start + found.start("word")
                    yield Name("node", inside[0], word, place, place + len(word))
                scopes = {s for each in scopes for s in self._inside(each, word)}

    def _conditions(self, select: Value) -> Iterator[Name]:
        """Yield the templates that the conditions of a selection name."""
        for key, word, place in self._predicates(select):
            if key in ("use", "block") and word in self.templates:
                yield Name("template", "", word, place, place + len(word))

    def _predicates(self, select: Value) -> Iterator[tuple[str, str, int]]:
        """Yield the key and the value of each condition of a selection, and the value's place."""
        start, end = select.inside
        if select.kind == "string" and self.text[start:end] == select.plain:
            for found in _PREDICATE.finditer(select.plain):
                yield found[1], found[2], start + found.start(2)

    def _inside(self, scope: str, pattern: str) -> Iterator[str]:
        """Yield the scopes of the templates in nodes of a scope whose name fits a pattern."""
        for name, node in self.nodes(scope).items():
            if glob(pattern, name):
                yield from self._templates(node)

    def _templates(self, record: object) -> Iterator[str]:
        if isinstance(record, dict):
            used = self._used(record)
            if used:
                yield pointer("blocks", used)
            instead, fill = record.get("instead"), record.get("fill")
            for name in instead.values() if isinstance(instead, dict) else ():
                yield pointer("blocks", str(name))
            for inner in fill.values() if isinstance(fill, dict) else ():
                yield from self._templates(inner)

    def _below(self, scopes: set[str]) -> set[str]:
        found, waiting = set(scopes), list(scopes)
        while waiting:
            more = {*self._inside(waiting.pop(), "*")} - found
            found |= more
            waiting += more
        return found

    def _used(self, node: object) -> str:
        """Return the template that a node uses, or an empty string."""
        if not isinstance(node, dict):
            return ""
        used = node.get("block") or node.get("use")
        if is_expression(used):
            chosen = self.params.get(str(used)[1:])
            used = chosen.get("use") if isinstance(chosen, dict) else None
        return used if isinstance(used, str) and used in self.templates else ""

    def _file(self, value: Value | None) -> Iterator[Name]:
        if value is not None and value.kind == "string":
            yield from self._whole("file", "", value)

    def _whole(self, kind: NameKind, scope: str, value: Value | None) -> Iterator[Name]:
        if value is not None and value.kind == "string":
            start, end = value.inside
            yield Name(kind, scope, value.plain, start, end)

    def _key(
        self, kind: NameKind, scope: str, value: Value, *, defines: bool = True
    ) -> Iterator[Name]:
        if value.key_inside:
            start, end = value.key_inside
            defines = defines and self._is_new(kind, scope, value.name)
            yield Name(kind, scope, value.name, start, end, defines)

    def _is_new(self, kind: NameKind, scope: str, name: str) -> bool:  # noqa: ARG002 - see patches
        """Return whether a key of this name defines it."""
        return True


def entries(value: Value | None) -> list[Value]:
    """Return the entries of a record or list, of which there are none if it is not written."""
    return value.entries if value is not None else []
