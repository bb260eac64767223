"""Dropout with fewer random draws on the CPU, where one draw per element is slow.

One 64-bit draw decides four elements, with 16 bits each, so the probability is rounded to a
multiple of 1/65536.  On other devices and in compiled graphs, torch's dropout is used.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_LEVELS = 1 << 16


class Dropout(nn.Module):
    """Zero elements at random in training and scale up the others.

    Source: Srivastava et al. 2014; Vaswani et al. 2017, section 5.4.
    """

    def __init__(self, dropout: float) -> None:
        """Set the dropout probability, in [0, 1)."""
        super().__init__()
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """Apply dropout to x, of any shape; return x unchanged outside of training."""
        if not self.training or self.dropout == 0.0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.dropout)
        return x * mask(x, self.dropout)

    def extra_repr(self) -> str:
        """Return the probability for the printed form of the module."""
        return f"dropout={self.dropout}"


def mask(like: Tensor, dropout: float) -> Tensor:
    """Return a random dropout mask: zeros, and elsewhere the factor that makes the mean 1.

    Args:
        like: tensor whose shape and dtype the mask has.
        dropout: probability of zero, rounded to a multiple of 1/65536.
    """
    cut = min(round(dropout * _LEVELS), _LEVELS - 1)
    draws = torch.empty((like.numel() + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    words = draws.view(torch.int16)[: like.numel()].view(like.shape)
    return (words >= cut - _LEVELS // 2).to(like.dtype).mul_(_LEVELS / (_LEVELS - cut))
