"""Batches as arrays of rows, one after the other, and where each batch begins and ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from numpy.random import Generator

Rows = NDArray[np.int64]
"""Row numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan(Sequence[Rows]):
    """Batches of rows: three arrays, however many batches there are."""

    rows: Rows
    """Rows of all batches."""
    begins: NDArray[np.int64]
    """Where each batch begins; (batches,)."""
    ends: NDArray[np.int64]
    """Where each batch ends."""

    @classmethod
    def divided(cls, rows: Rows, ends: NDArray[np.int64]) -> Plan:
        """Return rows in batches, given where each ends and the next one begins."""
        return cls(rows, np.append(0, ends[:-1])[: len(ends)], ends)

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self.ends)

    @overload
    def __getitem__(self, number: int) -> Rows: ...
    @overload
    def __getitem__(self, number: slice) -> list[Rows]: ...
    def __getitem__(self, number: int | slice) -> Rows | list[Rows]:
        """Return the rows of a batch, or those of each of several batches."""
        if isinstance(number, slice):
            return [self[n] for n in range(*number.indices(len(self)))]
        return self.rows[self.begins[number] : self.ends[number]]

    def shuffled(self, random: Generator) -> Plan:
        """Return the batches in another order."""
        order = random.permutation(len(self))
        return Plan(self.rows, self.begins[order], self.ends[order])

    def of(self, rows: Rows) -> Plan:
        """Return the same batches of other rows, of which these are the numbers."""
        return Plan(rows[self.rows], self.begins, self.ends)

    def unused(self, used: int) -> Rows:
        """Return the rows of the batches after the first ones, in the order of the batches."""
        return self.rows[expanded(self.begins[used:], self.ends[used:])]


def generator(seed: int, *numbers: int) -> Generator:
    """Return the random generator of a seed and numbers, such as that of the epoch."""
    # numpy seeds cannot be negative, torch seeds can.
    return np.random.default_rng((seed % (1 << 64), *numbers))


def expanded(begins: NDArray[Any], ends: NDArray[Any]) -> Rows:
    """Return the numbers in ranges, one range after the other.

    >>> expanded(np.array([3, 8]), np.array([5, 11])).tolist()
    [3, 4, 8, 9, 10]
    """
    sizes = ends - begins
    after = np.cumsum(sizes)
    numbers: Rows = np.arange(after[-1] if len(after) else 0)
    numbers += np.repeat(begins - (after - sizes), sizes)
    return numbers
