"""Metrics accumulated between two reports of a training."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..distributed.sampler import MicroBatches


@dataclass(slots=True)
class Window:
    """Metrics accumulated since the last report."""

    sums: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    """Loss, nll, auxiliary loss and further values per item, summed over updates; on the device of
    the first update."""
    updates: int = 0
    tokens: int = 0
    """Positions on all time axes."""
    target_tokens: int = 0
    waited: float = 0.0
    """Seconds spent waiting for the next batches."""
    since: float = field(default_factory=time.monotonic)
    """Start of the window, by `time.monotonic`; moved forward by the time of validations."""

    def add(self, sums: Tensor, micro_batches: MicroBatches) -> None:
        """Add one update.

        Args:
            sums: loss, nll, auxiliary loss and further values per item.
            micro_batches: batches of the update, for their token counts.
        """
        self.sums = self.sums.to(sums.device, non_blocking=True) + sums
        self.updates += 1
        self.tokens += sum(micro_batches.tokens.values())
        self.target_tokens += micro_batches.target_tokens
