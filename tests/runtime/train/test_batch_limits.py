"""Tests of advice on the size of batches on a GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from weft.runtime.train.checks.effects import batch_advice
from weft.runtime.train.plan import load_run
from weft.runtime.train.run import Run

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("tokens", "accumulate", "processes", "said"),
    [
        (3500, 8, 1, "'batch.tokens' 28000 and 'accumulate' 1 "),
        (3500, 8, 4, "'batch.tokens' 7000 and 'accumulate' 4 "),
        (3500, 24, 1, "'batch.tokens' 28000 and 'accumulate' 3 "),
        (3500, 8, 8, ""),
        (20000, 8, 1, ""),
        (3500, 1, 1, ""),
    ],
)
def test_small_batches_on_a_gpu_get_advice_with_the_same_tokens(
    tokens: int, accumulate: int, processes: int, said: str, toy_run: Callable[..., Run]
) -> None:
    """Batches of at most 32,768 tokens, an equal number for each process."""
    run = toy_run(batch={"tokens": tokens}, accumulate=accumulate)

    assert said in batch_advice(run, CUDA, processes)
    assert bool(batch_advice(run, CUDA, processes)) == bool(said)
    assert not batch_advice(run, CPU, processes)


def test_a_run_without_a_time_axis_gets_no_advice_on_tokens() -> None:
    """Its batches have rows and no tokens, so the setting would be an error."""
    run, _ = load_run("image-classification-digits", {"accumulate": 8})

    assert not batch_advice(run, CUDA, 1)
