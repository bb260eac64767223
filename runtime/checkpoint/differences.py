"""How the graph of a checkpoint differs from another graph, for error messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.canonical import fingerprint
from ...graphs.ir.graph import Graph
from ...specs.findings import InputError

MOST_NAMED = 8
"""Maximum number of differences that a message lists."""


def changed_nodes(state: Mapping[str, Any], graph: Graph) -> str:
    """Return the nodes that changed since a checkpoint was written, as lines below a problem.

    Args:
        state: state of the checkpoint; without digests of its nodes, nothing is listed.
        graph: graph of its spec.
    """
    from ...graphs.diff.digests import changed_paths, digests

    before = state.get("nodes")
    return _listed(changed_paths(before, digests(graph)) if isinstance(before, dict) else [])


def refuse_other_graph(
    old: Graph, expected: Graph, *, problem: str, location: str, help_: str
) -> None:
    """Raise an error that lists the differences if two graphs differ.

    Args:
        old: graph of a checkpoint.
        expected: expected graph.
        problem: problem for the error message.
        location: path of the checkpoint for the error message.
        help_: help for the error message.

    Raises:
        InputError: the fingerprints differ; the message lists up to `MOST_NAMED` differences.
    """
    if fingerprint(old) == fingerprint(expected):
        return
    from ...graphs.diff.diff import diff
    from ...graphs.diff.text import rows

    lines = [str(row) for row in rows(diff(old, expected).changes)]
    raise InputError(problem + _listed(lines), location=location, help=help_)


def _listed(lines: list[str]) -> str:
    """Return lines as indented text below a problem, at most `MOST_NAMED` of them."""
    more = len(lines) - MOST_NAMED
    shown = [*lines[:MOST_NAMED], *([f"and {more} more"] if more > 0 else [])]
    return "".join(f"\n      {line}" for line in shown)
