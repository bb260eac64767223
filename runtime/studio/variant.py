"""Variants: the smallest file that extends a spec and gives an edited one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ...blocks.registry import registry
from ...graphs.checker.check import analyse
from ...graphs.draw.outline import outline
from ...graphs.draw.scene.facts import pointers
from ...graphs.ir.canonical import canonical
from ...graphs.ir.graph import Graph
from ...specs.findings import InputError, SpecError
from ...specs.form import FORMAT
from ...specs.load import LoadedSpec, load_child
from ...specs.text.edits import formatted
from ...specs.text.places import parts_of
from .reading import Read
from .shorter import shorter

Patch = dict[str, Any]


def variant(old: Read, new: Read, extends: str, name: str) -> tuple[str, dict[str, Any]]:
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
            "a variant needs two specs without errors", place=wrong.source, help="correct it first"
        )
    wanted = _form(new.graph)
    for whole in (False, True):
        head = {"format": FORMAT, "extends": extends, "name": name}
        doc = child.value().get("doc", "")
        if doc and doc != parent.value().get("doc", ""):
            head["doc"] = doc
        made = {**head, **_Difference(parent, old.graph, child, whole=whole).written()}
        if _gives(parent, made, wanted):
            made = shorter(made, parent.value(), lambda one: _gives(parent, one, wanted))
            smaller = _joined(parent, old.graph, made, wanted)
            return _text(smaller), smaller
    raise InputError(
        "the difference cannot be written as a patch",
        place=new.source,
        help="save the complete spec under another name",
    )


def _form(graph: Graph) -> Any:
    form = canonical(graph)
    return {key: value for key, value in form.items() if key not in ("name", "doc")}


def _gives(parent: LoadedSpec, child: Mapping[str, Any], wanted: Any) -> bool:
    """Return whether a child of a spec is the wanted one."""
    try:
        spec = load_child(parent, child, "<variant>")
        graph, _ = analyse(spec.form, registry(spec.blocks), spec.overrides, source="<variant>")
    except SpecError:
        return False
    return graph is not None and _form(graph) == wanted


class _Difference:
    """Compares the values of two specs."""

    def __init__(self, old: LoadedSpec, graph: Graph, new: LoadedSpec, *, whole: bool) -> None:
        self.old, self.new, self.whole = old.value(), new.value(), whole
        self.patches: list[Patch] = []
        self.paths: dict[str, list[str]] = {}
        """Pointer of a record to the paths that select it."""
        for path, at in pointers(graph).items():
            self.paths.setdefault(at, []).append(path)

    def written(self) -> dict[str, Any]:
        """Return the params, templates and patches of the child."""
        made: dict[str, Any] = {}
        before, after = self.old.get("params", {}), self.new.get("params", {})
        params = {name: value for name, value in after.items() if before.get(name, ...) != value}
        if params:
            made["params"] = params
        root: Patch = {"select": "/", "set": {}, "remove": []}
        root["remove"] += [f"params.{name}" for name in before if name not in after]
        for key in sorted({*self.old, *self.new} - {"params", "blocks", "nodes"} - _HEAD):
            self._keys(root, key, self.old.get(key), self.new.get(key))
        blocks = self._templates()
        if blocks:
            made["blocks"] = blocks
        self._scope(root, "", self.old.get("nodes", {}), self.new.get("nodes", {}))
        # A patch has one action.
        patches = [
            {"select": patch["select"], action: patch[action]}
            for patch in [root, *self.patches]
            for action in ("remove", "set")
            if patch[action]
        ]
        if patches:
            made["patch"] = patches
        return made

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
        made = {}
        for name, template in after.items():
            old = before.get(name)
            if old == template:
                continue
            paths = self.paths.get(f"/blocks/{name}", [])
            if old is None or self.whole or len(paths) != 1:
                made[name] = template
                continue
            patch: Patch = {"select": paths[0], "set": {}, "remove": []}
            for key in sorted({*old, *template} - {"nodes"}):
                self._keys(patch, key, old.get(key), template.get(key))
            self._scope(patch, f"/blocks/{name}", old["nodes"], template["nodes"])
            self.patches.append(patch)
        return made

    def _scope(self, patch: Patch, at: str, old: Any, new: Any) -> None:
        patch["remove"] += [f"nodes.{name}" for name in old if name not in new]
        for name, record in new.items():
            if name not in old:
                patch["set"][f"nodes.{name}"] = record
            elif old[name] != record:
                self._record(f"{at}/nodes/{name}", old[name], record)

    def _record(self, at: str, old: Any, new: Any) -> None:
        """Write the patch of a node or of a block in a slot."""
        paths = self.paths.get(at, [])
        path = paths[0] if paths else ".".join(parts_of(at)[1:])
        patch: Patch = {"select": path, "set": {}, "remove": []}
        for key in sorted({*old, *new}):
            if key == "fill":
                before, after = old.get("fill", {}), new.get("fill", {})
                for slot in after:
                    if slot not in before:
                        patch["set"][f"fill.{slot}"] = after[slot]
                    elif before[slot] != after[slot]:
                        self._record(f"{at}/fill/{slot}", before[slot], after[slot])
                patch["remove"] += [f"fill.{slot}" for slot in before if slot not in after]
            else:
                self._keys(patch, key, old.get(key), new.get(key))
        self.patches.append(patch)


_HEAD = {"format", "name", "doc", "extends", "patch"}


def _joined(parent: LoadedSpec, graph: Graph, made: dict[str, Any], wanted: Any) -> dict[str, Any]:
    """Return a variant in which equal patches are one, where a selection reaches exactly them."""
    groups: dict[str, list[Patch]] = {}
    for patch in made.get("patch", []):
        rest = {key: value for key, value in patch.items() if key != "select"}
        groups.setdefault(json.dumps(rest, sort_keys=True), []).append(patch)
    uses = _uses(graph)
    for group in groups.values():
        if len(group) < 2:  # noqa: PLR2004 - one patch alone
            continue
        for select in _selections([patch["select"] for patch in group], uses):
            one = {**group[0], "select": select}
            others = [patch for patch in made["patch"] if patch not in group]
            smaller = {**made, "patch": [*others, one]}
            if _gives(parent, smaller, wanted):
                made = smaller
                break
    return made


def _uses(graph: Graph) -> dict[str, str]:
    return {line.path: line.use for line in outline(graph)}


def _selections(paths: list[str], uses: Mapping[str, str]) -> Iterator[str]:
    """Yield selections that may reach exactly some paths."""
    found = {uses.get(path, "") for path in paths}
    slots = {path.rpartition("/")[2] if "/" in path else "" for path in paths}
    names = {path.rpartition(".")[2] for path in paths}
    scopes = {path.partition(".")[0] for path in paths}
    starts = ["**", *(f"{scope}.**" for scope in scopes if len(scopes) == 1)]
    for start in starts:
        if len(found) == 1 and len(slots) == 1:
            [use], [slot] = found, slots
            yield f"{start}/{slot}[use={use}]" if slot else f"{start}[use={use}]"
        if len(names) == 1:
            yield f"{start}.{next(iter(names))}"
    if not any(sign in path for path in paths for sign in "./"):
        first, *others = paths
        ends = [first[at:] for at in range(1, len(first)) if first[at] == "_"]
        yield from (f"*{end}" for end in ends if all(path.endswith(end) for path in others))


def _text(value: Mapping[str, Any]) -> str:
    """Return a variant as text, with an entry on a line where it fits."""
    lines = []
    for key, part in value.items():
        written = formatted(part, "  ", wide=key != "patch")
        lines.append(f"  {json.dumps(key)}: {written}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
