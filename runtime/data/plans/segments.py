"""Plans of segments: batches in which rows follow those of the batch before.

A document is divided into rows, its segments.  A batch has one row of each of several documents,
and the next batch has the next rows of these documents, so that state can be carried.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from ....specs.findings import InputError
from .plan import Plan, expanded

if TYPE_CHECKING:
    from numpy.random import Generator

    from ..settings import BatchSettings
    from .epochs import Documents


def plan_segments(
    documents: Documents, longest: int, settings: BatchSettings, random: Generator | None = None
) -> Plan:
    """Return batches of documents; every row occurs once.

    Documents are shuffled, and each is appended to the shortest of several sequences of rows, as
    many as rows fit into a batch.  Batch n has row n of each sequence; the last batches are
    smaller, where some sequences have ended.

    Args:
        documents: first row of each document, and the row after its last one.
        longest: most positions of a row.
        settings: limits of a batch.
        random: shuffles the documents; None keeps their order.

    Raises:
        InputError: a segment is longer than the token limit of a batch.
    """
    begins, ends = documents
    if not len(begins):
        return Plan.divided(np.empty(0, np.int64), np.empty(0, np.int64))
    if longest > settings.tokens:
        raise InputError(
            f"a segment has {longest} tokens, more than the batch limit of {settings.tokens}",
            location="/batch/tokens",
            help=f"set batch tokens to at least {longest}, or make the segments shorter",
        )
    capacity = settings.tokens // longest
    if settings.max_sentences is not None:
        capacity = min(capacity, settings.max_sentences)
    if random is not None:
        order = random.permutation(len(begins))
        begins, ends = begins[order], ends[order]
    sizes = ends - begins
    filled = [(0, lane) for lane in range(min(capacity, len(begins)))]
    sequences = np.empty(len(begins), dtype=np.int64)
    turns = np.empty(len(begins), dtype=np.int64)  # the batch of the first row of each document
    for document, size in enumerate(sizes.tolist()):
        turns[document], sequences[document] = count, lane = filled[0]
        heapq.heapreplace(filled, (count + size, lane))
    turn = expanded(turns, turns + sizes)
    rows = expanded(begins, ends)[np.lexsort((np.repeat(sequences, sizes), turn))]
    return Plan.divided(rows, np.cumsum(np.bincount(turn)))
