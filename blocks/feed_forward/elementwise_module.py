"""Elementwise modules: activations, scaling by a constant and gating."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..kernels.linear import draw_linear
from .feed_forward_module import ACTIVATIONS


class Activation(nn.Module):
    """Apply an activation function elementwise.

    Source: relu: Nair and Hinton 2010, section 2; gelu: Hendrycks and Gimpel 2016, section 2;
    silu: Ramachandran et al. 2017, section 4.
    """

    def __init__(self, activation: str) -> None:
        """Look up the function by its name in a spec."""
        super().__init__()
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        """Apply the function to every element of x, of any shape."""
        return self.activation(x)


class Scale(nn.Module):
    """Multiply by a constant.

    Source: Vaswani et al. 2017, section 3.4; Raffel et al. 2020, section 2.1.
    """

    def __init__(self, by: float) -> None:
        """Set the constant."""
        super().__init__()
        self.by = by

    def forward(self, x: Tensor) -> Tensor:
        """Return x, of any shape, times the constant."""
        return x * self.by


class Gate(nn.Linear):
    """Highway gate between two values.

    Source: Srivastava et al. 2015, section 2; negative initial bias: section 2.2.
    """

    def __init__(self, d_model: int, start: float) -> None:
        """Create the linear map of the gate, [D, D]."""
        super().__init__(d_model, d_model)
        self.start = start

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; the bias starts at `start`."""
        draw_linear(generator, self)
        nn.init.constant_(self.bias, self.start)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:  # type: ignore[override]
        """Return g z + (1 - g) x, all [..., D]."""
        gate = torch.sigmoid(super().forward(x))
        return gate * z + (1 - gate) * x
