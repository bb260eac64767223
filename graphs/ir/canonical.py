"""Canonical form: a graph written as a spec with all expressions and defaults resolved.

Expressions are replaced by their values, defaults are written out (except those of params that
were added to a block later), and keys are sorted.  Two specs with the same canonical form compute
the same function of the same weights, so its hash is the fingerprint that checkpoints store.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ...specs.form import FORMAT
from .graph import BlockNode, Filling, Graph, Node, RepeatNode, Scope, TemplatePart
from .traverse import walk

Json = dict[str, Any]
REPEAT_KEYS = ("repeat", "carry", "collect", "share")


def canonical(graph: Graph) -> dict[str, Any]:
    """Return the canonical form of a graph; checking it gives the same form again."""
    names = _template_names(graph)
    spec = graph.spec
    full: dict[str, Any] = {"format": FORMAT, "name": spec.name, "doc": spec.doc}
    full["axes"] = dict(sorted(spec.axes.items()))
    full["inputs"] = {name: str(type_) for name, type_ in sorted(graph.inputs.items())}
    full["outputs"] = dict(sorted(spec.outputs.items()))
    scopes = {
        names[id(body)]: body for _, node in walk(graph.root) for _, body, _ in node.insides()
    }
    full["blocks"] = {name: _template(scope, names) for name, scope in sorted(scopes.items())}
    full["nodes"] = _nodes(graph.root, names)
    full["tie"] = [list(group) for group in graph.ties]
    if graph.step_axis is not None:
        full["step"] = {"axis": graph.step_axis}
    full["allow"] = sorted(spec.allow)
    return {key: value for key, value in full.items() if value not in ({}, [], "")}


def fingerprint(graph: Graph) -> str:
    """Return the SHA-256 of a graph's canonical form, without name, doc and allowed warnings."""
    return fingerprint_of(canonical(graph))


def fingerprint_of(form: Json) -> str:
    """Return the fingerprint of a canonical form, in whichever spec format it was written."""
    full = {key: value for key, value in form.items() if key not in ("name", "doc", "allow")}
    text = json.dumps(full, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _template_names(graph: Graph) -> dict[int, str]:
    """Return a name for each distinct template body, by its identity.

    A generic template that is used with several types becomes several templates, numbered in
    the order of the paths that use them.
    """
    names: dict[int, str] = {}
    bodies = [
        body
        for _, node in sorted(walk(graph.root), key=lambda pair: pair[0])
        for _, body, _ in node.insides()
    ]
    taken = {body.name for body in bodies}
    seen: set[str] = set()
    for body in bodies:
        if id(body) in names:
            continue
        name, number = body.name, 2
        while name in seen or (number > 2 and name in taken):  # noqa: PLR2004 - the first copy
            name, number = f"{body.name}_{number}", number + 1
        seen.add(name)
        names[id(body)] = name
    return names


def _template(scope: Scope, names: dict[int, str]) -> dict[str, Any]:
    return {
        "inputs": {name: str(type_) for name, type_ in sorted(scope.inputs.items())},
        "outputs": dict(sorted(scope.outputs.items())),
        "nodes": _nodes(scope, names),
    }


def _nodes(scope: Scope, names: dict[int, str]) -> dict[str, Any]:
    ordered = sorted(scope.nodes, key=lambda node: node.name)
    return {node.name: _node(node, names) for node in ordered}


def _node(node: Node, names: dict[int, str]) -> dict[str, Any]:
    wires = dict(sorted(node.wires.items()))
    if isinstance(node, BlockNode):
        return {**_part(node.part, names), "in": wires}
    name = names[id(node.body)]
    if not isinstance(node, RepeatNode):
        return {"use": name, "in": wires}
    others = {str(index): names[id(body)] for index, body in sorted(node.instead.items())}
    ports = {"carry": sorted(node.carry), "collect": sorted(node.collect)}
    rest = {"share": node.share, "instead": others}
    kept = {key: value for key, value in {**ports, **rest}.items() if value}
    return {"repeat": node.repeat, "block": name, **kept, "in": wires}


def _part(part: Filling, names: dict[int, str]) -> dict[str, Any]:
    if isinstance(part, TemplatePart):
        return {"use": names[id(part.body)]}
    written: dict[str, Any] = {"use": part.block.key}
    fields = type(part.params).model_fields
    params = {
        name: value
        for name, value in sorted(part.params.model_dump(mode="json").items())
        if value is not None or fields[name].default is not None
    }
    if params:
        written["params"] = params
    if part.fill:
        written["fill"] = {slot: _part(inner, names) for slot, inner in sorted(part.fill.items())}
    return written


def scope_of(form: Json, template: str) -> Json:
    """Return a template of a canonical form, or the form itself."""
    scope: Json = form["blocks"][template] if template else form
    return scope


def is_part(record: Json) -> bool:
    """Return whether a record uses a registered block: only keys of blocks contain a version."""
    return "@" in record.get("use", "")


def stack_of(record: Json) -> Json:
    """Return the use of a template in one form, repeated or not."""
    block = record.get("block", record.get("use"))
    given = {key: record[key] for key in REPEAT_KEYS if key in record}
    return {"block": block, "instead": record.get("instead", {}), **given}


def numbered(stack: Json) -> bool:
    """Return whether paths below a use of a template contain copy numbers."""
    return "repeat" in stack and not stack.get("share", False)
