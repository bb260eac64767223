"""Shorter patches of a variant: a node that is inserted or removed takes its wires with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ....graphs.checker.check import analyse
from ....graphs.draw.facts import pointers
from ....plugin import Graph, InputError, SpecError, fingerprint, pointer, registry
from ....specs.form import FORMAT
from ....specs.json_tree import value_at
from ....specs.load import LoadedSpec, load_child
from ....specs.text_edits import formatted
from .checked_text import CheckedText
from .covering import covering

Patch = dict[str, Any]


class _Scopes:
    """The scopes of a spec: where patches of them are, and the paths of their nodes."""

    def __init__(self, parent: Mapping[str, Any], graph: Graph) -> None:
        self.parent, self.located = parent, pointers(graph)
        self.paths: dict[str, str] = {}
        for path, at in self.located.items():
            self.paths.setdefault(at, path)

    def of(self, patch: Patch) -> str:
        """Return the pointer of the scope in which a patch writes: empty, or `/blocks/NAME`."""
        select = patch["select"]
        if select.startswith("/"):
            return str(select).removesuffix("/")
        at = self.located.get(select, "")
        return at.partition("/nodes/")[0] if at.startswith("/blocks/") else ""

    def nodes(self, scope: str) -> Mapping[str, Any]:
        """Return the nodes of a scope of the parent."""
        nodes: Mapping[str, Any] = value_at(self.parent, scope).get("nodes", {})
        return nodes

    def path(self, scope: str, name: str) -> str:
        """Return a path that selects a node of a scope; empty if there is none."""
        return self.paths.get(scope + pointer("nodes", name), "")


def _shorter(
    spec: dict[str, Any], scopes: _Scopes, gives: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Return a variant with insertions and `remove` in place of keys that rewire readers.

    Args:
        spec: the variant.
        scopes: those of the spec that it extends.
        gives: whether a variant still gives the wanted spec.
    """
    for action in (_inserted, _removed):
        for scope, name in _names(spec.get("patch", []), scopes):
            for patches in action(spec["patch"], scopes, scope, name):
                candidate = {**spec, "patch": patches}
                if gives(candidate):
                    spec = candidate
                    break
    return spec


def _names(patches: Sequence[Patch], scopes: _Scopes) -> list[tuple[str, str]]:
    """Return the nodes that the patches add to a scope or remove from it, with the scope."""
    inside = [patch for patch in patches if patch["select"].startswith("/")]
    keys = [
        (scopes.of(patch), key)
        for action in ("set", "remove")
        for patch in inside
        for key in patch.get(action, ())
    ]
    pairs = [(at, key.removeprefix("nodes.")) for at, key in keys if key.startswith("nodes.")]
    return [(at, name) for at, name in pairs if "." not in name or name in scopes.nodes(at)]


def _inserted(
    patches: Sequence[Patch], scopes: _Scopes, scope: str, name: str
) -> Iterator[list[Patch]]:
    """Yield the patches with a new node inserted after what it reads, or before its reader."""
    key = f"nodes.{name}"
    written = [
        patch["set"][key]
        for patch in patches
        if key in patch.get("set", {}) and scopes.of(patch) == scope
    ]
    for port, value in written[0].get("in", {}).items() if written else ():
        wires = {**written[0]["in"], port: "@"}
        bare = {part: inner for part, inner in written[0].items() if part != "in"}
        node = bare if wires == {"x": "@"} else {**bare, "in": wires}
        source, _, output = value.partition(".")
        after = scopes.path(scope, source) if output else ""
        for node_output, readers in _read(patches, scopes, scope, name).items():
            remaining = _without(patches, scopes, scope, key, f"{name}.{node_output}")
            more: Patch = {} if node_output == "y" else {"output": node_output}
            if after:
                insertion: Patch = {"select": after, "insert_after": {name: node}, **more}
                ports: tuple[Patch, ...] = ({}, {"port": output})
                yield from ([*remaining, {**insertion, **naming}] for naming in ports)
            if len(readers) == 1 and readers[0][0]:
                insertion = {"select": readers[0][0], "insert_before": {name: node}, **more}
                ports = ({}, {"port": readers[0][1]})
                yield from ([*remaining, {**insertion, **naming}] for naming in ports)


