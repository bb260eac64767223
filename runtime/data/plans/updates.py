"""Lengths in the updates of a training: whether an update mixes rows of several lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .plan import generator
from .planning import plan_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..settings import BatchSettings
    from .plan import Rows
    from .planning import Plannable


class UpdateLengths(NamedTuple):
    """Lengths on the last time axis in the updates of a training, such as those of targets."""

    axis: str
    rows: float
    """Median number of rows in an update."""
    tokens: float
    """Median number of tokens in an update, without padding."""
    distinct: float
    """Median number of distinct lengths in an update."""
    deviation: float
    """Median over updates of the standard deviation of the lengths in an update."""
    total: float
    """Standard deviation of the lengths of all rows."""

    @property
    def uniform(self) -> bool:
        """Whether an update holds rows of one length, or almost, of many in the data."""
        return self.rows > 1 and self.deviation < _UNIFORM * self.total

    def __str__(self) -> str:
        """Return one line."""
        return (
            f"an update: {self.rows:,.0f} rows, {self.tokens:,.0f} tokens of '{self.axis}';"
            f" distinct lengths {self.distinct:,.0f}, standard deviation {self.deviation:.2f}"
            f" (all rows: {self.total:.2f})"
        )


_UNIFORM = 0.1
"""Fraction of the standard deviation of all lengths below which those of an update are alike."""
SAMPLE = 200_000
"""Maximum number of rows from which batches are planned for an estimate."""


def sampled_rows(count: int, seed: int) -> Rows:
    """Return all rows of a table, or some at random if there are many."""
    if count <= SAMPLE:
        return np.arange(count)
    return np.random.default_rng(seed).integers(count, size=SAMPLE)


def lengths_in_updates(
    data: Plannable, settings: BatchSettings, seed: int, accumulate: int
) -> UpdateLengths | None:
    """Return the lengths in the updates of the first epoch; None without rows or time axes.

    Args:
        data: rows whose lengths determine the batches.
        settings: limits of a batch.
        seed: seed of the shuffle.
        accumulate: number of batches in one update.

    Raises:
        InputError: as for `plan_rows`.
    """
    axes = data.axes
    if not axes or not len(data) or data.starts is not None:
        return None
    some = sampled_rows(len(data), seed)
    lengths = {name: column_lengths[some] for name, column_lengths in axes.items()}
    batches = plan_rows([*lengths.values()], settings, generator(seed, 0), count=len(some))
    # An epoch may end within an update.
    groups = [batches[n : n + accumulate] for n in range(0, len(batches), accumulate)]
    name = "target" if "target" in axes else [*axes][-1]
    of_axis = lengths[name]
    updates = [of_axis[np.concatenate(group)] for group in groups]

    def median(measure: Callable[[Rows], Any]) -> float:
        return float(np.median([measure(update) for update in updates]))

    return UpdateLengths(
        axis=name,
        rows=median(len),
        tokens=median(np.sum),
        distinct=median(lambda update: len(np.unique(update))),
        deviation=median(np.std),
        total=float(of_axis.std()),
    )
