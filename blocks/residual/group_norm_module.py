"""Group normalization.  Axes: B sequences, T positions, D model width, G groups of E features."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class GroupNorm(nn.Module):
    """Mean 0 and variance 1 per sequence and group, then a learned scale and shift per feature.

    Source: Wu and He 2018, section 3.
    """

    def __init__(self, d_model: int, groups: int, eps: float) -> None:
        """Create the scale and the shift, [D] each."""
        super().__init__()
        self.groups, self.eps = groups, eps
        self.weight = nn.Parameter(torch.empty(d_model))
        self.bias = nn.Parameter(torch.empty(d_model))

    def initialize(self, generator: torch.Generator) -> None:  # noqa: ARG002 - the contract
        """Start with scale 1 and shift 0."""
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalize x [B, T, D].

        Args:
            x: input vectors.
            mask: [B, T]; positions where it is false do not count in the statistics.
        """
        if mask is None:
            y_BDT = F.group_norm(x.transpose(1, 2), self.groups, self.weight, self.bias, self.eps)
            return y_BDT.transpose(1, 2)
        exact = x.to(torch.promote_types(x.dtype, torch.float32)).unflatten(-1, (self.groups, -1))
        counts_BT11 = mask[..., None, None].to(exact.dtype)
        total_B111 = counts_BT11.sum(1, keepdim=True).clamp(min=1) * exact.size(-1)
        mean_B1G1 = (exact * counts_BT11).sum((1, 3), keepdim=True) / total_B111
        centered_BTGE = exact - mean_B1G1
        square_B1G1 = (centered_BTGE.square() * counts_BT11).sum((1, 3), keepdim=True)
        normal = (centered_BTGE * (square_B1G1 / total_B111 + self.eps).rsqrt()).flatten(-2)
        y = normal * self.weight.to(exact.dtype) + self.bias.to(exact.dtype)
        normalized: Tensor = y.to(x.dtype)
        return normalized
