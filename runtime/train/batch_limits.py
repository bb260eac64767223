"""What limits the batches of a run: tokens if a column has a time axis, and rows.

Also advice on the size of batches on a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..data.columns.settings import ClassSettings, ImageSettings, NumberSettings, TextSettings

if TYPE_CHECKING:
    import torch

    from .run import Run

_TIMELESS = (ClassSettings, ImageSettings, NumberSettings)
"""Columns without a time axis, so without tokens."""

FULL = 16_384
"""Tokens of a batch whose kernels take longer than their launches on current GPUs, about."""


def has_time_axis(run: Run) -> bool:
    """Return whether a column has a time axis, so that `batch.tokens` limits a batch."""
    return not all(isinstance(one, _TIMELESS) for one in run.data.columns.values())


def special_tokens(run: Run) -> int:
    """Return the largest number of special tokens that a text column adds to a text."""
    texts = [one for one in run.data.columns.values() if isinstance(one, TextSettings)]
    return max((one.begin + one.end for one in texts), default=0)


def longest_text(run: Run) -> int | None:
    """Return the tokens that a text may have, special tokens included; None without a limit."""
    longest = run.data.filter.max_length
    if longest is None:
        return None
    texts = [one for one in run.data.columns.values() if isinstance(one, TextSettings)]
    cut = min((one.max_length for one in texts if one.max_length is not None), default=None)
    longest += special_tokens(run)
    return longest if cut is None else min(longest, cut)


def batch_advice(run: Run, device: torch.device, processes: int) -> str:
    """Return a line about batches that are too small for a GPU, or "".

    Args:
        run: the run.
        device: device of the training.
        processes: data-parallel processes, which share the batches of an update.
    """
    tokens, batches = run.batch.tokens, run.accumulate
    if device.type != "cuda" or tokens >= FULL or not has_time_axis(run):
        return ""
    fewer = [
        count
        for count in range(processes, batches, processes)
        if batches % count == 0 and tokens * batches // count <= 2 * FULL
    ]
    if not fewer:
        return ""
    larger = tokens * batches // fewer[0]
    return (
        f"advice: a GPU is faster with larger batches: 'batch.tokens' {larger} and 'accumulate'"
        f" {fewer[0]} have the tokens of {tokens} and {batches} in an update"
    )
