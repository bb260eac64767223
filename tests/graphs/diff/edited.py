"""Graphs of shipped and edited specs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.canonical import canonical
from weft.specs.load import load, loaded
from weft.specs.reader import shipped_names

if TYPE_CHECKING:
    from weft.graphs.ir.graph import Graph


Json = dict[str, Any]
SHIPPED = sorted(shipped_names("objectives", "models", "variants"))


def graph_of(value: str | Json) -> Graph:
    """Return the graph of a spec, shipped or given as JSON."""
    spec = load(value) if isinstance(value, str) else loaded(value)
    return check(spec.form, registry(), spec.overrides)


BASE = canonical(graph_of("transformer-base"))


def renamed(spec: Json, *names: tuple[str, str]) -> None:
    """Replace words everywhere in a spec."""
    text = json.dumps(spec)
    for old, new in names:
        text = text.replace(f'"{old}"', f'"{new}"').replace(f'"{old}.', f'"{new}.')
    spec.clear()
    spec.update(json.loads(text))


# The text of a diff.
