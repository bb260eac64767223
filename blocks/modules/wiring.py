"""Wiring: what stands around and between the blocks that do the work."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .draw import draw_linear
from .dropout import Dropout
from .norm import LayerNorm, RMSNorm
from .state import Room, State


class Sublayer(nn.Module):
    """Residual path, dropout and a norm around a sub-layer.

    Source: Vaswani et al. 2017, section 3.1; pre order: Xiong et al. 2020.
    """

    def __init__(
        self,
        d_model: int,
        order: str = "post",
        dropout: float = 0.0,
        eps: float = 1e-6,
        norm: str = "layer_norm",
        *,
        f: nn.Module,
    ) -> None:
        """Keep the sub-layer `f` and make the norm around it."""
        super().__init__()
        self.pre = order == "pre"
        self.norm = (RMSNorm if norm == "rms_norm" else LayerNorm)(d_model, eps)
        self.f: Any = f
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, **wires: Any) -> Tensor:
        """Return x [..., D] with what `f` adds to it; other wires go to `f`."""
        if self.pre:
            return self._add(x, self.f(self.norm(x), **wires))
        return self._add(x, self.f(x, **wires))

    def begin(self, room: Room, **wires: Any) -> State:
        """Remember what `f` remembers."""
        state: State = self.f.begin(room, **wires)
        return state

    def step(self, x: Tensor, *, state: State, position: int, **wires: Any) -> Tensor:
        """Do what `forward` does for one position."""
        if self.pre:
            y = self.f.step(self.norm(x), state=state, position=position, **wires)
            return self._add(x, y)
        return self._add(x, self.f.step(x, state=state, position=position, **wires))

    def _add(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the sum of x and what the sub-layer gave; normed in post order."""
        added: Tensor = x + self.dropout(y)
        return added if self.pre else self.norm(added)


class Linear(nn.Linear):
    """A linear map.

    Source: Vaswani et al. 2017, section 3.4.
    """

    def __init__(self, d_in: int, d_out: int, *, bias: bool = True) -> None:
        """Make the map, d_in to d_out."""
        super().__init__(d_in, d_out, bias)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; the bias starts at zero."""
        draw_linear(generator, self)
