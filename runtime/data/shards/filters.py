"""Filters of training pairs, and counts of the dropped pairs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..settings import FilterSettings

Reason = Literal["empty_source", "empty_target", "too_long", "ratio"]
"""Reason for dropping a pair; the first that applies, in this order."""


def refuse(source: int, target: int, settings: FilterSettings) -> Reason | None:
    """Return the reason for dropping a pair, or None if the pair is kept.

    Args:
        source: source length in tokens, without the end token.
        target: target length in tokens, without the end token.
        settings: limits; a length or ratio equal to its limit is kept.
    """
    if source == 0:
        return "empty_source"
    if target == 0:
        return "empty_target"
    if max(source, target) > settings.max_length:
        return "too_long"
    longest = settings.max_ratio
    if longest is not None and max(source, target) > longest * min(source, target):
        return "ratio"
    return None


@dataclass
class FilterCount:
    """Counts of pairs read, kept and dropped."""

    read: int = 0
    """Pairs read."""
    kept: int = 0
    """Pairs written."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Pairs dropped, by reason."""
    spared: dict[str, int] = field(default_factory=dict)
    """Pairs written although training would drop them, by reason."""

    def keep(
        self, source: int, target: int, settings: FilterSettings, *, only_empty: bool = False
    ) -> bool:
        """Count one pair and return whether it is kept.

        Args:
            source: source length in tokens, without the end token.
            target: target length in tokens, without the end token.
            settings: the limits.
            only_empty: drop only empty pairs; count other violations as spared.
        """
        self.read += 1
        reason = refuse(source, target, settings)
        spared = only_empty and reason in ("too_long", "ratio")
        if reason is not None:
            where = self.spared if spared else self.dropped
            where[reason] = where.get(reason, 0) + 1
        kept = reason is None or spared
        self.kept += kept
        return kept

    def leave_out(self, reason: str, pairs: int) -> None:
        """Move pairs from the kept to the dropped counts."""
        if pairs:
            self.kept -= pairs
            self.dropped[reason] = self.dropped.get(reason, 0) + pairs

    def add(self, counts: Mapping[str, Any]) -> None:
        """Add the counts that another instance returned from `as_dict`."""
        self.read += counts["read"]
        self.kept += counts["kept"]
        for mine, theirs in ((self.dropped, counts["dropped"]), (self.spared, counts["spared"])):
            for reason, pairs in theirs.items():
                mine[reason] = mine.get(reason, 0) + pairs

    def as_dict(self) -> dict[str, object]:
        """Return the counts as plain data."""
        return {
            "read": self.read,
            "kept": self.kept,
            "dropped": dict(sorted(self.dropped.items())),
            "spared": dict(sorted(self.spared.items())),
        }
