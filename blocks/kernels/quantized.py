"""Linear maps whose products are computed in int8, for decoding on a CPU.

Each output channel of a matrix has one scale, and so has each row of an input, found when it
arrives: a row's result depends on no other row.  With x rounded to integers from -127 to 127 and W
to integers that the processor multiplies exactly, y = (x / s) (W / t)^T * s * t + b, summed in
32-bit integers.  Processors without VNNI add pairs of products in 16 bits, where
2 * 255 * 64 fits and 2 * 255 * 127 does not: there W has integers from -64 to 64.

Small matrices stay as they are, since finding the scales takes longer than their products save.
With FBGEMM, 256 x 256 takes as long as in bfloat16, and everything larger is
faster.  With oneDNN on an Intel Xeon with AMX, one thread, CPU time of 1, 4, 64 and 256 rows
relative to a prepacked product in bfloat16: 512 x 37,000 0.52, 0.53, 0.85 and 0.62; 512 x 2,048
0.62, 0.68, 0.80 and 0.85; 512 x 512 1.5, 1.8, 1.4 and 1.2.

torch has two products of matrices in int8, and neither suits every processor.  FBGEMM converts
the input while it multiplies; it uses VNNI, but not AMX.  oneDNN uses both, but gets its input
converted, and takes longer for few rows.  Times in microseconds on an AMD EPYC with
VNNI and without AMX, one thread, weights not in the cache, of FBGEMM, oneDNN and a prepacked
product in bfloat16, for 1, 4, 64 and 256 rows:

- 512 x 512: 41, 45, 159, 470; 93, 93, 199, 511; 52, 50, 190, 632.
- 512 x 2,048: 76, 79, 447, 1,679; 150, 148, 498, 1,603; 150, 133, 675, 2,478.
- 512 x 32,000: 678, 686, 7,662, 43,789; 1,314, 1,106, 7,038, 23,902; 1,880, 1,688, 10,378, 38,093.

So there, `by_rows` computes wide products of many rows by oneDNN and all others by FBGEMM.  Both
give the same bits, so that a row does not depend on the number of rows.

Axes: R rows, I input width, O output width.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from . import processor
from .prepacked import InferenceLinear, exchange_linear, weight_and_bias

LEVELS: Final = 127
"""The largest integer of inputs, which are from -127 to 127."""
WEIGHT_LEVELS: Final = (127, 64)
"""Largest integers of a matrix, of which the first that a library multiplies exactly is used."""
ZERO: Final = 128
"""The unsigned integer that stands for 0 in inputs."""
Product = Callable[[Tensor], Tensor]
"""Maps x [..., I] in float32, from -1 to 1, to x W^T [..., O] in float32, with x rounded."""
MANY: Final = 64
"""Least number of rows of a wide product that oneDNN computes."""
WIDE: Final = 8192
"""Least output width of a wide product."""


class Packer(Protocol):
    """Prepares a matrix for its products."""

    def __call__(self, rounded_OI: Tensor, scale_O: Tensor) -> Product:
        """Return the product with a matrix.

        Args:
            rounded_OI: the matrix, in int8, [O, I].
            scale_O: scale of each output channel, float32, [O].
        """
        ...


def fbgemm(rounded_OI: Tensor, scale_O: Tensor) -> Product:
    """Return the product by FBGEMM; see `Packer`.

    Raises:
        NotImplementedError: a variable forbids its instructions; FBGEMM itself would use them.
    """
    if not processor.permits("AVX-512 VNNI"):
        raise NotImplementedError
    ops: Any = torch.ops.quantized
    zero_O = torch.zeros(len(scale_O), dtype=torch.int64)
    with warnings.catch_warnings():  # its tensors are deprecated; `packer` finds out if they exist
        warnings.simplefilter("ignore")
        matrix: Any = torch._make_per_channel_quantized_tensor(  # noqa: SLF001 - no public name
            rounded_OI, scale_O.double(), zero_O, 0
        )
        packed = ops.linear_prepack(matrix, None)
    operator = ops.linear_with_input_q_dq_qweight_dq_output_fp32.default
    # torch looks for fakes among the arguments, in Python, which takes a sixth of a small product.
    multiply = getattr(operator, "_op", operator)

    return lambda x: multiply(x, 1 / LEVELS, ZERO, packed)


def onednn(rounded_OI: Tensor, scale_O: Tensor) -> Product:
    """Return the product by oneDNN; see `Packer`."""
    ops: Any = torch.ops.onednn
    matrix = ops.qlinear_prepack(rounded_OI, None)
    zero_O, scale_O = torch.zeros(len(scale_O), dtype=torch.int32), scale_O * (1 / LEVELS)
    zero = torch.tensor(float(ZERO))
    extra: tuple[Any, ...] = (None, 1.0, 0, torch.float32, "none", [], "")

    def product(x: Tensor) -> Tensor:
        # Unsigned: oneDNN multiplies signed inputs by its reference loop if there is no AMX.
        # FBGEMM, too, adds ZERO before it rounds.
        unsigned = torch.add(zero, x, alpha=LEVELS).round_().to(torch.uint8)
        y: Tensor = ops.qlinear_pointwise(unsigned, 1.0, ZERO, matrix, scale_O, zero_O, *extra)
        return y

    return product


def by_rows(rounded_OI: Tensor, scale_O: Tensor) -> Product:
    """Return the product by FBGEMM, or by oneDNN if it is wide and has many rows; see `Packer`."""
    few = fbgemm(rounded_OI, scale_O)
    if len(rounded_OI) < WIDE:
        return few
    many = onednn(rounded_OI, scale_O)
    least = MANY * rounded_OI.size(1)
    return lambda x: many(x) if x.numel() >= least else few(x)


class Library(NamedTuple):
    """How this processor multiplies in int8."""

    pack: Packer
    levels: int
    """Largest integer of a matrix."""


@functools.cache
def library() -> Library | None:
    """Return how this processor multiplies in int8; None if no library is exact."""
    with torch.device("cpu"):  # models are under construction on the meta device
        levels = {pack: levels_of(pack) for pack in (onednn, fbgemm)}
    most = max(levels.values())
    exact = [pack for pack in levels if levels[pack] == most]
    if not most:
        return None
    return Library(exact[0] if processor.has("AMX") or len(exact) == 1 else by_rows, most)


def levels_of(pack: Packer) -> int:
    """Return the largest integer of matrices that a library multiplies exactly; 0 without one."""
    return next((levels for levels in WEIGHT_LEVELS if _is_exact(pack, levels)), 0)


def _is_exact(pack: Packer, levels: int) -> bool:
    """Return whether products of the largest integers are exact."""
    signs_O = torch.where(torch.arange(48) % 3 > 0, 1, -1)
    rounded_OI = (levels * signs_O[:, None]).expand(48, 96).to(torch.int8).contiguous()
    ones_I = torch.ones(96)
    x_RI = torch.stack([ones_I, -ones_I, (LEVELS * torch.linspace(-1, 1, 96)).round() / LEVELS])
    try:
        product_RO = pack(rounded_OI, torch.full((48,), 1 / levels))(x_RI)
    except (AttributeError, NotImplementedError, RuntimeError):  # another version or build of torch
        return False
    expected_RO = x_RI.sum(1, keepdim=True) * signs_O
    return bool((product_RO - expected_RO).abs().max() < 0.1 / LEVELS)  # sums of integers


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
_Packed = tuple[Product, Tensor | None]
"""A product with a rounded matrix, and the bias, [O], in float32, if there is one."""


class Int8Linear(InferenceLinear):
    """A linear map that rounds its matrix and its inputs to int8.

    Joined maps round their input once.
    """

    def pack(self, maps: Sequence[InferenceLinear]) -> _Packed:
        """Return the product with the rounded matrices of maps, and the biases."""
        chosen = library()
        assert chosen is not None  # noqa: S101 - see `quantize`
        weight_OI, bias_O = weight_and_bias(maps)
        product = chosen.pack(*rounded(weight_OI, chosen.levels))
        return product, None if bias_O is None else bias_O.float()

    def product(self, x: Tensor, packed: _Packed) -> Tensor:
        """Run the product of the rounded operands."""
        product, bias_O = packed
        if x.dtype != torch.float32:
            x = x.float()
        # A row of zeros gives 0 / 0 = NaN, which is rounded to some integer and multiplied by 0.
        peak = x.abs().amax(-1, keepdim=True)
        y = product(x / peak)
        y = y.mul_(peak) if bias_O is None else torch.addcmul(bias_O, y, peak, out=y)
        return y if self.dtype == torch.float32 else y.to(self.dtype)


def rounded(weight_OI: Tensor, levels: int) -> tuple[Tensor, Tensor]:
    """Return a matrix [O, I] rounded to int8, and the scale of each output channel [O].

    Args:
        weight_OI: the matrix.
        levels: the largest integer, for the largest absolute value of each channel.
    """
    scale_O = weight_OI.abs().amax(1).clamp(min=TINY) / levels
    return (weight_OI / scale_O[:, None]).round().to(torch.int8), scale_O


def quantize(model: nn.Module, dtype: torch.dtype) -> None:
    """Multiply in int8 where a linear map of a model under construction is large enough.

    Maps with LoRA and maps of a subclass with another `forward` stay as they are.

    Args:
        model: the model; its weights are set afterwards.
        dtype: dtype of the outputs, and of the products of the other maps.
    """

    def int8_linear(linear: nn.Linear) -> Int8Linear | None:
        large = is_large(linear.in_features * linear.out_features, dtype)
        return Int8Linear(linear.in_features, linear.out_features, dtype) if large else None

    exchange_linear(model, int8_linear)


def is_large(weights: int, dtype: torch.dtype) -> bool:
    """Return whether a matrix with this many weights is multiplied in int8 beside a dtype."""
    chosen = library()
    assert chosen is not None  # noqa: S101 - see `can_quantize`
    # FBGEMM also for `by_rows`.
    return weights >= LEAST["onednn" if chosen.pack is onednn else "fbgemm", dtype]


def can_quantize() -> bool:
    """Return whether this torch multiplies in int8 on this processor, exactly."""
    return library() is not None


def suits_float32() -> bool:
    """Return whether decoding in int8 is faster with the rest in float32 than in bfloat16.

    FBGEMM rounds from float32 and returns it, and multiplies all but the smallest matrices.
    """
    chosen = library()
    return chosen is not None and chosen.pack in (fbgemm, by_rows)
