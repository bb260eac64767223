"""Window: what a training saw since its last report."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..distributed.sampler import MicroBatches


@dataclass(slots=True)
class Window:
    """What was seen since the last report."""

    sums: Tensor = field(default_factory=lambda: torch.zeros(3, dtype=torch.float64))
    """Loss, nll and the graph's own losses per target token, summed over updates; on the
    device of the first."""
    updates: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    waited: float = 0.0
    """Seconds spent waiting for the next batches."""
    since: float = field(default_factory=time.monotonic)

    def add(self, sums: Tensor, micro_batches: MicroBatches) -> None:
        """Count one update."""
        self.sums = self.sums.to(sums.device, non_blocking=True) + sums
        self.updates += 1
        self.source_tokens += micro_batches.source_tokens
        self.target_tokens += micro_batches.target_tokens