def _removed(
    patches: Sequence[Patch], scopes: _Scopes, scope: str, name: str
) -> Iterator[list[Patch]]:
    """Yield the patches with a node removed, of which readers read what it read."""
    path = scopes.path(scope, name)
    if path and name in scopes.nodes(scope):
        for port, value in scopes.nodes(scope)[name].get("in", {}).items():
            remaining = _without(patches, scopes, scope, f"nodes.{name}", value)
            yield [*remaining, {"select": path, "remove": True, "through": port}]


def _read(
    patches: Sequence[Patch], scopes: _Scopes, scope: str, name: str
) -> dict[str, list[tuple[str, str]]]:
    """Return the outputs of a node that the patches wire, each with its readers.

    A reader is the path of a node and its port; the path of an output of the scope is empty.
    """
    readers: dict[str, list[tuple[str, str]]] = {}
    for patch in patches:
        for key, value in patch.get("set", {}).items():
            node, _, output = str(value).partition(".")
            if node == name and output and scopes.of(patch) == scope and _is_wire(key):
                reader, _, port = key.rpartition("in.")
                inner = reader.removeprefix("nodes.").removesuffix(".")
                path = scopes.path(scope, inner) if inner else patch["select"]
                readers.setdefault(output, []).append(("" if "outputs." in key else path, port))
    return readers


def _without(
    patches: Sequence[Patch], scopes: _Scopes, scope: str, key: str, value: str
) -> list[Patch]:
    """Return the patches without a key of a scope, and without the wires that read a value."""
    remaining = []
    for patch in patches:
        reduced = dict(patch)
        if scopes.of(patch) != scope:
            remaining.append(reduced)
            continue
        if isinstance(patch.get("remove"), list):
            reduced["remove"] = [removed for removed in patch["remove"] if removed != key]
        if "set" in patch:
            reduced["set"] = {
                set_key: inner
                for set_key, inner in patch["set"].items()
                if set_key != key and not (_is_wire(set_key) and inner == value)
            }
        if all(reduced.get(action, True) for action in ("set", "remove")):
            remaining.append(reduced)
    return remaining


def _is_wire(key: str) -> bool:
    words = key.split(".")
    return words[0] in ("in", "outputs") or (words[0] == "nodes" and words[-2] == "in")


def variant(
    old: CheckedText, new: CheckedText, extends: str, name: str, *, draft: bool = False
) -> tuple[str, dict[str, Any]]:
    """Return a file that extends one spec and is equal to another, as text and as a value.

    Args:
        old: the spec to extend.
        new: the spec to write.
        extends: the name of the old spec, as the file names it.
        name: the name of the variant.
        draft: whether the new spec may have errors; then it is compared as it is written.

    Raises:
        InputError: one of them has errors, or the difference cannot be written as a patch.
    """
    parent, child = old.loaded, new.loaded
    if parent is None or child is None or old.graph is None or not (new.graph or draft):
        wrong = new if new.graph is None else old
        raise InputError(
            "a variant needs two specs without errors",
            location=wrong.source,
            help="correct it first",
        )

    def gives(spec: Mapping[str, Any]) -> bool:
        return _gives(parent, spec, child, new.graph)

    head = {"format": FORMAT, "extends": extends, "name": name}
    doc = child.value().get("doc", "")
    if doc and doc != parent.value().get("doc", ""):
        head["doc"] = doc
    for deep in (False, True):
        spec = {**head, **_Difference(parent, old.graph, child, deep=deep).written()}
        if gives(spec):
            value = parent.value()
            spec = _joined(value, _shorter(spec, _Scopes(value, old.graph), gives), gives)
            return _text(spec), spec
    raise InputError(
        "the difference cannot be written as a patch",
        location=new.source,
        help="save the complete spec under another name",
    )


