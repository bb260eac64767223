"""Plans of an epoch: which rows form a batch, from the lengths of the rows.

A plan is a pure function of (lengths, settings, seed, epoch), so the position in the data is two
numbers: the epoch, and the number of its batches already used.  The plan may differ between
versions of numpy, which does not guarantee that its random generators stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ...specs.findings import InputError
from .segments import plan_segments
from .shards.mixture import rows_of_epoch

if TYPE_CHECKING:
    from pathlib import Path

    from .settings import BatchSettings
    from .shards.mixture import Weights

Rows = NDArray[np.int64]
"""Row numbers."""
Lengths = Sequence[NDArray[np.int64]]
"""Positions of each row on each time axis, including special tokens."""
Cuts = tuple[tuple[int, int], ...]
"""Limits of tokens in an epoch, one after the other, and how many of its batches each limited."""
_WIDE = 1 << 31
"""Greater than any length; combines two lengths into one sort key."""


class Plannable(Protocol):
    """Rows with lengths, of which batches are planned."""

    folder: Path

    @property
    def starts(self) -> NDArray[np.bool_] | None:
        """Whether each row begins a document; None if rows are not segments of documents."""

    @property
    def axes(self) -> Mapping[str, NDArray[np.int64]]:
        """Positions of each row on each time axis, including special tokens."""

    def __len__(self) -> int:
        """Return the number of rows."""


def plan_rows(
    lengths: Lengths,
    settings: BatchSettings,
    seed: int,
    epoch: int,
    *,
    count: int,
    rows: Rows | None = None,
) -> list[Rows]:
    """Return the batches of one epoch, each an array of rows.

    Rows are shuffled, split into pools, sorted within each pool by the longest time axis and then
    by the difference of the first two, and split into batches; then the batches are shuffled.
    Pools of one batch are not sorted: batches are split from the shuffled rows.
    The difference is sorted alternately in ascending and descending order, so neighbors are also
    similar where the longest axis changes.  Rows without time axes are shuffled and split.

    Args:
        lengths: positions on each time axis; each of shape (count,).
        settings: limits of a batch.
        seed: seed of the shuffle; the same for all epochs.
        epoch: counts from 0.
        count: number of rows.
        rows: rows of the epoch, with repetitions where rows are oversampled; by default every
            row once.

    Raises:
        InputError: a row is longer than the token limit of a batch, because no row is dropped; or
            there is no time axis and no limit of rows.
    """
    if count == 0:
        return []
    refuse_no_limit(lengths, settings)
    # numpy seeds cannot be negative, torch seeds can.
    random = np.random.default_rng((seed % (1 << 64), epoch))
    if not lengths:
        order = random.permutation(count if rows is None else rows)
        return _split(order, settings.max_sentences or count)
    refuse_unfit_rows(lengths, settings.tokens)
    widest = _widest(lengths)
    order = random.permutation(count if rows is None else rows)
    if settings.pool == 1:
        return _cut(order, lengths, settings)
    per_batch = settings.tokens / float(widest.mean())
    if settings.max_sentences is not None:
        per_batch = min(per_batch, settings.max_sentences)
    size = max(1, round(settings.pool * per_batch))
    batches: list[Rows] = []
    for start in range(0, len(order), size):
        pool = order[start : start + size]
        pool = pool[_by_length([column_lengths[pool] for column_lengths in lengths])]
        batches += _cut(pool, lengths, settings)
    return [batches[index] for index in random.permutation(len(batches))]


def refuse_unfit_rows(lengths: Lengths, tokens: int) -> None:
    """Check that each row fits into a batch.

    Args:
        lengths: positions of the rows on each time axis; at least one row and one axis.
        tokens: limit of the tokens of a batch.

    Raises:
        InputError: a row is longer, because no row is dropped.
    """
    widest = _widest(lengths)
    longest = int(widest.max())
    if longest > tokens:
        pairs = len(lengths) > 1
        raise InputError(
            f"{'pair' if pairs else 'row'} {int(widest.argmax())} has {longest} tokens,"
            f" more than the batch limit of {tokens}",
            help=f"set batch tokens to at least {longest},"
            f" or filter max_length to at most {tokens - 1}",
        )


def plan_rows_in_order(lengths: Lengths, settings: BatchSettings, *, count: int) -> list[Rows]:
    """Return batches of all rows from short to long, deterministically.

    A row that exceeds the token limit becomes a batch of its own, because evaluation must not
    drop data.

    Raises:
        InputError: there is no time axis and no limit of rows.
    """
    if count == 0:
        return []
    refuse_no_limit(lengths, settings)
    if not lengths:
        return _split(np.arange(count), settings.max_sentences or count)
    order = _by_length(lengths).astype(np.int64)
    return _cut(order, lengths, settings)


def refuse_no_limit(lengths: Sequence[Any], settings: BatchSettings) -> None:
    """Check that something limits the size of a batch.

    Raises:
        InputError: there is no time axis, and `max_sentences` is not set or `tokens` is.
    """
    if lengths:
        return
    if settings.max_sentences is None:
        raise InputError(
            "no column has a time axis, so 'batch.tokens' does not limit a batch",
            location="/batch",
            help="set batch.max_sentences to the number of rows of a batch",
        )


class PlannedBatch(NamedTuple):
    """A batch of a training, and where it is in the data."""

    epoch: int
    position: int
    """Number of batches of the epoch that are used, including this one."""
    rows: Rows
    cuts: Cuts
    """Limits of tokens of the epoch so far, and how many of its batches each limited, including
    this one."""


def stream_plans(
    data: Plannable,
    settings: BatchSettings,
    seed: int,
    *,
    epoch: int = 0,
    position: int = 0,
    cuts: Cuts = (),
    weights: Weights = (),
    limits: Iterator[int] | None = None,
) -> Iterator[PlannedBatch]:
    """Yield batches indefinitely, epoch after epoch, without reading the rows.

    Where the limit of tokens changes, the rows of the epoch that are not used are planned again.
    When called with a place that it yielded before, it resumes with the batch that followed.

    Args:
        data: rows whose lengths determine the batches.
        settings: limits of a batch.
        seed: seed of the shuffle.
        epoch: first epoch; counts from 0.
        position: number of batches of that epoch that are already used.
        cuts: limits of these batches; by default that of the first batch that follows.
        weights: rows and weight of each source; by default every row occurs once in an epoch.
        limits: limit of the tokens of each batch; by default that of `settings`.

    Raises:
        InputError: there are no rows, a row does not fit, the epoch has fewer batches than
            `position`, or the limit changes between segments of documents.
    """
    if len(data) == 0:
        raise InputError(
            "no pairs to train on",
            location=str(data.folder),
            help="check the filter's report; relax the filter or use other files",
        )
    plan: list[Rows] | None = None
    used, limit = 0, settings.tokens
    for tokens in repeat(settings.tokens) if limits is None else limits:
        while plan is None or used == len(plan):
            if plan is not None:
                epoch, position, cuts = epoch + 1, 0, ()
            cuts = cuts or ((tokens, position),)
            plan, (limit, used) = _unused(data, settings, (seed, epoch), weights, cuts), cuts[-1]
        if tokens != limit:
            plan = _planned(data, settings, (seed, epoch), tokens, np.concatenate(plan[used:]))
            cuts, limit, used = (*cuts, (tokens, 0)), tokens, 0
        used, position = used + 1, position + 1
        cuts = (*cuts[:-1], (limit, used))
        yield PlannedBatch(epoch, position, plan[used - 1], cuts)


def _unused(
    data: Plannable,
    settings: BatchSettings,
    at: tuple[int, int],
    weights: Weights,
    cuts: Cuts,
) -> list[Rows]:
    """Return the batches of an epoch that were planned last, with those that are used.

    Args:
        data: rows whose lengths determine the batches.
        settings: limits of a batch.
        at: seed of the shuffle, and the epoch.
        weights: rows and weight of each source.
        cuts: limits of the epoch so far, and how many batches of each are used.

    Raises:
        InputError: as for `stream_plans`.
    """
    rows, plan = rows_of_epoch(weights, *at) if weights else None, list[Rows]()
    for number, (tokens, used) in enumerate(cuts):
        plan = _planned(data, settings, at, tokens, rows)
        if used > len(plan):
            raise InputError(
                f"cannot resume at batch {used}: epoch {at[1]} has {len(plan)} batches",
                location=str(data.folder),
                help="resume with the data and batch settings of the original run",
            )
        if number < len(cuts) - 1:
            rows = np.concatenate(plan[used:])
    return plan


def _planned(
    data: Plannable,
    settings: BatchSettings,
    at: tuple[int, int],
    tokens: int,
    rows: Rows | None,
) -> list[Rows]:
    """Return the batches of rows with a limit of tokens; arguments as of `_unused`.

    Raises:
        InputError: as for `stream_plans`.
    """
    lengths = list(data.axes.values())
    settings = settings.model_copy(update={"tokens": tokens})
    if data.starts is None:
        return plan_rows(lengths, settings, *at, count=len(data), rows=rows)
    if rows is not None:
        raise InputError(
            f"the limit of a batch changes to {tokens} tokens within an epoch, but documents"
            " continue from batch to batch",
            location="/batch/tokens",
            help="train with one limit",
        )
    return plan_segments(data.starts, lengths, settings, at)


def _widest(lengths: Lengths) -> NDArray[np.int64]:
    widest = lengths[0]
    for other in lengths[1:]:
        widest = np.maximum(widest, other)
    return widest


def _by_length(lengths: Lengths) -> NDArray[np.intp]:
    """Sort by the longest axis, then by the difference of two, alternately up and down."""
    widest = _widest(lengths)
    difference = lengths[0] - lengths[1] if len(lengths) > 1 else np.zeros_like(widest)
    ties = np.where(widest % 2 == 0, difference, -difference)
    return np.argsort(widest * _WIDE + ties, kind="stable")


def _split(rows: Rows, size: int) -> list[Rows]:
    """Split rows into batches of `size` rows; the last one may have fewer."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _cut(rows: Rows, lengths: Lengths, settings: BatchSettings) -> list[Rows]:
    """Split rows into batches in the given order, each as large as the limits allow.

    Args:
        rows: rows in the order in which they are split.
        lengths: positions of all rows on each time axis.
        settings: limits; a single row that exceeds them becomes a batch of its own.
    """
    ends = _ends_of_real if settings.count == "real" else _ends_of_padded
    most = len(rows) if settings.max_sentences is None else settings.max_sentences
    end_of = ends([column_lengths[rows] for column_lengths in lengths], settings.tokens)
    batches, start = [], 0
    while start < len(rows):
        end = max(start + 1, min(start + most, end_of(start)))
        batches.append(rows[start:end])
        start = end
    return batches


