"""Position-wise feed-forward networks, plain and gated."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.dropout import Dropout
from ..kernels.linear import LinearMap, draw_linear


def _squared_relu(x: Tensor) -> Tensor:
    """Return max(0, x)^2."""
    return F.relu(x).square()


def _quick_gelu(x: Tensor) -> Tensor:
    """Return x * sigmoid(1.702 x), an approximation of gelu."""
    return x * torch.sigmoid(1.702 * x)


def _identity(x: Tensor) -> Tensor:
    """Return x."""
    return x


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "squared_relu": _squared_relu,
    "quick_gelu": _quick_gelu,
    "elu": F.elu,
    "leaky_relu": F.leaky_relu,
    "softplus": F.softplus,
    "mish": F.mish,
    "hard_swish": F.hardswish,
    "identity": _identity,
}
"""Maps each activation name in a spec to its function."""


def through_gate(
    hidden: Tensor,
    gate: Tensor,
    activation: Callable[[Tensor], Tensor],
    limit: float | None = None,
    offset: float = 0.0,
) -> Tensor:
    """Return activation(gate) * (hidden + offset).

    Args:
        hidden: the hidden layer, [..., F].
        gate: the gate before its activation, [..., F].
        activation: the activation.
        limit: largest absolute value of the hidden layer, and largest value of the gate.
        offset: what is added to the hidden layer.

    Source: limit and offset: OpenAI 2025, gpt-oss, section 2.2.
    """
    if limit is not None:
        hidden, gate = hidden.clamp(-limit, limit), gate.clamp(max=limit)
    return activation(gate) * (hidden + offset if offset else hidden)


class FeedForward(nn.Module):
    """Two linear maps with an activation in between.

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
        """Create the maps, from D to d_ff and back."""
        super().__init__()
        self.inner = LinearMap(d_model, d_ff, bias)
        self.outer = LinearMap(d_ff, d_model, bias)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; biases start at zero."""
        draw_linear(generator, self.inner, self.outer)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., D] to [..., D]."""
        y: Tensor = self.outer(self.dropout(self.activation(self.inner(x))))
        return y


class GatedFeedForward(nn.Module):
    """A linear map gated by an activated second map, then a map back.

    Source: Shazeer 2020, section 2.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: str = "silu",
        *,
        bias: bool = True,
        limit: float | None = None,
        offset: float = 0.0,
        dropout: float = 0.0,
    ) -> None:
        """Create the maps, two from D to d_ff and one back; other params as of `through_gate`."""
        super().__init__()
        self.limit, self.offset = limit, offset
        self.gate = LinearMap(d_model, d_ff, bias)
        self.inner = LinearMap(d_model, d_ff, bias)
        self.outer = LinearMap(d_ff, d_model, bias)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; biases start at zero."""
        draw_linear(generator, self.gate, self.inner, self.outer)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., D] to [..., D]."""
        hidden = self.inner(x), self.gate(x)
        y: Tensor = self.outer(
            self.dropout(through_gate(*hidden, self.activation, self.limit, self.offset))
        )
        return y
