"""Adapter module.  Axes: any leading ones, D model width, H width of the bottleneck."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..kernels.linear import LinearMap
from .feed_forward_module import ACTIVATIONS

DEVIATION = 1e-2
"""Standard deviation of the initial weights, which are truncated at twice this value."""


class Adapter(nn.Module):
    """Bottleneck with a residual path.

    Source: Houlsby et al. 2019, section 2.1; initial weights: section 3.6.
    """

    def __init__(self, d_model: int, d_hidden: int, activation: str) -> None:
        """Create the maps, from D to H and back."""
        super().__init__()
        self.inner = LinearMap(d_model, d_hidden)
        self.outer = LinearMap(d_hidden, d_model)
        self.activation = ACTIVATIONS[activation]

    def initialize(self, generator: torch.Generator) -> None:
        """Draw small weights, so that the adapter is almost the identity; biases start at zero."""
        for linear in (self.inner, self.outer):
            bound = 2 * DEVIATION
            nn.init.trunc_normal_(
                linear.weight, std=DEVIATION, a=-bound, b=bound, generator=generator
            )
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., D] to [..., D]."""
        y: Tensor = x + self.outer(self.activation(self.inner(x)))
        return y
