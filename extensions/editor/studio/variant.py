"""Shorter patches of a variant: a node that is inserted or removed takes its wires with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ....graphs.checker.check import analyse
from ....graphs.draw.facts import pointers
from ....plugin import Graph, InputError, SpecError, canonical, pointer, registry
from ....specs.form import FORMAT
from ....specs.load import LoadedSpec, load_child
from ....specs.text_edits import formatted
from .checked_text import CheckedText
from .covering import covering

Patch = dict[str, Any]


def _shorter(
    spec: dict[str, Any], parent: Mapping[str, Any], gives: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Return a variant with `insert_after` and `remove` in place of keys that rewire readers.

    Args:
        spec: the variant.
        parent: the spec that it extends, as JSON data.
        gives: whether a variant still gives the wanted spec.
    """
    for action in (_inserted, _removed):
        for name in _names(spec.get("patch", []), parent):
            for patches in action(spec["patch"], parent, name):
                candidate = {**spec, "patch": patches}
                if gives(candidate):
                    spec = candidate
                    break
    return spec


def _names(patches: Sequence[Patch], parent: Mapping[str, Any]) -> list[str]:
    """Return the nodes that the patches add to the spec itself, or remove from it."""
    root = [patch for patch in patches if patch["select"] == "/"]
    added = [key for patch in root for key in patch.get("set", {})]
    gone = [key for patch in root for key in patch.get("remove", [])]
    names = [key.removeprefix("nodes.") for key in (*added, *gone) if key.startswith("nodes.")]
    return [name for name in names if "." not in name or name in parent["nodes"]]


def _inserted(
    patches: Sequence[Patch], parent: Mapping[str, Any], name: str
) -> Iterator[list[Patch]]:
    """Yield the patches with a new node inserted after the node that it reads."""
    record = next(
        (
            patch["set"][f"nodes.{name}"]
            for patch in patches
            if f"nodes.{name}" in patch.get("set", {})
        ),
        None,
    )
    if record is None or "in" not in record:
        return
    for port, value in record["in"].items():
        source, dot, output = value.partition(".")
        if not dot or source not in parent["nodes"]:
            continue
        wires = {**record["in"], port: "@"}
        bare = {key: inner for key, inner in record.items() if key != "in"}
        node = bare if wires == {"x": "@"} else {**bare, "in": wires}
        for node_output in _given(patches, name):
            remaining = _without(patches, f"nodes.{name}", f"{name}.{node_output}")
            insertion: Patch = {"select": source, "insert_after": {name: node}}
            more: Patch = {} if node_output == "y" else {"output": node_output}
            for naming in ({}, {"port": output}):
                yield [*remaining, {**insertion, **more, **naming}]


def _removed(
    patches: Sequence[Patch], parent: Mapping[str, Any], name: str
) -> Iterator[list[Patch]]:
    """Yield the patches with a node removed, of which readers read what it read."""
    if name in parent["nodes"]:
        for port, value in parent["nodes"][name].get("in", {}).items():
            remaining = _without(patches, f"nodes.{name}", value)
            yield [*remaining, {"select": name, "remove": True, "through": port}]


def _given(patches: Sequence[Patch], name: str) -> list[str]:
    """Return the outputs of a node that the patches wire."""
    values = [value for patch in patches for value in patch.get("set", {}).values()]
    outputs = [value.partition(".")[2] for value in values if str(value).startswith(f"{name}.")]
    return list(dict.fromkeys(outputs))


def _without(patches: Sequence[Patch], key: str, value: str) -> list[Patch]:
    """Return the patches without a key, and without the wires that read a value."""
    remaining = []
    for patch in patches:
        reduced = dict(patch)
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
    return key.startswith(("in.", "outputs."))


def variant(
    old: CheckedText, new: CheckedText, extends: str, name: str
) -> tuple[str, dict[str, Any]]:
    """Return a file that extends one spec and is equal to another, as text and as a value.

    Args:
        old: the spec to extend.
        new: the spec to write.
        extends: the name of the old spec, as the file names it.
        name: the name of the variant.

    Raises:
        InputError: one of them has errors, or the difference cannot be written as a patch.
    """
    parent, child = old.loaded, new.loaded
    if parent is None or child is None or old.graph is None or new.graph is None:
        wrong = new if new.graph is None else old
        raise InputError(
            "a variant needs two specs without errors",
            location=wrong.source,
            help="correct it first",
        )
    expected = _form(new.graph)
    head = {"format": FORMAT, "extends": extends, "name": name}
    doc = child.value().get("doc", "")
    if doc and doc != parent.value().get("doc", ""):
        head["doc"] = doc
    for deep in (False, True):
        spec = {**head, **_Difference(parent, old.graph, child, deep=deep).written()}
        if _gives(parent, spec, expected):
            value = parent.value()
            spec = _shorter(spec, value, lambda candidate: _gives(parent, candidate, expected))
            spec = _joined(value, spec, lambda candidate: _gives(parent, candidate, expected))
            return _text(spec), spec
    raise InputError(
        "the difference cannot be written as a patch",
        location=new.source,
        help="save the complete spec under another name",
    )


def _form(graph: Graph) -> Any:
    form = canonical(graph)
    return {key: value for key, value in form.items() if key not in ("name", "doc")}


def _gives(parent: LoadedSpec, child: Mapping[str, Any], expected: Any) -> bool:
    """Return whether a child of a spec is the wanted one."""
    try:
        spec = load_child(parent, child, "<variant>")
        graph, _ = analyse(spec.form, registry(spec.blocks), spec.overrides, source="<variant>")
    except SpecError:
        return False
    return graph is not None and _form(graph) == expected


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
