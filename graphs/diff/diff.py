"""Diff: everything that changed between two graphs, enough to make one from the other.

`changes.py` finds the changes and `renames.py` the renames; `apply.py` makes the new graph from
the old one; `text.py` describes a diff, and `graphs/draw/diff.py` draws it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..cost.flops import default_sizes, flops
from ..ir.canonical import Json, canonical, fingerprint
from ..ir.graph import Graph
from .changes import Change, GraphComparison, compare, former
from .text import render
from .weight_transfer import WeightTransfer, weight_transfer


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDiff:
    """What changed from one graph to another."""

    names: tuple[str, str]
    """Names of both specs."""
    fingerprints: tuple[str, str]
    changes: tuple[Change, ...]
    """All changes, including names and docs of the specs."""
    templates: Mapping[str, Any]
    """New template to the old one from which its changes start, or to its complete content."""
    parameters: tuple[int, int]
    """Number of parameters, before and after."""
    flops: tuple[int, int]
    """Floating-point operations of one forward pass, before and after."""
    sizes: Mapping[str, int]
    """Sizes of the axes for `flops`."""
    weight_transfer: WeightTransfer
    """Which weights of the old graph can initialize the new one; renamed nodes retain theirs."""

    @property
    def equal(self) -> bool:
        """Whether both graphs compute the same function of the same weights."""
        return self.fingerprints[0] == self.fingerprints[1]

    def render(self) -> str:
        """Return the diff as text: a line for each change, then totals."""
        return render(
            self.names,
            self.changes,
            parameters=self.parameters,
            flops=self.flops,
            sizes=self.sizes,
            transfer=self.weight_transfer,
        )

    def as_json(self) -> Json:
        """Return the diff as plain data, which `apply` accepts too."""
        return {
            "equal": self.equal,
            "old": {"name": self.names[0], "fingerprint": self.fingerprints[0]},
            "new": {"name": self.names[1], "fingerprint": self.fingerprints[1]},
            "changes": [change.as_json() for change in self.changes],
            "templates": dict(self.templates),
            "parameters": {"from": self.parameters[0], "to": self.parameters[1]},
            "flops": {"from": self.flops[0], "to": self.flops[1], "sizes": dict(self.sizes)},
            "weight_transfer": self.weight_transfer.as_json(),
        }


def diff(old: Graph, new: Graph) -> GraphDiff:
    """Return what changed between two checked graphs.

    Args:
        old: the old graph.
        new: the new graph.
    """
    comparison = compare(canonical(old, models="templates"), canonical(new, models="templates"))
    sizes = default_sizes(old) | default_sizes(new)
    return GraphDiff(
        names=(old.name, new.name),
        fingerprints=(fingerprint(old), fingerprint(new)),
        changes=tuple(comparison.results()),
        templates=comparison.templates(),
        parameters=(old.parameters(), new.parameters()),
        flops=(flops(old, sizes), flops(new, sizes)),
        sizes=sizes,
        weight_transfer=_weight_transfer(old, new, comparison),
    )


def _weight_transfer(old: Graph, new: Graph, comparison: GraphComparison) -> WeightTransfer:
    """Return which weights carry over, including those of renamed nodes."""
    if not any(comparison.renames.values()):
        return weight_transfer(old, new)
    return weight_transfer(old, new, lambda path: former(comparison, path))
