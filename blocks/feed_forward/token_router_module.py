"""Token routing: the module that chooses positions.

Axes: B sequences, T positions, D model width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.linear import draw_linear

CHOSEN_FROM = 0.5
"""Probability above which a position is chosen."""


class TokenRouter(nn.Module):
    """Choose the positions that the following blocks compute.

    Source: Raposo et al. 2024, mixture of depths, sections 3.3 to 3.5.
    """

    def __init__(self, d_model: int, capacity: float, choose: str = "threshold") -> None:
        """Create the map from D features to one.

        Args:
            d_model: width of the vectors.
            capacity: fraction of the positions of each row that are chosen.
            choose: `threshold` for probabilities above 0.5, `top` for the highest of each row.
        """
        super().__init__()
        self.capacity, self.by_threshold = capacity, choose == "threshold"
        self.router = nn.Linear(d_model, 1)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; the bias starts at zero."""
        draw_linear(generator, self.router)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Choose positions of x [B, T, D].

        Args:
            x: vectors.
            mask: [B, T], true at non-padding positions; others are not chosen.

        Returns:
            The weight of each position in all features, [B, T, D], 0 where it is not chosen; the
            mask of the chosen positions, [B, T]; and the mean over positions of the cross-entropy
            between the probabilities and the choice of `top`, in float32 or higher precision.
        """
        logit_BT = self.router(x)[..., 0]
        logit_BT = logit_BT.to(torch.promote_types(logit_BT.dtype, torch.float32))
        valid_BT = torch.ones_like(logit_BT, dtype=torch.bool) if mask is None else mask
        top_BT = self._top(logit_BT.detach(), valid_BT)
        p_BT = logit_BT.sigmoid()
        chosen_BT = (p_BT > CHOSEN_FROM) & valid_BT if self.by_threshold else top_BT
        each_BT = F.binary_cross_entropy_with_logits(
            logit_BT, top_BT.to(logit_BT.dtype), reduction="none"
        )
        balance = (each_BT * valid_BT).sum() / valid_BT.sum().clamp(min=1)
        weight_BT = (p_BT * chosen_BT).to(x.dtype)
        return weight_BT[..., None].expand_as(x), chosen_BT, balance

    def _top(self, logit_BT: Tensor, valid_BT: Tensor) -> Tensor:
        """Return a mask of the highest logits of each row, as many as the capacity, rounded up."""
        count_B = (valid_BT.sum(1) * self.capacity).ceil()
        order_BT = logit_BT.masked_fill(~valid_BT, float("-inf")).argsort(
            dim=1, descending=True, stable=True
        )
        rank_BT = order_BT.argsort(1)
        return (rank_BT < count_B[:, None]) & valid_BT
