"""Convolutions over time: plain, depthwise, depthwise separable and gated.

Axes: B sequences, T positions, D input width, O output width, K kernel size;
R rows = N sentences x beams.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.decode_state import Capacity, State
from ..kernels.linear import draw_linear


class _TimeConvolution(nn.Module):
    """Base class of the convolutions: zero padding, and decoding with the last inputs as state."""

    def __init__(self, d_in: int, kernel: int, dilation: int, *, causal: bool) -> None:
        """Compute how many positions the kernel reads before and after each position."""
        super().__init__()
        self.d_in, self.kernel, self.dilation = d_in, kernel, dilation
        reach = (kernel - 1) * dilation
        self.before, self.after = (reach, 0) if causal else (reach // 2, reach // 2)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map x [B, T, D] to [B, T, O]; sequences are zero-padded at both ends.

        Args:
            x: input vectors.
            mask: [B, T]; positions where it is false are read as zeros.
        """
        return self._convolve(F.pad(_masked(x, mask), (0, 0, self.before, self.after)))

    def begin(self, capacity: Capacity) -> State:
        """Return the decoding state: the last (K - 1) * dilation inputs, initially zeros."""
        shape = (capacity.rows, self.before, self.d_in)
        return State(
            carried={"last": torch.zeros(shape, dtype=capacity.dtype, device=capacity.device)}
        )

    def step(self, x: Tensor, mask: Tensor | None = None, *, state: State, position: int) -> Tensor:  # noqa: ARG002
        """Map the next positions of every row, x [R, T, D], to [R, T, O].

        Args:
            x: input vectors.
            mask: [R, T]; positions where it is false are read as zeros, now and later.
            state: the state returned by `begin`; updated in place.
            position: index of the first of these positions; not used.
        """
        inputs = torch.cat([state.carried["last"], _masked(x, mask)], 1)
        state.carried["last"].copy_(inputs[:, x.size(1) :])
        return self._convolve(inputs)

    def _convolve(self, x: Tensor) -> Tensor:
        """Map x [B, before + T + after, D] to [B, T, O]."""
        raise NotImplementedError


def _masked(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return x [B, T, D] with zeros where the mask is false."""
    return x if mask is None else x.masked_fill(~mask[..., None], 0.0)


class Convolution(_TimeConvolution):
    """Convolution over time, with an output as long as its input.

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
        groups: int = 1,
    ) -> None:
        """Create the kernel [O, D / groups, K]."""
        super().__init__(d_in, kernel, dilation, causal=causal)
        self.groups = groups
        self.weight = nn.Parameter(torch.empty(d_out, d_in // groups, kernel))
        self.bias = nn.Parameter(torch.empty(d_out)) if bias else None

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; the bias starts at zero."""
        nn.init.xavier_uniform_(self.weight, generator=generator)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def _convolve(self, x: Tensor) -> Tensor:
        x_BDT, dilation = x.transpose(1, 2), self.dilation
        y_BOT = F.conv1d(x_BDT, self.weight, self.bias, dilation=dilation, groups=self.groups)
        return y_BOT.transpose(1, 2)


class DepthwiseConvolution(_TimeConvolution):
    """Depthwise convolution over time: each feature has a kernel of its own.

    Source: Chollet 2017, section 1.2.
    """

    def __init__(
        self,
        d_in: int,
        kernel: int,
        dilation: int = 1,
        *,
        causal: bool = False,
        bias: bool = True,
    ) -> None:
        """Create the kernels [D, 1, K]."""
        super().__init__(d_in, kernel, dilation, causal=causal)
        self.weight = nn.Parameter(torch.empty(d_in, 1, kernel))
        self.bias = nn.Parameter(torch.empty(d_in)) if bias else None

    def initialize(self, generator: torch.Generator) -> None:
        """Draw variance-preserving kernels; the bias starts at zero."""
        bound = math.sqrt(3 / self.kernel)
        nn.init.uniform_(self.weight, -bound, bound, generator=generator)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def _convolve(self, x: Tensor) -> Tensor:
        y_BDT = F.conv1d(
            x.transpose(1, 2), self.weight, self.bias, dilation=self.dilation, groups=self.d_in
        )
        return y_BDT.transpose(1, 2)


class SeparableConvolution(_TimeConvolution):
    """Depthwise convolution over time, then a pointwise linear map.

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
        """Create the depthwise kernels [D, 1, K] and the pointwise map [O, D]."""
        super().__init__(d_in, kernel, dilation, causal=causal)
        self.depthwise = nn.Parameter(torch.empty(d_in, 1, kernel))
        self.pointwise = nn.Linear(d_in, d_out, bias)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw variance-preserving kernels and a Xavier-uniform map; the bias starts at zero."""
        bound = math.sqrt(3 / self.kernel)
        nn.init.uniform_(self.depthwise, -bound, bound, generator=generator)
        draw_linear(generator, self.pointwise)

    def _convolve(self, x: Tensor) -> Tensor:
        y_BDT = F.conv1d(
            x.transpose(1, 2), self.depthwise, dilation=self.dilation, groups=self.d_in
        )
        y: Tensor = self.pointwise(y_BDT.transpose(1, 2))
        return y


class GatedConvolution(_TimeConvolution):
    """Two convolutions over time, the second gating the first: a * sigmoid(b).

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
        """Create both kernels as one tensor [2 O, D, K]: the values, then the gates."""
        super().__init__(d_in, kernel, dilation, causal=causal)
        self.weight = nn.Parameter(torch.empty(2 * d_out, d_in, kernel))
        self.bias = nn.Parameter(torch.empty(2 * d_out)) if bias else None

    def initialize(self, generator: torch.Generator) -> None:
        """Draw normal weights of variance 4 / (D * K), so that gating preserves the variance of x.

        Source: Gehring et al. 2017, section 3.5.
        """
        deviation = math.sqrt(4 / (self.d_in * self.kernel))
        nn.init.normal_(self.weight, std=deviation, generator=generator)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def _convolve(self, x: Tensor) -> Tensor:
        y_BOT = F.conv1d(x.transpose(1, 2), self.weight, self.bias, dilation=self.dilation)
        return F.glu(y_BOT, 1).transpose(1, 2)
