"""Split vectors into heads, and merge the heads again.

Axes: B sequences, H heads, T positions, K width of one head.
"""

from __future__ import annotations

from torch import Tensor, nn


class SplitHeads(nn.Module):
    """Split vectors into heads, in order.

    Source: Vaswani et al. 2017, section 3.2.2.
    """

    def __init__(self, heads: int) -> None:
        """Set the number of heads."""
        super().__init__()
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        """Return x [B, T, H * K] as [B, H, T, K]."""
        x_BTHK: Tensor = x.unflatten(-1, (self.heads, -1))
        return x_BTHK.transpose(1, 2)


class MergeHeads(nn.Module):
    """Concatenate the heads, in order.

    Source: Vaswani et al. 2017, section 3.2.2.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return x [B, H, T, K] as [B, T, H * K]."""
        return x.transpose(1, 2).flatten(2)
