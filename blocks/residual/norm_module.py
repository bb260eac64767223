"""Layer normalization and RMS normalization.  Axes: any leading ones, D model width."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LayerNorm(nn.LayerNorm):
    """Layer normalization: mean 0 and variance 1 per vector, then a learned scale and shift.

    Source: Ba et al. 2016, section 3.
    """

    def __init__(self, d_model: int, eps: float, *, bias: bool = True) -> None:
        """Create the scale and the shift, [D] each."""
        super().__init__(d_model, eps=eps, bias=bias)

    def initialize(self, generator: torch.Generator) -> None:  # noqa: ARG002 - the contract
        """Start with scale 1 and shift 0."""
        self.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x [..., D]."""
        return super().forward(x)


class RMSNorm(nn.RMSNorm):
    """RMS normalization: mean square 1 per vector, then a learned scale.

    Source: Zhang and Sennrich 2019, section 4.
    """

    def __init__(self, d_model: int, eps: float) -> None:
        """Create the scale, [D]."""
        super().__init__(d_model, eps=eps)

    def initialize(self, generator: torch.Generator) -> None:  # noqa: ARG002 - the contract
        """Start with scale 1."""
        self.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x [..., D] in the dtype of the weight."""
        return super().forward(x.to(self.weight.dtype))
