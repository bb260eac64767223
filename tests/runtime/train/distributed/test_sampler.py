"""Tests of the distributed sampler: all processes together see the batches of one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from weft.runtime import api
from weft.runtime.data.settings import BatchSettings
from weft.runtime.data.table import Table
from weft.runtime.train.distributed.sampler import (
    MicroBatches,
    check_share,
    seed_of,
    stream_micro_batches,
)
from weft.runtime.train.plan import plan_run
from weft.runtime.train.run import Run
from weft.specs.findings import InputError

ACCUMULATE = 4
SETTINGS = BatchSettings(tokens=60, pool=3)


@pytest.fixture(scope="module")
def corpus(toy_run_module: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Return the prepared toy corpus."""
    return api.prepare_run(plan_run(toy_run_module(), ""), tmp_path_factory.mktemp("run")).train


def of(
    corpus: Table, which: int, data_parallel_size: int, at: tuple[int, int] = (0, 0)
) -> Iterator[MicroBatches]:
    """Return the micro-batches of one process."""
    return stream_micro_batches(
        corpus,
        SETTINGS,
        5,
        accumulate=ACCUMULATE,
        at=at,
        share=(which, data_parallel_size),
    )


@pytest.mark.parametrize("data_parallel_size", [2, 3, 4])
def test_processes_together_get_the_batches_of_one(corpus: Table, data_parallel_size: int) -> None:
    """The batches and their numbers are the same, also past the end of an epoch."""
    updates = 20
    alone = list(islice(of(corpus, 0, 1), updates))
    shared = [
        list(islice(of(corpus, which, data_parallel_size), updates))
        for which in range(data_parallel_size)
    ]

    assert alone[-1].epoch > 0
    for number, one in enumerate(alone):
        many = [each[number] for each in shared]
        together = sorted(
            ((n, batch.rows.tolist()) for part in many for n, batch in part.batches),
        )
        assert together == [(n, batch.rows.tolist()) for n, batch in one.batches]
        assert {(p.epoch, p.position, p.target_tokens, p.tokens["source"]) for p in many} == {
            (one.epoch, one.position, one.target_tokens, one.tokens["source"])
        }
        assert {p.rounds for p in many} == {max(len(p.batches) for p in many)}


def test_tokens_of_other_ranks_are_counted_without_reading_them(corpus: Table) -> None:
    """The token counts computed from lengths are those of the batches."""
    for micro_batches in islice(of(corpus, 0, 1), 8):
        batches = [batch for _, batch in micro_batches.batches]
        assert micro_batches.target_tokens == sum(batch.tokens["target"] for batch in batches)
        assert micro_batches.tokens["source"] == sum(batch.tokens["source"] for batch in batches)


def test_another_number_of_processes_continues_the_batches(corpus: Table) -> None:
    """Three updates by two processes, then by four, give the batches of one process."""
    alone = list(islice(of(corpus, 0, 1), 6))
    third = next(islice(of(corpus, 1, 2), 2, None))
    rest = [list(islice(of(corpus, w, 4, (third.epoch, third.position)), 3)) for w in range(4)]

    for number, one in enumerate(alone[3:]):
        rows = [batch.rows for each in rest for _, batch in each[number].batches]
        np.testing.assert_array_equal(
            np.concatenate(rows), np.concatenate([batch.rows for _, batch in one.batches])
        )


def test_batches_of_an_update_drop_different_numbers() -> None:
    """Seeds differ also in their low 32 bits, the only ones that a CPU generator uses."""
    seeds = {
        seed_of(seed, update, batch) % (1 << 32)
        for seed in (1, 2)
        for update in range(1, 2001)
        for batch in range(16)
    }

    assert len(seeds) == 2 * 2000 * 16


def test_the_first_batch_is_seeded_only_by_the_update() -> None:
    """Runs with one batch per update have the dropout that they had before updates were shared."""
    assert seed_of(7, 123, 0) == 7 * 1_000_003 + 123


def test_more_processes_than_batches_are_refused() -> None:
    """More processes than batches are an error that says how to fix it."""
    with pytest.raises(InputError, match="8 processes cannot share the 4 batches") as caught:
        check_share(4, 8)

    assert "set 'accumulate' to a multiple of 8" in caught.value.help
    assert check_share(4, 2) == ""
    assert "1 of them wait" in check_share(8, 3)


def test_dividing_layers_needs_processes(
    toy_run_module: Callable[..., Run], tmp_path: Path
) -> None:
    """`tensor` above 1 is an error without torchrun."""
    run = toy_run_module(parallel={"tensor": 2})

    with pytest.raises(InputError, match="'tensor' is 2, but there is only one process") as caught:
        api.train(run, out=tmp_path)

    assert "set 'parallel.processes' to 2" in caught.value.help
