"""Linear maps whose products are computed in int8, for decoding on a CPU.

Each output channel of a matrix has one scale, and so has each row of an input, found when it
arrives: a row's result depends on no other row.  With w and x rounded to integers from -127
to 127, y = (x / s) (W / t)^T * s * t + b, summed in 32-bit integers.

Measured on an Intel Xeon with AMX, one thread, CPU time of 1, 4, 64 and 256 rows relative to a
prepacked product in bfloat16: 512 x 37,000 0.52, 0.53, 0.85 and 0.62; 512 x 2,048 0.62, 0.68,
0.80 and 0.85; 512 x 512 1.5, 1.8, 1.4 and 1.2, which is why small matrices stay as they
are; with thousands of rows, as in an encoder, rounding takes longer than 512 x 2,048 saves.  On
an AMD EPYC without AMX: 512 x 37,000 0.77, 0.75, 0.67 and 0.75; 512 x 2,048 1.5, 1.4, 0.75, 0.71.

Axes: R rows, I input width, O output width.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn

from .prepacked import InferenceLinear, exchange_linear

LEVELS: Final = 127
"""The largest integer."""
ZERO: Final = 128
"""The unsigned integer that stands for 0 in inputs."""
TINY: Final = 1e-30
"""Added to the scale of a row, which may consist of zeros."""
LEAST: Mapping[torch.dtype, int] = {torch.float32: 1 << 16, torch.bfloat16: 1 << 21}
"""Smallest number of weights of a matrix that is multiplied in int8, by the dtype of the others."""


class Int8Linear(InferenceLinear):
    """A linear map that rounds its matrix and its inputs to int8."""

    _packed: tuple[Tensor, Tensor, Tensor, Tensor | None] | None = None

    def multiply(self, x: Tensor) -> Tensor:
        """Run the product of the rounded operands."""
        if self._packed is None:
            self._packed = self._rounded()
        matrix, scale_O, zero_O, bias_O = self._packed
        x_RI = x.reshape(-1, self.in_features).float()
        # A scale in the dtype of the outputs, with which these are multiplied; not 0.
        scale_R1 = x_RI.abs().amax(1, keepdim=True).mul_(1 / LEVELS).add_(TINY).to(self.dtype)
        signed_RI = (x_RI / scale_R1).round_().to(torch.int8)
        # Adds ZERO: oneDNN multiplies signed inputs by its reference loop if there is no AMX.
        rounded_RI = signed_RI.view(torch.uint8).bitwise_xor_(ZERO)
        given: tuple[Any, ...] = (matrix, scale_O, zero_O, None, 1.0, 0, self.dtype, "none", [], "")
        y_RO: Tensor = _ops().qlinear_pointwise(rounded_RI, 1.0, ZERO, *given)
        y_RO.mul_(scale_R1)
        if bias_O is not None:
            y_RO.add_(bias_O)
        return y_RO.view(*x.shape[:-1], self.out_features)

    def repack(self) -> None:
        """Round the matrix again before the next product."""
        self._packed = None

    def _rounded(self) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return the packed matrix, its scales and zero points by channel, and the bias."""
        assert self.weight is not None  # noqa: S101 - set with the weights of the model
        rounded_OI, scale_O = rounded(self.weight.detach())
        zero_O = torch.zeros(self.out_features, dtype=torch.int32)
        matrix = _ops().qlinear_prepack(rounded_OI, None)
        bias_O = None if self.bias is None else self.bias.detach().to(self.dtype)
        return matrix, scale_O, zero_O, bias_O


def rounded(weight_OI: Tensor) -> tuple[Tensor, Tensor]:
    """Return a matrix [O, I] rounded to int8, and the scale of each output channel [O]."""
    scale_O = weight_OI.abs().amax(1).clamp(min=1e-30) / LEVELS
    return (weight_OI / scale_O[:, None]).round().to(torch.int8), scale_O


def quantize(model: nn.Module, dtype: torch.dtype) -> None:
    """Multiply in int8 where a linear map of a model under construction is large enough.

    Maps with LoRA and maps of a subclass with another `forward` stay as they are.

    Args:
        model: the model; its weights are set afterwards.
        dtype: dtype of the outputs, and of the products of the other maps.
    """

    def made(one: nn.Linear) -> Int8Linear | None:
        large = one.in_features * one.out_features >= LEAST[dtype]
        return Int8Linear(one.in_features, one.out_features, dtype) if large else None

    exchange_linear(model, made)


@functools.cache
def can_quantize() -> bool:
    """Return whether this torch multiplies in int8 on this processor, exactly.

    Processors without VNNI add pairs of products in 16 bits, which the largest integers would
    exceed; the product tried here consists of these.
    """
    linear = Int8Linear(96, 48, torch.float32)
    signs = torch.where(torch.arange(48) % 3 > 0, 1.0, -1.0)
    linear.register_parameter("weight", nn.Parameter(signs[:, None].expand(48, 96).contiguous()))
    x = torch.stack([torch.ones(96), torch.full((96,), -0.5), torch.linspace(-1, 1, 96)])
    with torch.no_grad():
        try:
            found = linear.multiply(x)
        except (AttributeError, RuntimeError):  # another torch version, or one without oneDNN
            return False
        scale = x.abs().amax(1, keepdim=True) / LEVELS
        expected = ((x / scale).round() * scale).sum(1, keepdim=True) * signs
    return bool((found - expected).abs().max() < 1e-3)  # noqa: PLR2004 - sums of 96 values


def _ops() -> Any:
    return torch.ops.onednn
