"""Plans of segments: batches in which rows follow those of the batch before.

A document is divided into rows, its segments.  A batch has one row of each of several documents,
and the next batch has the next rows of these documents, so that state can be carried.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...specs.findings import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .settings import BatchSettings


def plan_segments(
    starts: NDArray[np.bool_],
    lengths: Sequence[NDArray[np.int64]],
    settings: BatchSettings,
    at: tuple[int, int] | None = None,
) -> list[NDArray[np.int64]]:
    """Return the batches of one epoch; every row occurs once.

    Documents are shuffled, and each is appended to the shortest of several sequences of rows, as
    many as rows fit into a batch.  Batch n has row n of each sequence; the last batches are
    smaller, where some sequences have ended.

    Args:
        starts: whether each row begins a document; shape (rows,).
        lengths: positions of the rows on each time axis; each of shape (rows,).
        settings: limits of a batch.
        at: seed of the shuffle and epoch; None keeps the order of the documents.

    Raises:
        InputError: a segment is longer than the token limit of a batch.
    """
    if not len(starts):
        return []
    longest = max(int(column_lengths.max()) for column_lengths in lengths)
    if longest > settings.tokens:
        raise InputError(
            f"a segment has {longest} tokens, more than the batch limit of {settings.tokens}",
            location="/batch/tokens",
            help=f"set batch tokens to at least {longest}, or make the segments shorter",
        )
    capacity = settings.tokens // longest
    if settings.max_sentences is not None:
        capacity = min(capacity, settings.max_sentences)
    begins = np.flatnonzero(starts)
    ends = np.append(begins[1:], len(starts))
    order = np.arange(len(begins))
    if at is not None:
        # numpy seeds cannot be negative, torch seeds can.
        order = np.random.default_rng((at[0] % (1 << 64), at[1])).permutation(len(begins))
    filled = [(0, lane) for lane in range(min(capacity, len(begins)))]
    lanes: list[list[NDArray[np.int64]]] = [[] for _ in filled]
    for document in order.tolist():
        count, lane = heapq.heappop(filled)
        rows = np.arange(begins[document], ends[document])
        lanes[lane].append(rows)
        heapq.heappush(filled, (count + len(rows), lane))
    joined = [np.concatenate(lane) for lane in lanes]
    most = max(map(len, joined))
    return [np.array([lane[n] for lane in joined if n < len(lane)]) for n in range(most)]
