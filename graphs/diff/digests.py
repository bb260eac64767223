"""Node digests: a short hash of each node of a graph, to find out later which nodes changed.

A fingerprint shows only that two graphs differ. If the digests of one graph were stored, they
show at which nodes another graph differs from it, although the first graph is not available.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from ..ir.canonical import Json, canonical, is_part, numbered, scope_of, stack_of
from ..ir.graph import Graph

ROOT = "the spec itself"
"""Key of the digest of the inputs, outputs, axes, ties and step."""
_LENGTH = 12


def digests(graph: Graph) -> dict[str, str]:
    """Return a hash for each path of a graph; templates are visited once."""
    form = canonical(graph, models="templates")
    header = {key: form.get(key) for key in ("axes", "inputs", "outputs", "tie", "step")}
    header |= {key: form[key] for key in ("deploy", "losses", "segments") if key in form}
    return {ROOT: _hash(header), **dict(_walk(form, "", "", set()))}


def changed_paths(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the paths at which two graphs differ, given their digests."""
    return [path for path in dict.fromkeys([*now, *before]) if before.get(path) != now.get(path)]


def _walk(form: Json, template: str, prefix: str, visited: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the path and hash of each node of a template that has not been visited."""
    if template in visited:
        return
    visited.add(template)
    scope = scope_of(form, template)
    for name, record in scope["nodes"].items():
        path = prefix + name
        inside = dict(_inside(record, path))
        ports = [
            [scope_of(form, child)["inputs"], scope_of(form, child)["outputs"]]
            for child in inside.values()
        ]
        yield path, _hash([record, ports])
        for below, child in sorted(inside.items()):
            yield from _walk(form, child, below, visited)


def _inside(record: Json, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path prefix and the name of each template that a node uses."""
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
