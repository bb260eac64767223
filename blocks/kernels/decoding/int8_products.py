"""Products of matrices in int8 on a CPU: torch has two, and neither suits every processor.

FBGEMM converts the input while it multiplies; it uses VNNI, but not AMX.  oneDNN uses both, but
gets its input converted, and takes longer for few rows.  Times in microseconds on an AMD EPYC with
VNNI and without AMX, one thread, weights not in the cache, of FBGEMM, oneDNN and a prepacked
product in bfloat16, for 1, 4, 64 and 256 rows:

- 512 x 512: 41, 45, 159, 470; 93, 93, 199, 511; 52, 50, 190, 632.
- 512 x 2,048: 76, 79, 447, 1,679; 150, 148, 498, 1,603; 150, 133, 675, 2,478.
- 512 x 32,000: 678, 686, 7,662, 43,789; 1,314, 1,106, 7,038, 23,902; 1,880, 1,688, 10,378, 38,093.

So there, `by_rows` computes wide products of many rows by oneDNN and all others by FBGEMM.  Both
give the same bits, so that a row does not depend on the number of rows.  Inputs are rounded before,
since the libraries round values next to a half differently.

Axes: R rows, I input width, O output width.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, Final, Protocol

import torch
from torch import Tensor

from .. import processor

LEVELS: Final = 127
"""The largest integer; those of the matrix and of the input are from -127 to 127."""
ZERO: Final = 128
"""The unsigned integer that stands for 0 in inputs."""
Product = Callable[[Tensor], Tensor]
"""Maps integers x [R, I] in float32, from -127 to 127, to x W^T [R, O] in float32."""
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

    def product(x_RI: Tensor) -> Tensor:
        y_RO: Tensor = multiply(x_RI, 1.0, ZERO, packed)
        return y_RO

    return product


def onednn(rounded_OI: Tensor, scale_O: Tensor) -> Product:
    """Return the product by oneDNN; see `Packer`."""
    ops: Any = torch.ops.onednn
    matrix = ops.qlinear_prepack(rounded_OI, None)
    zero_O = torch.zeros(len(scale_O), dtype=torch.int32)
    extra: tuple[Any, ...] = (None, 1.0, 0, torch.float32, "none", [], "")

    def product(x_RI: Tensor) -> Tensor:
        signed_RI = x_RI.to(torch.int8)
        # Adds ZERO: oneDNN multiplies signed inputs by its reference loop if there is no AMX.
        rounded_RI = signed_RI.view(torch.uint8).bitwise_xor_(ZERO)
        y_RO: Tensor = ops.qlinear_pointwise(rounded_RI, 1.0, ZERO, matrix, scale_O, zero_O, *extra)
        return y_RO

    return product


def by_rows(rounded_OI: Tensor, scale_O: Tensor) -> Product:
    """Return the product by FBGEMM, or by oneDNN if it is wide and has many rows; see `Packer`."""
    few = fbgemm(rounded_OI, scale_O)
    if len(rounded_OI) < WIDE:
        return few
    many = onednn(rounded_OI, scale_O)
    return lambda x_RI: many(x_RI) if x_RI.size(0) >= MANY else few(x_RI)


@functools.cache
def packer() -> Packer | None:
    """Return the library that multiplies in int8 on this processor; None if none is exact."""
    with torch.device("cpu"):  # models are under construction on the meta device
        exact = [pack for pack in (onednn, fbgemm) if is_exact(pack)]
    if processor.has("AMX") or len(exact) < 2:  # noqa: PLR2004 - a choice
        return exact[0] if exact else None
    return by_rows


def is_exact(pack: Packer) -> bool:
    """Return whether products of the largest integers are exact.

    Processors without VNNI add pairs of products in 16 bits, which these exceed.
    """
    signs_O = torch.where(torch.arange(48) % 3 > 0, 1, -1)
    rounded_OI = (LEVELS * signs_O[:, None]).expand(48, 96).to(torch.int8).contiguous()
    ones_I = torch.ones(96)
    x_RI = (LEVELS * torch.stack([ones_I, -ones_I, torch.linspace(-1, 1, 96)])).round()
    try:
        found_RO = pack(rounded_OI, torch.full((48,), 1 / LEVELS))(x_RI)
    except (AttributeError, NotImplementedError, RuntimeError):  # another version or build of torch
        return False
    expected_RO = x_RI.sum(1, keepdim=True) * signs_O
    return bool((found_RO - expected_RO).abs().max() < 0.1)  # noqa: PLR2004 - sums of integers
