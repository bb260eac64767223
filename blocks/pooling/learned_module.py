"""Modules of learned vectors and of learned weights of layers.

Axes: B sequences, S positions, N learned vectors, L layers, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LearnedArray(nn.Module):
    """Learned vectors that do not depend on the input.

    Source: Jaegle et al. 2021, section 3.1; Lester et al. 2021, section 2.
    """

    def __init__(self, count: int, d_out: int) -> None:
        """Create the vectors [N, D]."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, d_out))

    def initialize(self, generator: torch.Generator) -> None:
        """Draw from N(0, 1/D), as for token embeddings."""
        nn.init.normal_(self.weight, std=self.weight.size(1) ** -0.5, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """Return the vectors for every row of x [B, S, E], as [B, N, D]."""
        return self.weight.to(x.dtype).expand(x.size(0), -1, -1)


class WeightedSum(nn.Module):
    """Weighted sum of the outputs of all layers, whose weights are a softmax of learned scalars.

    Source: Peters et al. 2018, section 3.2 (equation 1).
    """

    def __init__(self, layers: int, *, gain: bool = True) -> None:
        """Create the scalar of each layer, and the one of the sum."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(layers))
        self.gain = nn.Parameter(torch.empty(1)) if gain else None

    def initialize(self, generator: torch.Generator) -> None:  # noqa: ARG002 - the contract
        """Start with the mean of the layers."""
        nn.init.zeros_(self.weight)
        if self.gain is not None:
            nn.init.ones_(self.gain)

    def forward(self, x: Tensor) -> Tensor:
        """Return the weighted sum of x [L, B, S, D], as [B, S, D]."""
        weight_L = self.weight.softmax(0).to(x.dtype)
        y = (x * weight_L[:, None, None, None]).sum(0)
        return y if self.gain is None else y * self.gain.to(y.dtype)