def _gives(
    parent: LoadedSpec, written: Mapping[str, Any], child: LoadedSpec, graph: Graph | None
) -> bool:
    """Return whether a child of a spec is the wanted one.

    Args:
        parent: the spec.
        written: the child.
        child: the wanted one.
        graph: its graph; None if it has errors, and is compared as it is written.
    """
    try:
        spec = load_child(parent, written, "<variant>")
        if graph is None:
            return _unnamed(spec.value()) == _unnamed(child.value())
        got, _ = analyse(spec.form, registry(spec.blocks), spec.overrides, source="<variant>")
    except SpecError:
        return False
    return got is not None and fingerprint(got) == fingerprint(graph)


def _unnamed(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in value.items() if key not in ("format", "name", "doc")}


class _Difference:
    """Compares the values of two specs.

    A template is patched as `/blocks/NAME`, which reaches all of its uses.  Nodes in it that one
    path selects have patches of their own, unless `deep` is set: then the patch of the template has
    their keys.
    """

    def __init__(self, old: LoadedSpec, graph: Graph, new: LoadedSpec, *, deep: bool) -> None:
        self.old, self.new, self.deep = old.value(), new.value(), deep
        self.patches: list[Patch] = []
        self.paths: dict[str, list[str]] = {}
        """Pointer of a record to the paths that select it."""
        for path, at in pointers(graph).items():
            self.paths.setdefault(at, []).append(path)

    def written(self) -> dict[str, Any]:
        """Return the params, templates and patches of the child."""
        spec: dict[str, Any] = {}
        before, after = self.old.get("params", {}), self.new.get("params", {})
        params = {name: value for name, value in after.items() if before.get(name, ...) != value}
        if params:
            spec["params"] = params
        root: Patch = {"select": "/", "set": {}, "remove": []}
        root["remove"] += [f"params.{name}" for name in before if name not in after]
        for key in sorted({*self.old, *self.new} - {"params", "blocks", "nodes"} - _HEAD):
            self._keys(root, key, self.old.get(key), self.new.get(key))
        blocks = self._templates()
        if blocks:
            spec["blocks"] = blocks
        self._scope(root, "", self.old.get("nodes", {}), self.new.get("nodes", {}))
        # A patch has one action.
        patches = [
            {"select": patch["select"], action: patch[action]}
            for patch in [root, *self.patches]
            for action in ("remove", "set")
            if patch[action]
        ]
        if patches:
            spec["patch"] = patches
        return spec

    def _keys(self, patch: Patch, key: str, old: Any, new: Any) -> None:
        if old == new:
            return
        if isinstance(old, dict) and isinstance(new, dict):
            patch["set"] |= {f"{key}.{n}": v for n, v in new.items() if old.get(n, ...) != v}
            patch["remove"] += [f"{key}.{name}" for name in old if name not in new]
        elif new is None:
            patch["remove"].append(key)
        else:
            patch["set"][key] = new

    def _templates(self) -> dict[str, Any]:
        """Return new templates, and write patches of the others."""
        before, after = self.old.get("blocks", {}), self.new.get("blocks", {})
        changed = {}
        for name, template in after.items():
            old = before.get(name)
            if old == template:
                continue
            if old is None:
                changed[name] = template
                continue
            patch: Patch = {"select": f"/blocks/{name}", "set": {}, "remove": []}
            for key in sorted({*old, *template} - {"nodes"}):
                self._keys(patch, key, old.get(key), template.get(key))
            self._scope(patch, f"/blocks/{name}", old["nodes"], template["nodes"])
            self.patches.append(patch)
        return changed

    def _scope(self, patch: Patch, at: str, old: Any, new: Any) -> None:
        patch["remove"] += [f"nodes.{name}" for name in old if name not in new]
        for name, record in new.items():
            if name not in old:
                patch["set"][f"nodes.{name}"] = record
            elif old[name] != record:
                self._record(patch, at, f"nodes.{name}", old[name], record)

    def _record(self, around: Patch, at: str, key: str, old: Any, new: Any) -> None:
        """Write the patch of a node or of a block in a slot.

        Args:
            around: the patch of the spec or of the template that contains it.
            at: pointer of the spec or of the template.
            key: where the record is in it.
            old: the record in the parent.
            new: the record in the child.
        """
        paths = self.paths.get(at + pointer(*key.split(".")), [])
        alone = not at or (len(paths) == 1 and not self.deep)
        patch, prefix = around, f"{key}."
        if alone:
            path = paths[0] if paths else ".".join(key.split(".")[1:])
            patch, prefix = {"select": path, "set": {}, "remove": []}, ""
            self.patches.append(patch)
        for name in sorted({*old, *new}):
            if name == "fill":
                before, after = old.get("fill", {}), new.get("fill", {})
                for slot in after:
                    if slot not in before:
                        patch["set"][f"{prefix}fill.{slot}"] = after[slot]
                    elif before[slot] != after[slot]:
                        inner = f"{key}.fill.{slot}"
                        self._record(around, at, inner, before[slot], after[slot])
                patch["remove"] += [f"{prefix}fill.{slot}" for slot in before if slot not in after]
            else:
                self._keys(patch, prefix + name, old.get(name), new.get(name))


