"""Canonical: a graph written back as a spec in which nothing is left to work out.

Every expression has its value, every default stands there, keys are in order.  Two
specs with the same canonical form compute the same function of the same weights, so
its hash is the fingerprint that checkpoints carry.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ..specs.form import FORMAT
from .graph import Graph, Node, Part, Scope, walk


def canonical(graph: Graph) -> dict[str, Any]:
    """Return the full form of a graph's spec; expanding it again changes nothing."""
    templates: dict[str, Any] = {}
    for _, node in walk(graph.root):
        if node.body is not None:
            templates[node.body.name] = _template(node.body, graph)
    spec = graph.spec
    full: dict[str, Any] = {"format": FORMAT, "name": spec.name, "doc": spec.doc}
    full["axes"] = dict(sorted(spec.axes.items()))
    full["inputs"] = {name: str(type_) for name, type_ in sorted(graph.inputs.items())}
    full["outputs"] = dict(sorted(spec.outputs.items()))
    full["blocks"] = dict(sorted(templates.items()))
    full["nodes"] = _nodes(graph.root)
    full["tie"] = [list(group) for group in graph.ties]
    if graph.step_axis is not None:
        full["step"] = {"axis": graph.step_axis}
    return {key: value for key, value in full.items() if value not in ({}, [], "")}


def fingerprint(graph: Graph) -> str:
    """Return a hash of what a graph computes: names and docs of the spec left out."""
    full = {key: value for key, value in canonical(graph).items() if key not in ("name", "doc")}
    text = json.dumps(full, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _template(scope: Scope, graph: Graph) -> dict[str, Any]:
    written = graph.spec.blocks[scope.name]
    return {
        "inputs": {name: str(type_) for name, type_ in sorted(scope.inputs.items())},
        "outputs": dict(sorted(written.outputs.items())),
        "nodes": _nodes(scope),
    }


def _nodes(scope: Scope) -> dict[str, Any]:
    return {node.name: _node(node) for node in sorted(scope.nodes, key=lambda node: node.name)}


def _node(node: Node) -> dict[str, Any]:
    wires = dict(sorted(node.wires.items()))
    if node.part is not None:
        return {**_part(node.part), "in": wires}
    name = node.body.name if node.body else ""
    if node.repeat is None:
        return {"use": name, "in": wires}
    return {"repeat": node.repeat, "block": name, "carry": list(node.carry), "in": wires}


def _part(part: Part) -> dict[str, Any]:
    written: dict[str, Any] = {"use": part.block.key}
    params = dict(sorted(part.params.model_dump(mode="json").items()))
    params = {name: value for name, value in params.items() if value is not None}
    if params:
        written["params"] = params
    if part.fill:
        written["fill"] = {slot: _part(inner) for slot, inner in sorted(part.fill.items())}
    return written
