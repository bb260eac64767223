"""Filters of training rows by the lengths of their texts, and counts of the dropped rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..settings import FilterSettings

SIDES = ("source", "target")


def refuse(
    lengths: Sequence[int], settings: FilterSettings | None, names: Sequence[str] = SIDES
) -> str | None:
    """Return the reason for dropping a row, or None if the row is kept.

    The reason is the first that applies: `empty_NAME`, `too_long`, `ratio`.

    Args:
        lengths: length of each text column in tokens, without the end token.
        settings: limits; a length or ratio equal to its limit is kept.  None means no limits:
            only empty rows are dropped.
        names: names of the text columns.
    """
    shortest, widest = min(lengths), max(lengths)
    if shortest == 0:
        return f"empty_{names[tuple(lengths).index(0)]}"
    if settings is None:
        return None
    if settings.max_length is not None and widest > settings.max_length:
        return "too_long"
    longest = settings.max_ratio
    if longest is not None and widest > longest * shortest:
        return "ratio"
    return None


@dataclass
class FilterCount:
    """Counts of rows read, kept and dropped."""

    read: int = 0
    """Rows read."""
    retained: int = 0
    """Rows written."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Rows dropped, by reason."""
    spared: dict[str, int] = field(default_factory=dict)
    """Rows written although training would drop them, by reason."""

    def keep(
        self,
        lengths: Sequence[int],
        settings: FilterSettings | None,
        names: Sequence[str] = SIDES,
        *,
        only_empty: bool = False,
    ) -> bool:
        """Count one row and return whether it is kept.

        Args:
            lengths: length of each text column in tokens, without the end token.
            settings: the limits, as for `refuse`.
            names: names of the text columns.
            only_empty: drop only empty rows; count other violations as spared.
        """
        self.read += 1
        reason = refuse(lengths, settings, names)
        spared = only_empty and reason in ("too_long", "ratio")
        if reason is not None:
            where = self.spared if spared else self.dropped
            where[reason] = where.get(reason, 0) + 1
        retained = reason is None or spared
        self.retained += retained
        return retained

    def leave_out(self, reason: str, pairs: int) -> None:
        """Move rows from the kept to the dropped counts."""
        if pairs:
            self.retained -= pairs
            self.dropped[reason] = self.dropped.get(reason, 0) + pairs

    def add(self, counts: Mapping[str, Any]) -> None:
        """Add the counts that another instance returned from `as_dict`."""
        self.read += counts["read"]
        self.retained += counts["kept"]
        for mine, theirs in ((self.dropped, counts["dropped"]), (self.spared, counts["spared"])):
            for reason, pairs in theirs.items():
                mine[reason] = mine.get(reason, 0) + pairs

    def as_dict(self) -> dict[str, object]:
        """Return the counts as plain data."""
        return {
            "read": self.read,
            "kept": self.retained,
            "dropped": dict(sorted(self.dropped.items())),
            "spared": dict(sorted(self.spared.items())),
        }
