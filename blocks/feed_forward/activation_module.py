"""Module of activation functions."""

from __future__ import annotations

from torch import Tensor, nn

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