def _ends_of_real(lengths: Lengths, tokens: int) -> Callable[[int], int]:
    """Return the end of the largest batch from a row on, whose lengths add up to a limit."""
    sums = [np.cumsum(column_lengths) for column_lengths in lengths]

    def end_of(start: int) -> int:
        before = [int(total[start - 1]) if start else 0 for total in sums]
        return min(
            int(np.searchsorted(total, done + tokens, side="right"))
            for total, done in zip(sums, before, strict=True)
        )

    return end_of


def _ends_of_padded(lengths: Lengths, tokens: int) -> Callable[[int], int]:
    """Return the end of the largest batch from a row on, whose rows * longest are in a limit."""
    widest = _widest(lengths)

    def end_of(start: int) -> int:
        rows = max(1, tokens // int(widest[start]))
        while True:
            longest = np.maximum.accumulate(widest[start : start + rows])
            fits = int(np.count_nonzero(longest * np.arange(1, len(longest) + 1) <= tokens))
            if fits < rows:
                return start + fits
            rows *= 2  # a row after a long first one may be shorter

    return end_of


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
    axes = dict(data.axes)
    if not axes or not len(data) or data.starts is not None:
        return None
    some = sampled_rows(len(data), seed)
    lengths = [column_lengths[some] for column_lengths in axes.values()]
    batches = plan_rows(lengths, settings, seed, 0, count=len(some))
    # An epoch may end within an update.
    groups = [batches[n : n + accumulate] for n in range(0, len(batches), accumulate)]
    name = "target" if "target" in axes else [*axes][-1]
    of_axis = axes[name][some]
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
