"""Losses of one batch as sums.

A loss is a sum, not a mean: batches contain different numbers of items, so only the trainer, which
adds up micro-batches and processes, knows the number to divide by.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSums:
    """Losses of one batch, summed over its items; scalars on the device of the model."""

    loss: Tensor
    """Weighted sum of the losses, in float32; call `backward` on this one."""
    nll: Tensor
    """The score that is reported as nll, such as the negative log-likelihood in nats; detached.
    Without one, the first loss."""
    tokens: Tensor
    """Number of items of the first loss."""
    auxiliary: Tensor | None = None
    """Losses of the model that the objective does not wire, unweighted, times `tokens`, detached;
    None if there are none.  `loss` includes them, weighted."""
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    """Further values to report by name, times `tokens`, detached."""
