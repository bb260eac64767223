"""Distributed sampler: assigns the batches of an update to data-parallel ranks.

The order of the batches does not depend on the number of processes: rank r of n takes the
batches numbered r, r + n, r + 2n, ... of each update.  So an update contains the same pairs,
and each batch gets the same dropout, on one process and on many.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from ....specs.findings import InputError
from ...data.batches import Batch as Pairs
from ...data.batches import collate, stream_rows
from ...data.planning import stream_plans
from ...data.settings import BatchSettings
from ...data.shards.corpus import Corpus
from ...data.table import Batch, Table

_APART = 0x9E3779B1
"""Odd, so that seeds of one update differ in their low 32 bits, the only ones a CPU uses."""


@dataclass(frozen=True, slots=True)
class MicroBatches:
    """The batches of one update that belong to one process."""

    epoch: int
    """Epoch of the last batch of the update, on any process."""
    position: int
    """Number of batches of that epoch that are used after the update."""
    batches: tuple[tuple[int, Pairs | Batch], ...]
    """The batches of this process, each with its number in the update."""
    rounds: int
    """Largest number of batches of one process."""
    source_tokens: int
    """Source tokens of the update on all processes, including end tokens, without padding."""
    target_tokens: int
    """Target tokens of the update on all processes; the summed loss is divided by them."""


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
    """Yield the batches of one process for each update, without end.

    Only the pairs of this process are read; the token counts of the others follow from the
    stored lengths.

    Args:
        corpus: corpus to read.
        settings: bounds of a batch.
        seed: seed of the shuffle.
        accumulate: number of batches in one update, over all processes.
        at: start position: the epoch, from 0, and the number of its batches already used.
        pad: padding id.
        eos: id that ends each sentence.
        share: data-parallel rank of this process, and number of data-parallel ranks.

    Raises:
        InputError: as for `stream_rows`.
    """
    rows = stream_rows(corpus, settings, seed, epoch=at[0], position=at[1])
    rank, data_parallel_size = share
    while True:
        update = list(islice(rows, accumulate))
        mine = range(rank, accumulate, data_parallel_size)
        batches = [rows_of_batch for _, _, rows_of_batch in update]
        yield MicroBatches(
            epoch=update[-1][0],
            position=update[-1][1],
            batches=tuple((n, collate(corpus, batches[n], pad, eos)) for n in mine),
            rounds=-(-accumulate // data_parallel_size),
            source_tokens=sum(int(corpus.source_lengths[r].sum()) + len(r) for r in batches),
            target_tokens=sum(int(corpus.target_lengths[r].sum()) + len(r) for r in batches),
        )


def check_share(accumulate: int, data_parallel_size: int) -> str:
    """Return a warning if the batches do not divide evenly among processes, otherwise "".

    Raises:
        InputError: there are more processes than batches.
    """
    if data_parallel_size > accumulate:
        raise InputError(
            f"{data_parallel_size} processes cannot share the {accumulate} batches of an update",
            place="/accumulate",
            help=f"set 'accumulate' to a multiple of {data_parallel_size} and reduce"
            " 'batch.tokens': an update has accumulate x batch.tokens tokens, whatever the number"
            " of processes",
        )
    if accumulate % data_parallel_size:
        idle = data_parallel_size - accumulate % data_parallel_size
        return (
            f"warning: the {accumulate} batches of an update do not divide evenly among"
            f" {data_parallel_size} processes; {idle} of them wait at the end of each update"
        )
    return ""


def seed_of(seed: int, update: int, batch: int) -> int:
    """Return the seed of the random number generators for one batch of an update.

    Args:
        seed: seed of the run.
        update: number of the update, from 1.
        batch: number of the batch in the update, from 0.
    """
    return (seed * 1_000_003 + update + batch * _APART) % (1 << 63)


def stream_table_micro_batches(
    table: Table,
    settings: BatchSettings,
    seed: int,
    *,
    accumulate: int,
    at: tuple[int, int] = (0, 0),
    share: tuple[int, int] = (0, 1),
) -> Iterator[MicroBatches]:
    """Yield the batches of one process for each update, without end, from a table of columns.

    The arguments are those of `stream_micro_batches`.  The last time axis counts as the target.

    Raises:
        InputError: as for `stream_plans`.
    """
    plans = stream_plans(table, settings, seed, epoch=at[0], position=at[1])
    rank, data_parallel_size = share
    while True:
        update = list(islice(plans, accumulate))
        mine = range(rank, accumulate, data_parallel_size)
        tokens = [[*table.tokens(rows).values()] or [len(rows)] for _, _, rows in update]
        yield MicroBatches(
            epoch=update[-1][0],
            position=update[-1][1],
            batches=tuple((n, table.batch(update[n][2], noise=(seed, update[n][0]))) for n in mine),
            rounds=-(-accumulate // data_parallel_size),
            source_tokens=sum(sum(counts[:-1]) for counts in tokens),
            target_tokens=sum(counts[-1] for counts in tokens),
        )
