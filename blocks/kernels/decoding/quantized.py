"""Linear maps whose products are computed in int8, for decoding on a CPU.

Each output channel of a matrix has one scale, and so has each row of an input, found when it
arrives: a row's result depends on no other row.  With w and x rounded to integers from -127
to 127, y = (x / s) (W / t)^T * s * t + b, summed in 32-bit integers.

Small matrices stay as they are, since finding the scales takes longer than their products save.
With FBGEMM (`int8_products`), 256 x 256 takes as long as in bfloat16, and everything larger is
faster.  With oneDNN on an Intel Xeon with AMX, one thread, CPU time of 1, 4, 64 and 256 rows
relative to a prepacked product in bfloat16: 512 x 37,000 0.52, 0.53, 0.85 and 0.62; 512 x 2,048
0.62, 0.68, 0.80 and 0.85; 512 x 512 1.5, 1.8, 1.4 and 1.2.

Axes: R rows, I input width, O output width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor, nn

from ..linear import JoinableMap
from . import int8_products
from .int8_products import LEVELS, Product
from .prepacked import InferenceLinear, exchange_linear

TINY: Final = 1e-30
"""The least scale; a row, or a channel, may consist of zeros."""
LEAST: Mapping[tuple[str, torch.dtype], int] = {
    ("fbgemm", torch.float32): 1 << 16,
    ("fbgemm", torch.bfloat16): 1 << 18,
    ("onednn", torch.float32): 1 << 16,
    ("onednn", torch.bfloat16): 1 << 21,
}
"""Smallest number of weights of a matrix that is multiplied in int8, by the library of its products
and the dtype of the other matrices."""
_Packed = tuple[Product, Tensor]
"""A product with a rounded matrix, and the bias, [O], in float32."""


class Int8Linear(InferenceLinear, JoinableMap):
    """A linear map that rounds its matrix and its inputs to int8."""

    _packed: _Packed | None = None
    _joined: tuple[tuple[Int8Linear, ...], _Packed] | None = None
    """This map and those that are one product with it, and the product."""

    def multiply(self, x: Tensor) -> Tensor:
        """Run the product of the rounded operands."""
        if self._packed is None:
            self._packed = _pack([self])
        return _multiply(x, self._packed, self.dtype)

    def joined(self, x: Tensor, maps: tuple[Int8Linear, ...]) -> Sequence[Tensor]:
        """Run one product for several maps, whose matrices are packed together at the first one.

        Its inputs are rounded once, and for few rows it takes little longer than one of the maps.
        """
        if torch.compiler.is_compiling():
            return tuple(linear(x) for linear in maps)
        packed_maps = self._joined
        if packed_maps is None or packed_maps[0] != maps:
            packed_maps = self._joined = maps, _pack(maps)
        y = _multiply(x, packed_maps[1], self.dtype)
        return torch.split(y, [linear.out_features for linear in maps], -1)

    def repack(self) -> None:
        """Round the matrix again before the next product; so must the maps joined with it."""
        self._packed, self._joined = None, None


def _pack(maps: Sequence[Int8Linear]) -> _Packed:
    """Return the product with the rounded matrices of maps of the same input, and the biases."""
    pack = int8_products.packer()
    weights = [linear.weight.detach() for linear in maps if linear.weight is not None]
    assert pack is not None and len(weights) == len(maps)  # noqa: S101, PT018 - see `quantize`
    pairs = ((linear.bias, linear.out_features) for linear in maps)
    biases = [
        torch.zeros(width) if bias is None else bias.detach().float() for bias, width in pairs
    ]
    return pack(*rounded(torch.cat(weights))), torch.cat(biases)


def _multiply(x: Tensor, packed: _Packed, dtype: torch.dtype) -> Tensor:
    """Return the product of x [..., I], rounded, and a packed matrix, [..., O]."""
    product, bias_O = packed
    x_RI = x.detach().reshape(-1, x.size(-1)).float()
    scale_R1 = x_RI.abs().amax(1, keepdim=True).mul_(1 / LEVELS).clamp_(min=TINY)
    sum_RO = product((x_RI / scale_R1).round_())
    y_RO = torch.addcmul(bias_O, sum_RO, scale_R1, out=sum_RO).to(dtype)
    return y_RO.view(*x.shape[:-1], bias_O.size(0))


def rounded(weight_OI: Tensor) -> tuple[Tensor, Tensor]:
    """Return a matrix [O, I] rounded to int8, and the scale of each output channel [O]."""
    scale_O = weight_OI.abs().amax(1).clamp(min=TINY) / LEVELS
    return (weight_OI / scale_O[:, None]).round().to(torch.int8), scale_O


def quantize(model: nn.Module, dtype: torch.dtype) -> None:
    """Multiply in int8 where a linear map of a model under construction is large enough.

    Maps with LoRA and maps of a subclass with another `forward` stay as they are.

    Args:
        model: the model; its weights are set afterwards.
        dtype: dtype of the outputs, and of the products of the other maps.
    """
    pack = int8_products.packer()
    assert pack is not None  # noqa: S101 - see `can_quantize`
    library = "onednn" if pack is int8_products.onednn else "fbgemm"  # also for `by_rows`
    least = LEAST[library, dtype]

    def made(linear: nn.Linear) -> Int8Linear | None:
        large = linear.in_features * linear.out_features >= least
        return Int8Linear(linear.in_features, linear.out_features, dtype) if large else None

    exchange_linear(model, made)


def can_quantize() -> bool:
    """Return whether this torch multiplies in int8 on this processor, exactly."""
    return int8_products.packer() is not None


def suits_float32() -> bool:
    """Return whether decoding in int8 is faster with the rest in float32 than in bfloat16.

    FBGEMM rounds from float32 and returns it, and multiplies all but the smallest matrices.
    """
    return int8_products.packer() in (int8_products.fbgemm, int8_products.by_rows)
