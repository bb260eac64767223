"""Digests: a short hash for each node of a graph, to say later which node was changed.

A fingerprint says that two graphs differ; where only one of them is at hand, the
digests that were kept of the other say at which nodes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from .canonical import Json, canonical, is_part, numbered, scope_of, stack_of
from .graph import Graph

ROOT = "the spec itself"
"""What stands for inputs, outputs, axes, ties and the step."""
_LENGTH = 12


def digests(graph: Graph) -> dict[str, str]:
    """Return a hash of what a graph has at each path, templates once."""
    form = canonical(graph)
    own = {key: form.get(key) for key in ("axes", "inputs", "outputs", "tie", "step")}
    return {ROOT: _hash(own), **dict(_walk(form, "", "", set()))}


def changed_paths(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the paths at which two graphs differ, by their digests."""
    return [path for path in dict.fromkeys([*now, *before]) if before.get(path) != now.get(path)]


def _walk(form: Json, template: str, place: str, seen: set[str]) -> Iterator[tuple[str, str]]:
    """Yield path and hash of what is in a template, once."""
    if template in seen:
        return
    seen.add(template)
    scope = scope_of(form, template)
    for name, record in scope["nodes"].items():
        path = place + name
        inside = dict(_inside(record, path))
        ports = [
            [scope_of(form, each)["inputs"], scope_of(form, each)["outputs"]]
            for each in inside.values()
        ]
        yield path, _hash([record, ports])
        for below, each in sorted(inside.items()):
            yield from _walk(form, each, below, seen)


def _inside(record: Json, path: str) -> Iterator[tuple[str, str]]:
    """Yield what stands before the nodes of each template in a node, and its name."""
    if is_part(record):
        for slot, inner in record.get("fill", {}).items():
            yield from _inside(inner, f"{path}/{slot}")
        return
    stack = stack_of(record)
    for index, other in stack["instead"].items():
        yield f"{path}.{index}.", other
    yield f"{path}.*." if numbered(stack) else f"{path}.", stack["block"]


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_LENGTH]
