"""Convolutions over time: plain, depthwise, depthwise separable and gated.

Axes: B sequences, S input positions, T output positions, D input width, O output width, K kernel
size; R rows = N sentences x beams.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.decode_state import Capacity, State
from ..kernels.linear import draw_linear


class _TimeConvolution(nn.Module):
    """Base class of the convolutions: zero padding, and decoding with the last inputs as state."""

    def __init__(
        self,
        d_in: int,
        kernel: int,
        dilation: int = 1,
        stride: int = 1,
        padding: tuple[int, int] | None = None,
        *,
        causal: bool = False,
    ) -> None:
        """Compute how many zeros surround a sequence.

        Args:
            d_in: width of the input.
            kernel: number of positions that an output reads.
            dilation: distance between them.
            stride: distance between the positions that have an output.
            padding: numbers of zeros before and after; by default, the kernel is centered.
            causal: whether all zeros come before.
        """
        super().__init__()
        self.d_in, self.kernel, self.dilation, self.stride = d_in, kernel, dilation, stride
        reach = (kernel - 1) * dilation
        centered = (reach // 2, reach - reach // 2)
        self.before, self.after = (reach, 0) if causal else padding or centered
        self.unread = reach - self.before - self.after

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Any:
        """Map x [B, S, D] to [B, T, O], where T is S unless it shortens a sequence.

        Args:
            x: input vectors.
            mask: [B, S]; positions where it is false are read as zeros.

        Returns:
            The output vectors; with a mask, if there may be fewer than before, also their mask
            [B, T], which is true as often as a sequence without its padding has outputs.

        Raises:
            ValueError: the kernel is longer than the sequence.
        """
        if self.unread and x.size(1) <= self.unread:
            msg = f"there are {x.size(1)} positions, but the kernel needs {self.unread + 1}"
            raise ValueError(msg)
        x = _masked(x, mask)
        y = self._convolve(
            F.pad(x, (0, 0, self.before, self.after)) if self.before or self.after else x
        )
        if mask is None or (self.stride == 1 and not self.unread):
            return y
        first, last = mask[:, : mask.size(1) - self.unread], mask[:, self.unread :]
        return y, (first & last)[:, :: self.stride]

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
        """Map x [B, before + S + after, D] to [B, T, O]."""
        raise NotImplementedError

    def _along(self, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int = 1) -> Tensor:
        """Apply a kernel [O, D / groups, K] to x [B, before + S + after, D]; return [B, O, T]."""
        return F.conv1d(
            x.transpose(1, 2), weight, bias, self.stride, dilation=self.dilation, groups=groups
        )


def _masked(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return x [B, T, D] with zeros where the mask is false."""
    return x if mask is None else x.masked_fill(~mask[..., None], 0.0)


class Convolution(_TimeConvolution):
    """Convolution over time.

    Source: Gehring et al. 2017, section 3.2; causal: van den Oord et al. 2016, section 2.1.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        kernel: int,
        dilation: int = 1,
        *,
        bias: bool = True,
        groups: int = 1,
        **reads: Any,
    ) -> None:
        """Create the kernel [O, D / groups, K]."""
        super().__init__(d_in, kernel, dilation, **reads)
        self.groups = groups
        self.weight = nn.Parameter(torch.empty(d_out, d_in // groups, kernel))
        self.bias = nn.Parameter(torch.empty(d_out)) if bias else None

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; the bias starts at zero."""
        nn.init.xavier_uniform_(self.weight, generator=generator)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def _convolve(self, x: Tensor) -> Tensor:
        return self._along(x, self.weight, self.bias, self.groups).transpose(1, 2)


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
        bias: bool = True,
        **reads: Any,
    ) -> None:
        """Create the kernels [D, 1, K]."""
        super().__init__(d_in, kernel, dilation, **reads)
        self.weight = nn.Parameter(torch.empty(d_in, 1, kernel))
        self.bias = nn.Parameter(torch.empty(d_in)) if bias else None

    def initialize(self, generator: torch.Generator) -> None:
        """Draw variance-preserving kernels; the bias starts at zero."""
        bound = math.sqrt(3 / self.kernel)
        nn.init.uniform_(self.weight, -bound, bound, generator=generator)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def _convolve(self, x: Tensor) -> Tensor:
        return self._along(x, self.weight, self.bias, self.d_in).transpose(1, 2)


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
        bias: bool = True,
        **reads: Any,
    ) -> None:
        """Create the depthwise kernels [D, 1, K] and the pointwise map [O, D]."""
        super().__init__(d_in, kernel, dilation, **reads)
        self.depthwise = nn.Parameter(torch.empty(d_in, 1, kernel))
        self.pointwise = nn.Linear(d_in, d_out, bias)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw variance-preserving kernels and a Xavier-uniform map; the bias starts at zero."""
        bound = math.sqrt(3 / self.kernel)
        nn.init.uniform_(self.depthwise, -bound, bound, generator=generator)
        draw_linear(generator, self.pointwise)

    def _convolve(self, x: Tensor) -> Tensor:
        y_BDT = self._along(x, self.depthwise, None, self.d_in)
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
        bias: bool = True,
        **reads: Any,
    ) -> None:
        """Create both kernels as one tensor [2 O, D, K]: the values, then the gates."""
        super().__init__(d_in, kernel, dilation, **reads)
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
        return F.glu(self._along(x, self.weight, self.bias), 1).transpose(1, 2)
