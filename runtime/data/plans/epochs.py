"""Rows of an epoch, in chunks: each is planned alone, so that memory does not grow with the data.

Data of at most `CHUNK` rows is one chunk: all rows, shuffled.  More rows are divided into blocks of
neighbors, the blocks are shuffled, and each chunk has as many of them as the others; its rows are
shuffled when it is planned.  So a chunk reads its part of the files alone, a page of memory is
needed in one chunk of an epoch, and rows of all sources meet in each chunk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .plan import expanded, generator

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.random import Generator
    from numpy.typing import NDArray

    from .lengths import RowValues
    from .mixture import Weights
    from .plan import Rows

CHUNK = 1 << 23
"""Rows that are planned at once; about 40 bytes of memory each."""
BLOCK = 1 << 10
"""Rows that stay in the same chunk."""
Documents = tuple["NDArray[np.int64]", "NDArray[np.int64]"]
"""First row of each document, and the row after its last one."""


class EpochRows:
    """Rows of one epoch, with repetitions; a pure function of the arguments."""

    def __init__(self, count: int, seed: int, epoch: int, weights: Weights = ()) -> None:
        """Shuffle the blocks of rows.

        Args:
            count: number of all rows.
            seed: seed of the shuffle; the same for all epochs.
            epoch: counts from 0.
            weights: rows and weight of each source; by default every row occurs once.
        """
        self._arguments = count, seed, epoch, weights
        self._blocks: NDArray[np.int64] | None = None
        self.chunks = 1
        """Number of chunks."""
        # The expected size, which is the same in all epochs.
        most = max(count, sum(rows * weight for rows, weight in weights))
        if most > CHUNK:
            blocks = rows_of_epoch(weights or [(count, 1.0)], seed, epoch, _blocks, _part)
            self._blocks = blocks[generator(seed, epoch).permutation(len(blocks))]
            self.chunks = max(1, -(-int((blocks[:, 1] - blocks[:, 0]).sum()) // CHUNK))

    def random(self, chunk: int) -> Generator:
        """Return the generator for the plan of a chunk."""
        _, seed, epoch, _ = self._arguments
        return generator(seed, epoch, *(() if self._blocks is None else (chunk + 1,)))

    def rows(self, chunk: int) -> Rows:
        """Return the rows of a chunk."""
        count, seed, epoch, weights = self._arguments
        if self._blocks is not None:
            return expanded(*self._ranges(self._blocks, chunk))
        return rows_of_epoch(weights, seed, epoch) if weights else np.arange(count)

    def documents(self, chunk: int, starts: RowValues) -> Documents:
        """Return the documents that begin in the blocks of a chunk.

        Args:
            chunk: number of the chunk.
            starts: whether each row begins a document; (rows,).
        """
        count = self._arguments[0]
        if self._blocks is None:
            return documents_of(starts[:])
        begins, ends = self._ranges(self._blocks, chunk)
        rows, blocks = expanded(begins, ends), np.repeat(np.arange(len(begins)), ends - begins)
        first = starts[rows]
        rows, blocks = rows[first], blocks[first]
        going_on = np.arange(len(ends))  # blocks that end within a document
        while len(going_on := going_on[ends[going_on] < count]):
            going_on = going_on[~starts[ends[going_on]]]
            ends[going_on] += 1
        last = np.append(blocks[1:] != blocks[:-1], True)[: len(rows)]
        return rows, np.where(last, ends[blocks], np.append(rows[1:], count)[: len(rows)])

    def _ranges(
        self, blocks: NDArray[np.int64], chunk: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where the blocks of a chunk begin and end, in the order of the rows."""
        first, last = (len(blocks) * number // self.chunks for number in (chunk, chunk + 1))
        part = blocks[first:last]
        part = part[np.argsort(part[:, 0], kind="stable")]
        return part[:, 0].copy(), part[:, 1].copy()


def documents_of(starts: NDArray[np.bool_]) -> Documents:
    """Return all documents, given whether each row begins one."""
    begins = np.flatnonzero(starts)
    return begins, np.append(begins[1:], len(starts))[: len(begins)]


def rows_of_epoch(
    weights: Weights,
    seed: int,
    epoch: int,
    divide: Callable[[int, int], Rows] = np.arange,
    part: Callable[[Rows, int, int], Rows] = lambda rows, start, stop: rows[start:stop],
) -> Rows:
    """Return the rows of one epoch, with repetitions; a pure function of its arguments.

    Args:
        weights: rows and weight of each source, in order.
        seed: decides which rows belong to which epoch where a weight is fractional.
        epoch: counts from 0.
        divide: divides the rows from one to another into units, such as blocks.
        part: returns some of the rows of units, counted over all of them, as units.
    """
    units, begin = [divide(0, 0)], 0
    for number, (count, weight) in enumerate(weights):
        copies, every = int(weight), divide(begin, begin + count)
        units += [every] * copies
        share = count * (weight - copies)
        first, last = round(epoch * share), round((epoch + 1) * share)
        if last > first:
            every = every[generator(seed, number).permutation(len(every))]
            start = first % count
            stop = start + last - first
            units += [part(every, start, min(stop, count)), part(every, 0, max(0, stop - count))]
        begin += count
    return np.concatenate(units)


def _blocks(begin: int, end: int) -> NDArray[np.int64]:
    """Divide a range of rows into blocks; (blocks, 2)."""
    begins = np.arange(begin, end, BLOCK)
    return np.stack([begins, np.minimum(begins + BLOCK, end)], axis=1)


def _part(blocks: NDArray[np.int64], start: int, stop: int) -> NDArray[np.int64]:
    """Return some of the rows of blocks, counted over all of them, as blocks."""
    ends = np.cumsum(blocks[:, 1] - blocks[:, 0])
    first, last = np.searchsorted(ends, start, side="right"), np.searchsorted(ends, stop) + 1
    if stop <= start:
        return blocks[:0]
    part = blocks[first:last].copy()
    part[0, 0] = part[0, 1] - (ends[first] - start)
    part[-1, 1] -= ends[last - 1] - stop
    return part
