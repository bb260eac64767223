"""Shorter patches of a variant: a node that is inserted or removed takes its wires with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Patch = dict[str, Any]


def shorter(
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
