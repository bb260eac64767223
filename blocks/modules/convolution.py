"""Convolution: every position reads its neighbours with the same weights.

Axes: B sequences, T positions, D width in, O width out, K positions of the kernel;
R rows = N sentences x beams.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .state import Room, State


class Convolution(nn.Module):
    """Convolution over time, as long as its input.

    Source: Gehring et al. 2017, section 3.2; causal: van den Oord et al. 2016, section 2.1.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        kernel: int,
        dilation: int = 1,
        *,
        causal: bool = False,
        bias: bool = True,
    ) -> None:
        """Make the kernel, O x D x K."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in, kernel))
        self.bias = nn.Parameter(torch.empty(d_out)) if bias else None
        self.dilation = dilation
        reach = (kernel - 1) * dilation
        self.before, self.after = (reach, 0) if causal else (reach // 2, reach // 2)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; the bias starts at zero."""
        nn.init.xavier_uniform_(self.weight, generator=generator)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [B, T, D] to [B, T, O]; beyond its ends stand zeros."""
        return self._convolve(F.pad(x, (0, 0, self.before, self.after)))

    def begin(self, room: Room) -> State:
        """Remember the last (K - 1) * dilation inputs, zeros at first."""
        shape = (room.rows, self.before, self.weight.size(1))
        return State(carried={"last": torch.zeros(shape, dtype=room.dtype, device=room.device)})

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:  # noqa: ARG002
        """Map one position of every row, x [R, 1, D], from it and what is remembered."""
        seen = torch.cat([state.carried["last"], x], 1)
        state.carried["last"].copy_(seen[:, 1:])
        return self._convolve(seen)

    def _convolve(self, x: Tensor) -> Tensor:
        y_BOT = F.conv1d(x.transpose(1, 2), self.weight, self.bias, dilation=self.dilation)
        return y_BOT.transpose(1, 2)
