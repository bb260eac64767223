"""Shorter patches of a variant: a node that is inserted or removed takes its wires with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Patch = dict[str, Any]


def shorter(
    made: dict[str, Any], parent: Mapping[str, Any], gives: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Return a variant with `insert_after` and `remove` in place of keys that rewire readers.

    Args:
        made: the variant.
        parent: the spec that it extends, as JSON data.
        gives: whether a variant still gives the wanted spec.
    """
    for action in (_inserted, _removed):
        for name in _names(made.get("patch", []), parent):
            for patches in action(made["patch"], parent, name):
                candidate = {**made, "patch": patches}
                if gives(candidate):
                    made = candidate
                    break
    return made


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
        plain = {key: inner for key, inner in record.items() if key != "in"}
        node = plain if wires == {"x": "@"} else {**plain, "in": wires}
        for given in _given(patches, name):
            rest = _without(patches, f"nodes.{name}", f"{name}.{given}")
            one: Patch = {"select": source, "insert_after": {name: node}}
            more: Patch = {} if given == "y" else {"output": given}
            for naming in ({}, {"port": output}):
                yield [*rest, {**one, **more, **naming}]


def _removed(
    patches: Sequence[Patch], parent: Mapping[str, Any], name: str
) -> Iterator[list[Patch]]:
    """Yield the patches with a node removed, of which readers read what it read."""
    if name in parent["nodes"]:
        for port, value in parent["nodes"][name].get("in", {}).items():
            rest = _without(patches, f"nodes.{name}", value)
            yield [*rest, {"select": name, "remove": True, "through": port}]


def _given(patches: Sequence[Patch], name: str) -> list[str]:
    """Return the outputs of a node that the patches wire."""
    values = [value for patch in patches for value in patch.get("set", {}).values()]
    found = [value.partition(".")[2] for value in values if str(value).startswith(f"{name}.")]
    return list(dict.fromkeys(found))


def _without(patches: Sequence[Patch], key: str, value: str) -> list[Patch]:
    """Return the patches without a key, and without the wires that read a value."""
    found = []
    for patch in patches:
        left = dict(patch)
        if isinstance(patch.get("remove"), list):
            left["remove"] = [each for each in patch["remove"] if each != key]
        if "set" in patch:
            left["set"] = {
                each: inner
                for each, inner in patch["set"].items()
                if each != key and not (_is_wire(each) and inner == value)
            }
        if all(left.get(action, True) for action in ("set", "remove")):
            found.append(left)
    return found


def _is_wire(key: str) -> bool:
    return key.startswith(("in.", "outputs."))
