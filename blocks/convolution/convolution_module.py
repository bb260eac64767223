"""Convolution: every position reads its neighbours with the same weights.

Axes: B sequences, T positions, D width in, O width out, K positions of the kernel;
R rows = N sentences x beams.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.decode_state import Capacity, State
from ..kernels.init import draw_linear


class _Neighbors(nn.Module):
    """What the convolutions share: which positions are read, and what a step remembers."""

    def __init__(self, d_in: int, kernel: int, dilation: int, *, causal: bool) -> None:
        """Work out how many positions are read before and after each."""
        super().__init__()
        self.d_in, self.kernel, self.dilation = d_in, kernel, dilation
        reach = (kernel - 1) * dilation
        self.before, self.after = (reach, 0) if causal else (reach // 2, reach // 2)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map x [B, T, D] to [B, T, O]; beyond its ends stand zeros.

        Args:
            x: vectors.
            mask: [B, T]; where false zeros are read too.
        """
        return self._convolve(F.pad(_kept(x, mask), (0, 0, self.before, self.after)))

    def begin(self, capacity: Capacity) -> State:
        """Remember the last (K - 1) * dilation inputs, zeros at first."""
        shape = (capacity.rows, self.before, self.d_in)
        return State(
            carried={"last": torch.zeros(shape, dtype=capacity.dtype, device=capacity.device)}
        )

    def step(self, x: Tensor, mask: Tensor | None = None, *, state: State, position: int) -> Tensor:  # noqa: ARG002
        """Map the next positions of every row, x [R, T, D], from them and what is remembered.

        Args:
            x: vectors.
            mask: [R, T]; where false zeros are read, here and later.
            state: what `begin` returned.
            position: where the first of them stands.
        """
        seen = torch.cat([state.carried["last"], _kept(x, mask)], 1)
        state.carried["last"].copy_(seen[:, x.size(1) :])
        return self._convolve(seen)

    def _convolve(self, x: Tensor) -> Tensor:
        """Map x [B, before + T + after, D] to [B, T, O]."""
        raise NotImplementedError


def _kept(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return x [B, T, D] with zeros where it is not kept."""
    return x if mask is None else x.masked_fill(~mask[..., None], 0.0)


class Convolution(_Neighbors):
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
        super().__init__(d_in, kernel, dilation, causal=causal)
        self.weight = nn.Parameter(torch.empty(d_out, d_in, kernel))
        self.bias = nn.Parameter(torch.empty(d_out)) if bias else None

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; the bias starts at zero."""
        nn.init.xavier_uniform_(self.weight, generator=generator)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def _convolve(self, x: Tensor) -> Tensor:
        y_BOT = F.conv1d(x.transpose(1, 2), self.weight, self.bias, dilation=self.dilation)
        return y_BOT.transpose(1, 2)


class SeparableConvolution(_Neighbors):
    """Convolution of each number of the vectors by itself, then a map of each position.

    Source: Chollet 2017, section 1.2; over time: Kaiser et al. 2017, section 2.
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
        """Make the kernels, D x 1 x K, and the map, O x D."""
        super().__init__(d_in, kernel, dilation, causal=causal)
        self.depthwise = nn.Parameter(torch.empty(d_in, 1, kernel))
        self.pointwise = nn.Linear(d_in, d_out, bias)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw kernels that keep the variance, and a Xavier-uniform map; the bias is zero."""
        bound = math.sqrt(3 / self.kernel)
        nn.init.uniform_(self.depthwise, -bound, bound, generator=generator)
        draw_linear(generator, self.pointwise)

    def _convolve(self, x: Tensor) -> Tensor:
        y_BDT = F.conv1d(
            x.transpose(1, 2), self.depthwise, dilation=self.dilation, groups=self.d_in
        )
        y: Tensor = self.pointwise(y_BDT.transpose(1, 2))
        return y


class GatedConvolution(_Neighbors):
    """Two convolutions, one the other's gate: a * sigmoid(b).

    Source: Dauphin et al. 2017, section 2; Gehring et al. 2017, section 3.2.
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
        """Make both kernels in one, 2 O x D x K: what passes, then the gate."""
        super().__init__(d_in, kernel, dilation, causal=causal)
        self.weight = nn.Parameter(torch.empty(2 * d_out, d_in, kernel))
        self.bias = nn.Parameter(torch.empty(2 * d_out)) if bias else None

    def initialize(self, generator: torch.Generator) -> None:
        """Draw normal weights of variance 4 / (D * K), so that the gate keeps that of x.

        Source: Gehring et al. 2017, section 3.5.
        """
        deviation = math.sqrt(4 / (self.d_in * self.kernel))
        nn.init.normal_(self.weight, std=deviation, generator=generator)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def _convolve(self, x: Tensor) -> Tensor:
        y_BOT = F.conv1d(x.transpose(1, 2), self.weight, self.bias, dilation=self.dilation)
        return F.glu(y_BOT, 1).transpose(1, 2)
