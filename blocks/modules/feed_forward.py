"""Feed-forward: the same two-layer map at every position."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .dropout import Dropout


class FeedForward(nn.Module):
    """Two linear maps with an activation between.

    Source: Vaswani et al. 2017, section 3.3.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: str = "relu",
        *,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        """Make the maps, D x d_ff and back."""
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff, bias)
        self.outer = nn.Linear(d_ff, d_model, bias)
        self.activation = F.relu if activation == "relu" else F.gelu
        self.dropout = Dropout(dropout)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; biases start at zero."""
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight, generator=generator)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., D] to [..., D]."""
        y: Tensor = self.outer(self.dropout(self.activation(self.inner(x))))
        return y
