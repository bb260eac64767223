"""Provenance: where each value of a spec's full form came from; no torch."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...graphs.ir.canonical import canonical
from ...graphs.ir.graph import (
    BlockNode,
    Filling,
    Graph,
    Node,
    Part,
    Scope,
    TemplateNode,
    TemplatePart,
)
from ...graphs.ir.traverse import holds_model
from ...specs.expressions import ExpressionError, is_expression, names_in, words_in
from ...specs.findings import pointer
from ...specs.form import selected_copies
from ...specs.json_tree import parts_of
from ...specs.load import OVERRIDES, LoadedSpec

Entry = dict[str, Any]
"""`value`, `how`, and either `file` and `pointer`, or `of`, the block that sets the default."""


def provenance(graph: Graph, loaded: LoadedSpec) -> dict[str, Entry]:
    """Return the origin of each value of the full form, keyed by the value's pointer.

    `how` is `written`, `expression`, `override` (set with `--set` or from Python) or `default`.
    An entry whose value uses params has `reads`: those params, and the params they depend on.
    """
    return _Tracer(graph, loaded).entries


def render(entry_by_pointer: Mapping[str, Entry]) -> str:
    """Return one line per value; short names of files are listed first."""
    entries = [
        inner for entry in entry_by_pointer.values() for inner in (entry, *_reads(entry).values())
    ]
    files = sorted(
        {entry["file"] for entry in entries if entry.get("file", OVERRIDES) != OVERRIDES}
    )
    names = {file: Path(file).name for file in files}
    twice = [file for file in files if list(names.values()).count(names[file]) > 1]
    names |= {file: file for file in twice}
    lines = [f"{name}: {file}" for file, name in names.items() if name != file]
    if lines:
        lines.append("")
    return "\n".join([*lines, *(_line(at, entry, names) for at, entry in entry_by_pointer.items())])


def _reads(entry: Entry) -> dict[str, Entry]:
    reads: dict[str, Entry] = entry.get("reads", {})
    return reads


def _line(at: str, entry: Entry, names: Mapping[str, str]) -> str:
    line = f"{at}  {_text(entry['value'])}  {_whence(entry, names)}"
    if entry["how"] == "expression":
        line += f"  {entry['expression']}"
    for name, read in _reads(entry).items():
        expression = f" ({read['expression']})" if read["how"] == "expression" else ""
        line += f"; {name} = {_text(read['value'])}{expression} {_whence(read, names)}"
    return line


def _whence(entry: Entry, names: Mapping[str, str]) -> str:
    if entry["how"] == "default":
        return f"<- default of {entry['of']}"
    if entry["file"] == OVERRIDES:
        return f"<- --set {parts_of(entry['pointer'])[1]}"
    return f"<- {names[entry['file']]}#{entry['pointer']}"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


class _Tracer:
    """Walks a full form and its graph in parallel."""

    def __init__(self, graph: Graph, loaded: LoadedSpec) -> None:
        """Trace every value of the graph."""
        self.graph, self.loaded, self.value = graph, loaded, loaded.value()
        self.written = {**self.value.get("params", {}), **loaded.overrides}
        self.entries: dict[str, Entry] = {}
        self.inner: Mapping[str, tuple[Any, str]] = {}
        """Params of the template that is traced: their values, and where they are set."""
        full = canonical(graph)
        templates: dict[str, Scope] = {}
        _name_templates(full, full["nodes"], graph.root, templates)
        for key in ("format", "name", "doc"):
            if key in full:
                self._leaf(pointer(key), full[key], pointer(key))
        for key in ("axes", "inputs", "outputs"):
            self._record(pointer(key), full[key], pointer(key))
        for name, template in full.get("blocks", {}).items():
            at, location = pointer("blocks", templates[name].name), pointer("blocks", name)
            self.inner = templates[name].params
            self._record(f"{location}/inputs", template["inputs"], f"{at}/inputs")
            self._record(f"{location}/outputs", template["outputs"], f"{at}/outputs")
            self._scope(location, template["nodes"], templates[name])
        self.inner = {}
        self._scope("", full["nodes"], graph.root)
        for key in ("tie", "step", "deploy", "losses", "segments"):
            if key in full:
                self._record(pointer(key), full[key], pointer(key))

    def _scope(self, location: str, nodes: Mapping[str, Any], scope: Scope) -> None:
        placed = {node.name: node for node in scope.nodes}
        for name, full in nodes.items():
            self._node(location + pointer("nodes", name), full, placed[name])

    def _node(self, location: str, full: Mapping[str, Any], node: Node) -> None:
        if isinstance(node, BlockNode) and not node.shares:
            self._part(location, full, node.part, node.at)
        elif isinstance(node, TemplateNode) and node.model is not None and not node.shares:
            self._leaf(f"{location}/use", full["use"], f"{node.at}/use")
            home = self._home(self._raw(f"{node.at}/use"))
            self._leaf(pointer("params", full["use"][1:], "spec"), node.model.name, f"{home}/spec")
        else:
            for key, value in full.items():
                if key == "instead":
                    self._copies(location, full, node)
                elif key != "in":
                    self._leaf(location + pointer(key), value, node.at + pointer(key))
        self._record(f"{location}/in", full.get("in", {}), f"{node.at}/in")

    def _copies(self, location: str, full: Mapping[str, Any], node: Node) -> None:
        """Trace the templates of copies: a key of `instead`, or what makes the params differ."""
        written = self._raw(f"{node.at}/instead") or {}
        keys = {
            index: key
            for key in written
            if not is_expression(key)
            for index in selected_copies(key, full["repeat"])
        }
        bodies = dict(node.copies())
        for index, template in full["instead"].items():
            used = bodies[int(index)].name
            rules = [key for key in written if is_expression(key) and written[key] == used]
            key = keys.get(int(index), next(iter(rules), ""))
            others = (f"{node.at}/index", f"{node.at}/params")
            at = (
                f"{node.at}/instead" + pointer(key)
                if key
                else next(filter(self._has_key, others), node.at)
            )
            self._leaf(f"{location}/instead" + pointer(index), template, at)

    def _part(self, location: str, full: Mapping[str, Any], part: Filling, at: str) -> None:
        record = self._raw(at)
        self._leaf(f"{location}/use", full["use"], f"{at}/use")
        home, chosen = "", {}
        if is_expression(record["use"]):
            home = self._home(record["use"])
            chosen = self._raw(home).get("params", {})
        for name, value in full.get("params", {}).items():
            where = (home if name in chosen else at) + pointer("params", name)
            is_written = name in chosen or name in record.get("params", {})
            self._leaf(f"{location}/params/{name}", value, where, "" if is_written else part.key)
        fill = part.fill if isinstance(part, Part) else {}
        for slot, inner in full.get("fill", {}).items():
            below = pointer("fill", slot)
            self._part(location + below, inner, fill[slot], at + below)

    def _home(self, expression: str) -> str:
        """Return the pointer of the param that an expression `=name` resolves to."""
        name = expression[1:].strip()
        if name in self.inner:
            return self.inner[name][1]
        for _ in self.written:
            text = self.written[name]
            if not is_expression(text) or text[1:].strip() not in self.written:
                break
            name = text[1:].strip()
        return pointer("params", name)

    def _record(self, location: str, full: Any, at: str) -> None:
        """Trace every leaf of a record that has the same keys in the spec and the full form."""
        if isinstance(full, dict | list):
            items = full.items() if isinstance(full, dict) else enumerate(full)
            for key, value in items:
                self._record(location + pointer(key), value, at + pointer(key))
        else:
            self._leaf(location, full, at)

    def _leaf(self, location: str, value: Any, at: str, block: str = "") -> None:
        raw = self._raw(at)
        if block or (raw is None and not self._has_key(at)):
            of = block or f"format {self.graph.spec.format}"
            self.entries[location] = {"value": value, "how": "default", "of": of}
            return
        self.entries[location] = self._entry(value, raw, at)
        typed = parts_of(at)[-2:-1] == ("inputs",) and raw != value
        params = self.written.keys() | self.inner.keys()
        names = words_in(str(raw)) & params if typed else self._names(raw)
        if typed:
            self.entries[location] |= {"how": "expression", "expression": raw}
        if names:
            self.entries[location]["reads"] = self._params(names)

    def _entry(self, value: Any, raw: Any, at: str) -> Entry:
        file, origin = self.loaded.origin_of(at)
        entry: Entry = {"value": value, "how": "written", "file": file, "pointer": origin}
        if is_expression(raw) and value != raw:  # a text may begin with "=" too
            entry |= {"how": "expression", "expression": raw}
        elif file == OVERRIDES:
            entry["how"] = "override"
        return entry

    def _params(self, names: Any) -> dict[str, Entry]:
        """Return the params that an expression depends on, directly or indirectly."""
        waiting, reads = sorted(names), dict[str, Entry]()
        while waiting:
            name = waiting.pop(0)
            if name in reads:
                continue
            value, at = self.inner.get(name) or (self.graph.params[name], pointer("params", name))
            raw = self._raw(at)
            reads[name] = self._entry(value, raw, at)
            waiting += sorted(self._names(raw).difference(self.inner, self._own_params(at)))
        return reads

    def _names(self, raw: Any) -> set[str]:
        """Return the params used by the expressions inside a written value."""
        if isinstance(raw, dict | list):
            inner = raw.values() if isinstance(raw, dict) else raw
            return set().union(*map(self._names, inner))
        if not is_expression(raw):
            return set()
        try:
            return set(names_in(raw[1:])) & (self.written.keys() | self.inner.keys())
        except ExpressionError:  # a text that begins with "="
            return set()

    def _own_params(self, at: str) -> Collection[str]:
        """Return the params of the template that contains a place, whose values are not known."""
        keys = parts_of(at)
        return self._raw(pointer(*keys[:2], "params")) or () if keys[:1] == ("blocks",) else ()

    def _raw(self, at: str) -> Any:
        """Return the written value at a pointer of the merged spec, or None."""
        way = parts_of(at)
        if way[:1] == ("params",):
            value, way = self.written[way[1]], way[2:]
        else:
            value = self.value
        for part in way:
            if isinstance(value, list):
                value = value[int(part)] if int(part) < len(value) else None
            else:
                value = value.get(part) if isinstance(value, dict) else None
        return value

    def _has_key(self, at: str) -> bool:
        """Return whether a record contains a key, even if its value is null."""
        *way, last = parts_of(at)
        record = self._raw(pointer(*way))
        return isinstance(record, dict) and last in record


def _name_templates(
    full: Mapping[str, Any], nodes: Mapping[str, Any], scope: Scope, names: dict[str, Scope]
) -> None:
    """Map each template of a full form to its scope."""
    placed = {node.name: node for node in scope.nodes}
    for name, written in nodes.items():
        for template, body in _inside(written, placed[name]):
            if template not in names:
                names[template] = body
                _name_templates(full, full["blocks"][template]["nodes"], body, names)


def _inside(written: Mapping[str, Any], node: Node) -> Iterator[tuple[str, Scope]]:
    """Yield name and scope of each template that a node of the full form uses."""
    if node.shares or holds_model(node):
        return
    if isinstance(node, BlockNode):
        yield from _in_slots(written, node.part)
    else:
        yield written.get("block", written.get("use", "")), node.body
        bodies = dict(node.copies())
        for index, other in written.get("instead", {}).items():
            yield other, bodies[int(index)]


def _in_slots(written: Mapping[str, Any], part: Part) -> Iterator[tuple[str, Scope]]:
    for slot, inner in part.fill.items():
        if isinstance(inner, TemplatePart):
            yield written["fill"][slot]["use"], inner.body
        else:
            yield from _in_slots(written["fill"][slot], inner)
