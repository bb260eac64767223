"""Plans of an epoch: which rows form a batch, from the lengths of the rows.

A plan is a pure function of (lengths, settings, seed, epoch, chunk), so the position in the data is
three numbers: the epoch, the chunk, and the number of its batches already used.  The plan may
differ between versions of numpy, which does not guarantee that its random generators stay the same.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ....specs.findings import InputError
from .epochs import EpochRows
from .lengths import LengthSummary, lengths_of, summarized, widest_of
from .plan import Plan, Rows
from .segments import plan_segments

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.random import Generator

    from ..settings import BatchSettings
    from .lengths import RowValues
    from .mixture import Weights

Lengths = Sequence[NDArray[Any]]
"""Positions of some rows on each time axis, including special tokens."""
Cuts = tuple[tuple[int, int], ...]
"""Limits of tokens in a chunk, one after the other, and how many of its batches each limited."""
_WIDE = 1 << 31
"""Greater than any length; combines two lengths into one sort key."""


class Plannable(Protocol):
    """Rows with lengths, of which batches are planned."""

    folder: Path

    @property
    def starts(self) -> RowValues | None:
        """Whether each row begins a document; None if rows are not segments of documents."""

    @property
    def axes(self) -> Mapping[str, RowValues]:
        """Positions of each row on each time axis, including special tokens."""

    @property
    def summary(self) -> LengthSummary:
        """What plans must know of the lengths of all rows."""

    def __len__(self) -> int:
        """Return the number of rows."""


def plan_rows(
    lengths: Lengths,
    settings: BatchSettings,
    random: Generator,
    *,
    count: int,
    summary: LengthSummary | None = None,
) -> Plan:
    """Return the batches of some rows, each an array of their numbers.

    Rows are shuffled, split into pools, sorted within each pool by the longest time axis and then
    by the difference of the first two, and split into batches; then the batches are shuffled.
    Pools of one batch are not sorted: batches are split from the shuffled rows.
    The difference is sorted alternately in ascending and descending order, so neighbors are also
    similar where the longest axis changes.  Rows without time axes are shuffled and split.

    Args:
        lengths: positions on each time axis; each of shape (count,).
        settings: limits of a batch.
        random: shuffles the rows and the batches.
        count: number of rows.
        summary: of the lengths of all rows of the data, if these are some of them.

    Raises:
        InputError: a row is longer than the token limit of a batch, because no row is dropped; or
            there is no time axis and no limit of rows.
    """
    if count == 0:
        return _split(np.empty(0, np.int64), 1)
    refuse_no_limit(lengths, settings)
    if not lengths:
        return _split(random.permutation(count), settings.max_sentences or count)
    summary = summary or summarized(lengths)
    summary.refuse_unfit(settings.tokens)
    order = random.permutation(count)
    if settings.pool == 1:
        return Plan.divided(order, _cut(order, lengths, settings))
    per_batch = settings.tokens / summary.mean
    if settings.max_sentences is not None:
        per_batch = min(per_batch, settings.max_sentences)
    size = max(1, round(settings.pool * per_batch))
    ends: list[NDArray[np.int64]] = []
    for start in range(0, count, size):
        pool = order[start : start + size]
        pool[:] = pool[_by_length([column_lengths[pool] for column_lengths in lengths])]
        ends.append(start + _cut(pool, lengths, settings))
    return Plan.divided(order, np.concatenate(ends)).shuffled(random)


def plan_rows_in_order(lengths: Lengths, settings: BatchSettings, *, count: int) -> Plan:
    """Return batches of all rows from short to long, deterministically.

    A row that exceeds the token limit becomes a batch of its own, because evaluation must not
    drop data.

    Raises:
        InputError: there is no time axis and no limit of rows.
    """
    if count == 0:
        return _split(np.empty(0, np.int64), 1)
    refuse_no_limit(lengths, settings)
    if not lengths:
        return _split(np.arange(count), settings.max_sentences or count)
    order = _by_length(lengths).astype(np.int64)
    return Plan.divided(order, _cut(order, lengths, settings))


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


class DataPosition(NamedTuple):
    """A position in the data of a training, between two batches."""

    epoch: int = 0
    """Counts from 0."""
    chunk: int = 0
    """Number of chunks of the epoch that are used."""
    batches: int = 0
    """Number of batches of the chunk that are used."""
    cuts: Cuts = ()
    """Limits of tokens of these batches, and how many each limited; by default, that of the first
    batch that follows limited all."""


START = DataPosition()
"""The beginning of the data."""


class PlannedBatch(NamedTuple):
    """A batch of a training."""

    at: DataPosition
    """The position after it."""
    rows: Rows


def stream_plans(
    data: Plannable,
    settings: BatchSettings,
    seed: int,
    *,
    at: DataPosition = START,
    weights: Weights = (),
    limits: Iterator[int] | None = None,
) -> Iterator[PlannedBatch]:
    """Yield batches indefinitely, epoch after epoch, without reading the rows.

    Where the limit of tokens changes, the rows of the chunk that are not used are planned again.
    When called with a position that it yielded before, it resumes with the batch that followed.

    Args:
        data: rows whose lengths determine the batches.
        settings: limits of a batch.
        seed: seed of the shuffle.
        at: where to begin.
        weights: rows and weight of each source; by default every row occurs once in an epoch.
        limits: limit of the tokens of each batch; by default that of `settings`.

    Raises:
        InputError: there are no rows, a row does not fit, the position is not in the data, or the
            limit changes between segments of documents.
    """
    if len(data) == 0:
        raise InputError(
            "no pairs to train on",
            location=str(data.folder),
            help="check the filter's report; relax the filter or use other files",
        )
    epoch, chunk, batches, cuts = at
    of_epoch = EpochRows(len(data), seed, epoch, weights)
    plan: Plan | None = None
    used, limit = 0, settings.tokens
    for tokens in repeat(settings.tokens) if limits is None else limits:
        while plan is None or used == len(plan):
            if plan is not None:
                chunk, batches, cuts, plan = chunk + 1, 0, (), None
                if chunk == of_epoch.chunks:
                    epoch, chunk = epoch + 1, 0
                    of_epoch = EpochRows(len(data), seed, epoch, weights)
            cuts = cuts or ((tokens, batches),)
            start = DataPosition(epoch, chunk, batches, cuts)
            plan, (limit, used) = _resumed(data, settings, of_epoch, start), cuts[-1]
        if tokens != limit:
            plan = _planned(data, settings, of_epoch, chunk, tokens, plan.unused(used))
            cuts, limit, used = (*cuts, (tokens, 0)), tokens, 0
        used, batches = used + 1, batches + 1
        cuts = (*cuts[:-1], (limit, used))
        yield PlannedBatch(DataPosition(epoch, chunk, batches, cuts), plan[used - 1])


def _resumed(
    data: Plannable, settings: BatchSettings, of_epoch: EpochRows, at: DataPosition
) -> Plan:
    """Return the batches of a chunk that were planned last, with those that are used.

    Args:
        data: rows whose lengths determine the batches.
        settings: limits of a batch.
        of_epoch: rows of the epoch.
        at: the position, with the limits of the chunk so far.

    Raises:
        InputError: as for `stream_plans`.
    """
    again = "resume with the data and batch settings of the original run"
    if at.chunk >= of_epoch.chunks:
        raise InputError(
            f"cannot resume in chunk {at.chunk}: epoch {at.epoch} has {of_epoch.chunks} chunks",
            location=str(data.folder),
            help=again,
        )
    rows: Rows | None = None
    for number, (tokens, used) in enumerate(at.cuts, 1):
        plan = _planned(data, settings, of_epoch, at.chunk, tokens, rows)
        if used > len(plan):
            raise InputError(
                f"cannot resume at batch {used}: epoch {at.epoch} has {len(plan)} batches",
                location=str(data.folder),
                help=again,
            )
        if number < len(at.cuts):
            rows = plan.unused(used)
    return plan


def _planned(
    data: Plannable,
    settings: BatchSettings,
    of_epoch: EpochRows,
    chunk: int,
    tokens: int,
    rows: Rows | None,
) -> Plan:
    """Return the batches of a chunk with a limit of tokens.

    Args:
        data: rows whose lengths determine the batches.
        settings: limits of a batch.
        of_epoch: rows of the epoch.
        chunk: number of the chunk.
        tokens: limit of the tokens.
        rows: rows of the chunk; None is all.

    Raises:
        InputError: as for `stream_plans`.
    """
    settings, random = settings.model_copy(update={"tokens": tokens}), of_epoch.random(chunk)
    if data.starts is None:
        rows = of_epoch.rows(chunk) if rows is None else rows
        lengths = [*lengths_of(data.axes.values(), rows)]
        plan = plan_rows(lengths, settings, random, count=len(rows), summary=data.summary)
        return plan.of(rows)
    if rows is not None:
        raise InputError(
            f"the limit of a batch changes to {tokens} tokens within an epoch, but documents"
            " continue from batch to batch",
            location="/batch/tokens",
            help="train with one limit",
        )
    documents = of_epoch.documents(chunk, data.starts)
    return plan_segments(documents, max(data.summary.longest), settings, random)


def _by_length(lengths: Lengths) -> NDArray[np.intp]:
    """Sort by the longest axis, then by the difference of two, alternately up and down."""
    widest = widest_of(lengths)
    difference = lengths[0] - lengths[1] if len(lengths) > 1 else np.zeros_like(widest)
    ties = np.where(widest % 2 == 0, difference, -difference)
    return np.argsort(widest.astype(np.int64) * _WIDE + ties, kind="stable")


def _split(rows: Rows, size: int) -> Plan:
    """Split rows into batches of `size` rows; the last one may have fewer."""
    ends = np.arange(size, len(rows) + size, size)
    return Plan.divided(rows, np.minimum(ends, len(rows)))


def _cut(rows: Rows, lengths: Lengths, settings: BatchSettings) -> NDArray[np.int64]:
    """Return where batches end that split rows in the given order, as large as the limits allow.

    Args:
        rows: rows in the order in which they are split.
        lengths: positions of all rows on each time axis.
        settings: limits; a single row that exceeds them becomes a batch of its own.
    """
    end_after = _ends_of_real if settings.count == "real" else _ends_of_padded
    most = len(rows) if settings.max_sentences is None else settings.max_sentences
    end_of = end_after([column_lengths[rows] for column_lengths in lengths], settings.tokens)
    ends, end = array("q"), 0
    while end < len(rows):
        end = max(end + 1, min(end + most, end_of(end)))
        ends.append(end)
    return np.array(ends, dtype=np.int64)


def _ends_of_real(lengths: Lengths, tokens: int) -> Callable[[int], int]:
    """Return the end of the largest batch from a row on, whose lengths add up to a limit."""
    sums = [np.cumsum(column_lengths, dtype=np.int64) for column_lengths in lengths]

    def end_of(start: int) -> int:
        before = [int(total[start - 1]) if start else 0 for total in sums]
        return min(
            int(np.searchsorted(total, done + tokens, side="right"))
            for total, done in zip(sums, before, strict=True)
        )

    return end_of


def _ends_of_padded(lengths: Lengths, tokens: int) -> Callable[[int], int]:
    """Return the end of the largest batch from a row on, whose rows * longest are in a limit."""
    widest = widest_of(lengths)

    def end_of(start: int) -> int:
        rows = max(1, tokens // int(widest[start]))
        while True:
            longest = np.maximum.accumulate(widest[start : start + rows])
            fits = int(np.count_nonzero(longest * np.arange(1, len(longest) + 1) <= tokens))
            if fits < rows:
                return start + fits
            rows *= 2  # a row after a long first one may be shorter

    return end_of