_HEAD = {"format", "name", "doc", "extends", "patch"}


def _joined(
    parent: Mapping[str, Any], spec: dict[str, Any], gives: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Return a variant with as few patches as found: one selection for what changes alike.

    Two ways are tried: whole patches that are equal are joined, and so are equal changes of one
    key, after which the keys with one selection are one patch.
    """
    patches = spec.get("patch", [])
    candidates = [spec]
    for parts in (patches, [part for patch in patches for part in _keys_of(patch)]):
        together = _together(_selected(parent, parts))
        if gives({**spec, "patch": together}):
            candidates.append({**spec, "patch": together})
    return min(
        candidates, key=lambda candidate: (_text(candidate).count("\n"), len(_text(candidate)))
    )


def _keys_of(patch: Patch) -> list[Patch]:
    """Return a patch for each key that one sets or removes."""
    select = patch["select"]
    if "set" in patch:
        return [{"select": select, "set": {key: value}} for key, value in patch["set"].items()]
    if isinstance(patch.get("remove"), list):
        return [{"select": select, "remove": [key]} for key in patch["remove"]]
    return [patch]


def _selected(parent: Mapping[str, Any], patches: Iterable[Patch]) -> Iterator[Patch]:
    """Yield the patches, with the fewest selections for those that are equal otherwise."""
    groups: dict[str, list[Patch]] = {}
    for patch in patches:
        action = {key: value for key, value in patch.items() if key != "select"}
        groups.setdefault(json.dumps(action, sort_keys=True), []).append(patch)
    for group in groups.values():
        for select in covering(parent, [patch["select"] for patch in group]):
            yield {**group[0], "select": select}


def _together(patches: Iterable[Patch]) -> list[Patch]:
    """Return the patches, with the keys that one selection sets or removes in one patch."""
    joined: dict[str, Patch] = {}
    for patch in patches:
        action = "set" if "set" in patch else "remove"
        keys = patch.get(action)
        if not isinstance(keys, dict | list):
            joined[json.dumps(patch)] = patch
        elif isinstance(keys, dict):
            combined = joined.setdefault(f"set {patch['select']}", {**patch, "set": {}})
            combined["set"] |= keys
        else:
            combined = joined.setdefault(f"remove {patch['select']}", {**patch, "remove": []})
            combined["remove"] = [*combined["remove"], *keys]
    return list(joined.values())


def _text(value: Mapping[str, Any]) -> str:
    """Return a variant as text, with an entry on a line where it fits."""
    lines = []
    for key, part in value.items():
        head = f"  {json.dumps(key)}: "
        lines.append(head + formatted(part, "  ", len(head), wide=key != "patch"))
    return "{\n" + ",\n".join(lines) + "\n}\n"
