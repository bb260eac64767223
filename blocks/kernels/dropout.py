"""Dropout: cheap on the CPU, where drawing a random number for each element is not.

One 64-bit draw decides four elements, 16 bits each, so the probability is rounded to
a multiple of 1/65536.  Elsewhere, and inside compiled graphs, torch's own is used.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_LEVELS = 1 << 16


class Dropout(nn.Module):
    """Drop numbers with a probability while training, and scale up the rest.

    Source: Srivastava et al. 2014; Vaswani et al. 2017, section 5.4.
    """

    def __init__(self, dropout: float) -> None:
        """Keep the probability, 0 to below 1."""
        super().__init__()
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """Return x of any shape, with some numbers zero while training."""
        if not self.training or self.dropout == 0.0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.dropout)
        return x * mask(x, self.dropout)

    def extra_repr(self) -> str:
        """Show the probability where torch shows modules."""
        return f"dropout={self.dropout}"


def mask(like: Tensor, dropout: float) -> Tensor:
    """Return zeros with a probability, and elsewhere what keeps the mean at 1.

    Args:
        like: gives shape and dtype.
        dropout: probability of zero, rounded to a multiple of 1/65536.
    """
    cut = min(round(dropout * _LEVELS), _LEVELS - 1)
    draws = torch.empty((like.numel() + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    words = draws.view(torch.int16)[: like.numel()].view(like.shape)
    return (words >= cut - _LEVELS // 2).to(like.dtype).mul_(_LEVELS / (_LEVELS - cut))
