"""Comparing: two drawings whose nodes are marked as added, removed or changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....graphs.diff.diff import GraphDiff
from ....graphs.diff.text import rows


def compared(difference: GraphDiff, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return both drawings with marks, and the changes as text.

    Args:
        difference: the difference of two graphs.
        old: the drawing of the first, as `look` returns it.
        new: the drawing of the second.
    """
    before, after = old["scene"]["facts"], new["scene"]["facts"]
    for path in before:
        if path not in after:
            before[path]["changed"] = "removed"
        elif _other(before[path], after[path]):
            before[path]["changed"] = after[path]["changed"] = "changed"
    for path in after:
        if path not in before:
            after[path]["changed"] = "added"
    for facts in (before, after):
        # A block in a slot is drawn in the box of its node.
        for path, fact in list(facts.items()):
            outer = path.partition("/")[0]
            if outer != path and fact.get("changed") and outer in facts:
                facts[outer].setdefault("changed", "changed")
    lines = [
        {"mark": row.mark, "place": row.path, "text": row.text} for row in rows(difference.changes)
    ]
    return {
        "equal": difference.equal,
        "old": old["scene"],
        "new": new["scene"],
        "lines": lines,
        "parameters": [old["scene"]["parameters"], new["scene"]["parameters"]],
        "flops": [old["scene"]["flops"], new["scene"]["flops"]],
    }


def _other(row: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    keys = ("use", "params", "repeat", "inputs", "outputs", "frozen", "shares")
    return any(row[key] != other[key] for key in keys)
