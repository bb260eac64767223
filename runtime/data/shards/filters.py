"""Filters: which pairs are worth training on, and a count of those left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..settings import FilterSettings

Reason = Literal["empty_source", "empty_target", "too_long", "ratio"]
"""Why a pair is left out; the first that applies, in this order."""


def refuse(source: int, target: int, settings: FilterSettings) -> Reason | None:
    """Return why a pair is left out, or None when it is kept.

    Args:
        source: length in tokens, without the end token.
        target: the same of the other side.
        settings: the limits; a length or ratio equal to its limit is kept.
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
    """How many pairs were read, and what became of them."""

    read: int = 0
    """Pairs seen."""
    kept: int = 0
    """Pairs written."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Pairs left out, by reason."""
    spared: dict[str, int] = field(default_factory=dict)
    """Pairs written although training would leave them out, by reason."""

    def keep(
        self, source: int, target: int, settings: FilterSettings, *, only_empty: bool = False
    ) -> bool:
        """Count one pair and say whether it is kept.

        Args:
            source: length in tokens, without the end token.
            target: the same of the other side.
            settings: the limits.
            only_empty: leave out empty pairs only, but count the others.
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
        """Count pairs that were kept and are left out after all."""
        if pairs:
            self.kept -= pairs
            self.dropped[reason] = self.dropped.get(reason, 0) + pairs

    def add(self, counts: Mapping[str, Any]) -> None:
        """Add what another count gave by `as_dict`."""
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
