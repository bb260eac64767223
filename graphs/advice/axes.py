"""Axes that a spec declares and no type of it has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ...specs.findings import pointer
from ...specs.text.edits import removing
from ..ir.graph import Graph
from .remark import Remark

_ABOUT = frozenset({"name", "doc", "axes"})
"""Keys of a spec whose texts have no types."""


def unused_axes(graph: Graph) -> Iterator[Remark]:
    """Yield the axes that no type, step or segment of the spec names."""
    spec = graph.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    words = {*_words({key: value for key, value in spec.items() if key not in _ABOUT})}
    for axis in graph.spec.axes:
        if axis not in words:
            at = pointer("axes", axis)
            yield Remark(
                at=at,
                problem=f"no type of the spec has the axis '{axis}'",
                help="remove it, or use it in the type of an input",
                fix=removing(at),
            )


def _words(value: Any) -> Iterator[str]:
    """Yield the words of all strings in a JSON value."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from _words(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _words(inner)
    elif isinstance(value, str):
        yield from re.findall(r"[A-Za-z]\w*", value)
