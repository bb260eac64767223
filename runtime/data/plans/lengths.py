"""Lengths of the rows on their time axes: read in parts, since there may be a billion rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ....specs.findings import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .plan import Rows

STRIDE = 1 << 20
"""Rows whose lengths are read at once."""


class RowValues(Protocol):
    """A value of each row, such as its length: an array, or what computes those of some rows."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def __getitem__(self, rows: Any, /) -> NDArray[Any]:
        """Return the values of the rows of a slice without a step, or with some numbers."""


class LengthSummary(NamedTuple):
    """What plans must know of all rows."""

    longest: tuple[int, ...]
    """Most positions of a row on each time axis."""
    means: tuple[float, ...]
    """Mean positions of a row on each time axis."""
    row: int
    """The first row with the most positions on any axis."""
    mean: float
    """Mean of the positions of a row on its longest axis."""

    def refuse_unfit(self, tokens: int) -> None:
        """Check that each row fits into a batch.

        Args:
            tokens: limit of the tokens of a batch.

        Raises:
            InputError: a row is longer, because no row is dropped.
        """
        most = max(self.longest)
        if most > tokens:
            raise InputError(
                f"{'pair' if len(self.longest) > 1 else 'row'} {self.row} has {most} tokens,"
                f" more than the batch limit of {tokens}",
                help=f"set batch tokens to at least {most},"
                f" or filter max_length to at most {tokens - 1}",
            )


def summarized(lengths: Iterable[RowValues]) -> LengthSummary:
    """Return what plans must know of the lengths of all rows on each time axis."""
    axes = list(lengths)
    rows = len(axes[0]) if axes else 0
    longest, totals = np.zeros(len(axes), np.int64), np.zeros(len(axes), np.int64)
    most = row = total = 0
    for start in range(0, rows, STRIDE):
        parts = [axis[start : start + STRIDE] for axis in axes]
        longest = np.maximum(longest, [part.max() for part in parts])
        totals += [part.sum(dtype=np.int64) for part in parts]
        widest = widest_of(parts)
        total += int(widest.sum(dtype=np.int64))
        if int(widest.max()) > most:
            most, row = int(widest.max()), start + int(widest.argmax())
    means = tuple(total / max(rows, 1) for total in totals.tolist())
    return LengthSummary(tuple(longest.tolist()), means, row, total / max(rows, 1))


def widest_of(lengths: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return the positions of each row on its longest axis."""
    widest = lengths[0]
    for other in lengths[1:]:
        widest = np.maximum(widest, other)
    return widest


def lengths_of(lengths: Iterable[RowValues], rows: Rows) -> Iterator[NDArray[np.int32]]:
    """Yield the positions of some rows on each time axis; each of shape (B,)."""
    for axis in lengths:
        part = np.empty(len(rows), dtype=np.int32)
        for start in range(0, len(rows), STRIDE):
            part[start : start + STRIDE] = axis[rows[start : start + STRIDE]]
        yield part
