"""Batch normalization over positions.  Axes: B sequences, T positions, D model width."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class BatchNorm(nn.Module):
    """Batch normalization: mean 0 and variance 1 per feature, then a learned scale and shift.

    In training, the statistics are those of the non-padding positions of the batch, and the
    running statistics move towards them.  In evaluation, the running statistics are used.  They
    are parameters that require no gradient, so checkpoints contain them.  With several processes,
    each one normalizes its own part of the batch.

    Source: Ioffe and Szegedy 2015, section 3.1 (algorithm 1) and 3.2 (algorithm 2).
    """

    def __init__(self, d_model: int, eps: float, momentum: float) -> None:
        """Create the scale, the shift and the running statistics, [D] each."""
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.empty(d_model))
        self.bias = nn.Parameter(torch.empty(d_model))
        self.running_mean = nn.Parameter(torch.empty(d_model), requires_grad=False)
        self.running_variance = nn.Parameter(torch.empty(d_model), requires_grad=False)

    def initialize(self, generator: torch.Generator) -> None:  # noqa: ARG002 - the contract
        """Start with scale 1 and shift 0, and with running statistics of mean 0 and variance 1."""
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)
        nn.init.zeros_(self.running_mean)
        nn.init.ones_(self.running_variance)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalize x [B, T, D].

        Args:
            x: input vectors.
            mask: [B, T]; positions where it is false do not count in the statistics.
        """
        exact = x.to(torch.promote_types(x.dtype, torch.float32))
        if self.training:
            mean_D, variance_D = self._of_batch(exact, mask)
        else:
            # A variance that is drawn at random, as in tests, may be negative.
            mean_D, variance_D = self.running_mean, self.running_variance.clamp(min=0)
        factor_D = (variance_D.to(exact.dtype) + self.eps).rsqrt() * self.weight.to(exact.dtype)
        y = (exact - mean_D.to(exact.dtype)) * factor_D + self.bias.to(exact.dtype)
        return y.to(x.dtype)

    def _of_batch(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return mean and variance of each feature, [D], and update the running statistics.

        The running variance is the unbiased one, as in `torch.nn.BatchNorm1d`.  A batch without
        any position leaves the running statistics as they are.
        """
        counts_BT1 = x.new_ones(x.shape[:2]) if mask is None else mask.to(x.dtype)
        counts_BT1 = counts_BT1[..., None]
        total = counts_BT1.sum()
        count = total.clamp(min=1)
        mean_D = (x * counts_BT1).sum((0, 1)) / count
        variance_D = ((x - mean_D).square() * counts_BT1).sum((0, 1)) / count
        with torch.no_grad():
            share = self.momentum * (total > 0).to(x.dtype)
            unbiased_D = variance_D * (count / (count - 1).clamp(min=1))
            for running, new in (
                (self.running_mean, mean_D),
                (self.running_variance, unbiased_D),
            ):
                running.copy_(running + share * (new - running))
        return mean_D, variance_D
