"""Threads of a decoding step, by its work.

A step computes some 20 to 200 products, and torch wakes all its threads for each.  If the work of a
step is small, waking them takes as long as computing, and where other processes use the processor
too, each product waits for the thread that comes last.  One sentence, 30 tokens, a Transformer of
2.9 million weights, two cores that are shared with others: 0.105 CPU seconds and 0.45 seconds with
one thread, 2.68 and 11.2 with two.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

SMALL = 8_000_000
"""Most multiplications of a step that one thread computes: about half a millisecond."""
_CHANGING = threading.Lock()
"""Held while one thread of the process has changed the number, which is that of the process."""


@contextmanager
def threads_for(models: Sequence[nn.Module], rows: int) -> Iterator[None]:
    """Let torch use one thread within a context if a step of the models on the CPU is small.

    Args:
        models: the models, whose weights are each multiplied once for every row of a step.
        rows: rows of a step.
    """
    weights = [parameter for model in models for parameter in model.parameters()]
    small = rows * sum(weight.numel() for weight in weights) <= SMALL
    threads, on_cpu = torch.get_num_threads(), all(weight.is_cpu for weight in weights)
    if threads == 1 or not small or not on_cpu or not _CHANGING.acquire(blocking=False):
        yield
        return
    try:
        torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(threads)
        _CHANGING.release()
