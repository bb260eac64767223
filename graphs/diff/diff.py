"""Diff: what changed between two graphs, whole enough to make one from the other.

What differs is found in `compare.py`, what only has another name in `renames.py`; the
new graph is made from the old one in `apply.py`; how it is told is in `diff_words.py`,
how it is drawn in `diff_picture.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..cost.flops import default_sizes, flops
from ..ir.canonical import Json, canonical, fingerprint
from ..ir.graph import Graph
from .changes import Change, Comparison, compare, former
from .text import render
from .weight_transfer import WeightTransfer, weight_transfer


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """What changed from one graph to another."""

    names: tuple[str, str]
    """Names of both specs."""
    fingerprints: tuple[str, str]
    changes: tuple[Change, ...]
    """Everything, names and docs of the specs included."""
    templates: Mapping[str, Any]
    """New template to the old one that its changes begin from, or to all that it is."""
    parameters: tuple[int, int]
    """Before and after."""
    flops: tuple[int, int]
    """Floating-point operations of one forward pass, before and after."""
    sizes: Mapping[str, int]
    """Sizes of the axes for which `flops` counts."""
    weight_transfer: WeightTransfer
    """Which weights of the old graph can begin the new one; renamed nodes keep theirs."""

    @property
    def equal(self) -> bool:
        """Whether both compute the same function of the same weights."""
        return self.fingerprints[0] == self.fingerprints[1]

    def render(self) -> str:
        """Return it as a person would tell it, a line for each change, sizes below."""
        return render(
            self.names,
            self.changes,
            parameters=self.parameters,
            flops=self.flops,
            sizes=self.sizes,
            transfer=self.weight_transfer,
        )

    def as_json(self) -> Json:
        """Return all of it as plain data, which `apply` takes too."""
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


def diff(old: Graph, new: Graph) -> Diff:
    """Return what changed between two checked graphs.

    Args:
        old: what there was.
        new: what there is.
    """
    found = compare(canonical(old), canonical(new))
    sizes = default_sizes(old) | default_sizes(new)
    return Diff(
        names=(old.name, new.name),
        fingerprints=(fingerprint(old), fingerprint(new)),
        changes=tuple(found.found()),
        templates=found.templates(),
        parameters=(old.parameters(), new.parameters()),
        flops=(flops(old, sizes), flops(new, sizes)),
        sizes=sizes,
        weight_transfer=_weight_transfer(old, new, found),
    )


def _weight_transfer(old: Graph, new: Graph, found: Comparison) -> WeightTransfer:
    """Return which weights go on, those of renamed nodes included."""
    if not any(found.renames.values()):
        return weight_transfer(old, new)
    return weight_transfer(old, new, lambda path: former(found, path))
