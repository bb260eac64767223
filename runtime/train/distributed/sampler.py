"""Share: which batches of an update a process works on.

The order of the batches is that of one process, whatever their number: process r of n
takes those numbered r, r + n, r + 2n, ... of each update.  So an update holds the same
pairs, and each batch drops the same numbers, on one process and on many.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from ....specs.findings import InputError
from ...data.batches import Batch, collate, stream_rows
from ...data.settings import BatchSettings
from ...data.shards.corpus import Corpus

_APART = 0x9E3779B1
"""Odd, so that seeds of one update differ in their low 32 bits, which are all a CPU looks at."""


@dataclass(frozen=True, slots=True)
class MicroBatches:
    """One update, as one process sees it."""

    epoch: int
    """That of the last batch of the update, whoever works on it."""
    position: int
    """Batches of that epoch that are used after the update."""
    batches: tuple[tuple[int, Batch], ...]
    """Those of this process, each with its number in the update."""
    rounds: int
    """Most batches that one process has."""
    source_tokens: int
    """Of the whole update, end tokens counted, padding not."""
    target_tokens: int
    """Of the whole update; what the summed loss is divided by."""


def stream_micro_batches(
    corpus: Corpus,
    settings: BatchSettings,
    seed: int,
    *,
    accumulate: int,
    at: tuple[int, int] = (0, 0),
    pad: int,
    eos: int,
    share: tuple[int, int] = (0, 1),
) -> Iterator[MicroBatches]:
    """Yield the portions of one process without end, update after update.

    Only its own pairs are read; how many tokens the others have follows from lengths.

    Args:
        corpus: what to read.
        settings: bounds of a batch.
        seed: which shuffle.
        accumulate: batches in one update.
        at: where to begin: an epoch, from 0, and how many of its batches are used.
        pad: id that fills short rows.
        eos: id that ends each sentence.
        share: which process this is, and how many work on different batches.

    Raises:
        InputError: as `stream_rows`.
    """
    rows = stream_rows(corpus, settings, seed, epoch=at[0], position=at[1])
    which, data_parallel_size = share
    while True:
        update = list(islice(rows, accumulate))
        mine = range(which, accumulate, data_parallel_size)
        together = [each for _, _, each in update]
        yield MicroBatches(
            epoch=update[-1][0],
            position=update[-1][1],
            batches=tuple((n, collate(corpus, together[n], pad, eos)) for n in mine),
            rounds=-(-accumulate // data_parallel_size),
            source_tokens=sum(int(corpus.source_lengths[r].sum()) + len(r) for r in together),
            target_tokens=sum(int(corpus.target_lengths[r].sum()) + len(r) for r in together),
        )


def check_share(accumulate: int, data_parallel_size: int) -> str:
    """Return a warning when processes must wait for one another, or nothing.

    Raises:
        InputError: some would have nothing to do.
    """
    if data_parallel_size > accumulate:
        raise InputError(
            f"{data_parallel_size} processes are to share the {accumulate} batches of an update",
            place="/accumulate",
            help=f"set accumulate to a multiple of {data_parallel_size}, and batch.tokens to less:"
            " an update holds accumulate x batch.tokens, however many processes there are",
        )
    if accumulate % data_parallel_size:
        idle = data_parallel_size - accumulate % data_parallel_size
        return (
            f"warning: {accumulate} batches an update do not divide among"
            f" {data_parallel_size} processes; {idle} wait for the others at its end"
        )
    return ""


def seed_of(seed: int, update: int, batch: int) -> int:
    """Return what seeds the generators before one batch of an update.

    Args:
        seed: the run's.
        update: counts from 1.
        batch: its number in the update, from 0.
    """
    return (seed * 1_000_003 + update + batch * _APART) % (1 << 63)
