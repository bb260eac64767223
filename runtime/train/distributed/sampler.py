"""Distributed sampler: assigns the batches of an update to data-parallel ranks.

The order of the batches does not depend on the number of processes: rank r of n takes the
batches numbered r, r + n, r + 2n, ... of each update.  So an update contains the same pairs,
and each batch gets the same dropout, on one process and on many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice, repeat

import torch

from ....specs.findings import InputError
from ...data.plans.mixture import MixtureStage
from ...data.plans.plan import Rows
from ...data.plans.planning import START, DataPosition, plan_rows_in_order, stream_plans
from ...data.settings import BatchSettings
from ...data.table import Batch, Table

_APART = 0x9E3779B1
"""Odd, so that seeds of one update differ in their low 32 bits, the only ones a CPU uses."""


@dataclass(frozen=True, slots=True)
class MicroBatches:
    """The batches of one update that belong to one process."""

    at: DataPosition
    """Position in the data after the update, on all processes."""
    batches: tuple[tuple[int, Batch], ...]
    """The batches of this process, each with its number in the update; a batch that noise makes
    larger than its limit is in parts, with numbers after those of the other batches."""
    rounds: int
    """Largest number of batches of one process; with parts, processes have others."""
    tokens: Mapping[str, int]
    """Positions of the update on each time axis on all processes, including end tokens, without
    padding."""

    def to(self, device: torch.device) -> MicroBatches:
        """Return the batches on another device."""
        moved = tuple((n, batch.to(device, non_blocking=True)) for n, batch in self.batches)
        return replace(self, batches=moved)

    @property
    def target_tokens(self) -> int:
        """Positions of the axis `target`, or of the last axis, on all processes."""
        last = next(reversed(list(self.tokens.values())), 0)
        return self.tokens.get("target", last)


def stream_micro_batches(  # noqa: PLR0913 - all by name but three
    data: Table,
    settings: BatchSettings,
    seed: int,
    *,
    accumulate: int | Iterable[int],
    tokens: Iterable[int] | None = None,
    at: DataPosition = START,
    share: tuple[int, int] = (0, 1),
    pin: bool = False,
    stages: Sequence[MixtureStage] = (MixtureStage(),),
) -> Iterator[MicroBatches]:
    """Yield the batches of one process for each update, without end.

    Only the rows of this process are read; the token counts of the others follow from the
    stored lengths.

    Args:
        data: rows to read.
        settings: bounds of a batch.
        seed: seed of the shuffle, and of the sub-word sampling of a table.
        accumulate: number of batches in one update, over all processes, or that of each update.
        tokens: limit of the tokens of a batch in each update; by default that of `settings`.
        at: where to begin.
        share: data-parallel rank of this process, and number of data-parallel ranks.
        pin: whether the batches are in pinned memory, for a GPU.
        stages: weights of the sources in the updates that follow, the last one without end.

    Raises:
        InputError: as for `stream_plans`.
    """

    def read(after: DataPosition, rows: Rows, limit: int) -> Iterator[Batch]:
        """Yield the batch of rows, in parts if noise makes it larger than its limit."""
        parts, epoch = [rows], after.epoch
        if data.samples and data.starts is None:
            lengths = [*data.sampled_lengths(rows, (seed, epoch)).values()]
            size = settings.model_copy(update={"tokens": limit})
            parts = [rows[part] for part in plan_rows_in_order(lengths, size, count=len(rows))]
            parts = parts if len(parts) > 1 else [rows]
        for part in parts:
            batch = data.batch(part, noise=(seed, epoch))
            yield batch.pinned() if pin else batch

    rank, data_parallel_size = share
    sizes = repeat(accumulate) if isinstance(accumulate, int) else iter(accumulate)
    limits = repeat(settings.tokens) if tokens is None else iter(tokens)
    per_batch: deque[int] = deque()
    for stage in stages:
        if stage.begins:
            at = DataPosition(at.epoch + 1)
        plans = stream_plans(
            data,
            settings,
            seed,
            at=at,
            weights=stage.weights,
            limits=iter(per_batch.popleft, None),
        )
        for _ in count() if stage.updates is None else range(stage.updates):
            size = next(sizes)
            limit = next(limits)
            per_batch.extend([limit] * size)
            batches = list(islice(plans, size))
            at = batches[-1].at
            mine = range(rank, size, data_parallel_size)
            yield MicroBatches(
                at=at,
                batches=(
                    parts := tuple(
                        (n + part * size, batch)
                        for n in mine
                        for part, batch in enumerate(read(*batches[n], limit))
                    )
                ),
                rounds=max(len(parts), -(-size // data_parallel_size)),
                tokens={
                    name: sum(int(lengths[batch.rows].sum()) for batch in batches)
                    for name, lengths in data.axes.items()
                },
            )


def check_share(accumulate: int, data_parallel_size: int) -> str:
    """Return a warning if the batches do not divide evenly among processes, otherwise "".

    Raises:
        InputError: there are more processes than batches.
    """
    if data_parallel_size > accumulate:
        raise InputError(
            f"{data_parallel_size} processes cannot share the {accumulate} batches of an update",
            location="/accumulate",
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
