"""Apply a diff: make the new canonical form from the old one, to test that a diff is complete."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from weft.graphs.diff.changes import translated
from weft.graphs.diff.diff import GraphDiff
from weft.graphs.ir.canonical import Json, is_part, scope_of

_KEYS = {
    "scope": (
        *("format", "name", "doc", "axes", "inputs", "outputs"),
        *("blocks", "nodes", "init", "tie", "step", "deploy", "losses", "segments", "allow"),
    ),
    "node": (
        *("use", "params", "fill", "repeat", "block"),
        *("carry", "collect", "share", "instead", "frozen", "shares", "in"),
    ),
}
"""Order of the keys in canonical forms."""


def apply(difference: GraphDiff | Json, old: Json) -> Json:
    """Return the canonical form that results from applying a diff.

    Args:
        difference: a diff, or its JSON form.
        old: the canonical form of the graph from which the diff starts, with the models that it
            holds as templates.
    """
    data = difference.as_json() if isinstance(difference, GraphDiff) else difference
    data, old = copy.deepcopy((data, old))
    origins: dict[str, Any] = {"": "", **data["templates"]}
    new = dict(old)
    new["blocks"] = {
        name: copy.deepcopy(scope_of(old, origin)) if isinstance(origin, str) else origin
        for name, origin in data["templates"].items()
    }
    changes = [change for change in data["changes"] if _is_own(change, origins)]
    for kinds in (("renamed",), tuple(_MAKE)):
        for change in changes:
            if change["kind"] in kinds:
                make = _rename if change["kind"] == "renamed" else _MAKE[change["kind"]]
                make(scope_of(new, change["scope"][1]), change)
    return _tidy(new)


def _is_own(change: Json, origins: Mapping[str, Any]) -> bool:
    """Return whether the new template of a change is made from the old template of the change."""
    before, after = change["scope"]
    return bool(origins.get(after) == before)


def _rename(scope: Json, change: Json) -> None:
    """Rename a node or an input, and update the wires that read it."""
    part = "nodes" if "node" in change else "inputs"
    scope[part][change["to"]] = scope[part].pop(change["from"])
    now = {change["from"]: change["to"]}
    nodes, inputs = (now, {}) if part == "nodes" else ({}, now)
    wired = [record["in"] for record in scope["nodes"].values() if "in" in record]
    for wires in [*wired, scope["outputs"]]:
        wires |= {port: translated(value, nodes, inputs) for port, value in wires.items()}


def _record(scope: Json, change: Json) -> Json:
    """Return the record of a change: a node, or the block in a slot."""
    name, *slots = change["node"].split("/")
    record: Json = scope["nodes"][name]
    for slot in slots:
        record = record["fill"][slot]
    return record


def _set(record: Json, key: str, change: Json) -> None:
    """Set a key to its new value, or remove it."""
    if "to" in change:
        record[key] = change["to"]
    else:
        del record[key]


def _place(scope: Json, change: Json) -> None:
    """Add or remove a node, or the block in a slot."""
    outer, _, name = change["node"].rpartition("/")
    if outer:
        _set(_record(scope, {"node": outer}).setdefault("fill", {}), name, change)
    else:
        _set(scope["nodes"], name, change)


def _replace(scope: Json, change: Json) -> None:
    """Replace the block or template of a node; wires and slots have changes of their own."""
    record, old, new = _record(scope, change), change["from"], change["to"]
    parts = is_part(old), is_part(new)
    if parts == (False, False):
        _set_template(record, new["use"])
        return
    kept = ("in", "fill") if all(parts) else ("in",)
    for key in [key for key in record if key not in kept]:
        del record[key]
    record |= new


def _set_template(record: Json, name: str) -> None:
    record["block" if "block" in record else "use"] = name


def _set_param(scope: Json, change: Json) -> None:
    _set(_record(scope, change).setdefault("params", {}), change["name"], change)


def _set_repeat(scope: Json, change: Json) -> None:
    record = _record(scope, change)
    _set(record, change["name"], change)
    if change["name"] == "repeat":
        old, new = ("use", "block") if "to" in change else ("block", "use")
        if old in record:
            record[new] = record.pop(old)


def _set_instead(scope: Json, change: Json) -> None:
    record = _record(scope, change)
    if "name" in change:
        _set(record.setdefault("instead", {}), change["name"], change)
    else:
        _set_template(record, change["to"])


_MAKE: Mapping[str, Callable[[Json, Json], None]] = {
    "added": _place,
    "removed": _place,
    "replaced": _replace,
    "param": _set_param,
    "rewired": lambda scope, change: _set(
        _record(scope, change).setdefault("in", {}), change["name"], change
    ),
    "repeat": _set_repeat,
    "template": _set_instead,
    "input": lambda scope, change: _set(scope["inputs"], change["name"], change),
    "output": lambda scope, change: _set(scope["outputs"], change["name"], change),
    "axis": lambda scope, change: _set(scope["axes"], change["name"], change),
    "tie": lambda scope, change: _set(scope, "tie", change),
    "step": lambda scope, change: _set(scope, "step", change),
    "training": lambda scope, change: _set(
        _record(scope, change) if "node" in change else scope, change["name"], change
    ),
    "spec": lambda scope, change: _set(scope, change["name"], change),
}
"""Kind of change to the function that applies it."""


def _tidy(form: Json) -> Json:
    """Return a canonical form with ordered keys and without empty values."""
    scope = {**form, "nodes": _tidy_nodes(form["nodes"])}
    scope["blocks"] = {
        name: {
            "inputs": _sorted(body["inputs"]),
            "outputs": _sorted(body["outputs"]),
            "nodes": _tidy_nodes(body["nodes"]),
            **({"init": body["init"]} if body.get("init") else {}),
        }
        for name, body in sorted(form["blocks"].items())
    }
    scope |= {key: _sorted(form.get(key, {})) for key in ("axes", "inputs", "outputs")}
    return {key: scope[key] for key in _KEYS["scope"] if scope.get(key) not in (None, {}, [], "")}


def _tidy_nodes(nodes: Json) -> Json:
    return {name: _tidy_record(record) for name, record in sorted(nodes.items())}


def _tidy_record(record: Json) -> Json:
    """Return the record of a node or slot with ordered keys."""
    tidy = dict(record)
    for key in ("params", "in"):
        if key in tidy:
            tidy[key] = _sorted(tidy[key])
    if "instead" in tidy:
        tidy["instead"] = dict(sorted(tidy["instead"].items(), key=lambda each: int(each[0])))
    if "fill" in tidy:
        tidy["fill"] = {slot: _tidy_record(inner) for slot, inner in sorted(tidy["fill"].items())}
    return {
        key: tidy[key]
        for key in _KEYS["node"]
        if key in tidy and (key == "in" or tidy[key] not in ({}, []))
    }


def _sorted(record: Json) -> Json:
    return dict(sorted(record.items()))
