"""Whether a weight has changed since something was computed from it."""

from __future__ import annotations

import functools
from typing import Any

from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook


class _OptimizerSteps:
    """Counts the optimizer steps since its creation.

    A fused step changes parameters without incrementing their version counters.
    """

    def __init__(self) -> None:
        self.made = 0
        register_optimizer_step_post_hook(self._count)

    def _count(self, *_: Any) -> None:
        self.made += 1


_steps = functools.cache(_OptimizerSteps)
"""The counter of this process, which starts when someone first asks."""


def steps_made() -> int:
    """Return the number of optimizer steps in this process since the first call."""
    return _steps().made


def version_of(tensor: Tensor) -> int:
    """Return the version counter of a tensor; -1 for tensors of inference mode, which have none."""
    return -1 if tensor.is_inference() else tensor._version  # noqa: SLF001 - no public name
