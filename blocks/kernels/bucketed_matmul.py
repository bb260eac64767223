"""Matrix products of many rows in bfloat16 on the CPU, computed in a limited set of shapes.

oneDNN generates machine code for every shape, and keeps the code of bfloat16 products for the
lifetime of the process: 0.3 MB for each number of rows and each of the three products of a
linear map, and as much again in a separate cache.  Batches have many different numbers of
rows, so the memory of a training grew by gigabytes.  Here, rows are multiplied in a few parts
whose sizes come from a short list.  The values are the same; only the gradient of the weight
is summed in parts.

Axes: R rows, I input width, O output width.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

FEWEST = 256
"""Number of rows below which they are multiplied at once: so few shapes are harmless."""
STEPS = 16
"""Number of part sizes between consecutive powers of two."""
SMALLEST = 32
"""Rows of the smallest part; the remainder is padded to a multiple of it."""


def parts(rows: int) -> Iterator[int]:
    """Yield the sizes of parts that together cover the rows; the last part may exceed them.

    Each part has the largest size from the list that fits.  The list has `STEPS` sizes per
    power of two, so there are few parts, too.
    """
    while rows > 0:
        step = max(SMALLEST, (1 << (rows.bit_length() - 1)) // STEPS)
        size = max(SMALLEST, rows // step * step)
        # For a small remainder, one part that covers it is better than two.
        if rows < FEWEST:
            size = -(-rows // SMALLEST) * SMALLEST
        yield size
        rows -= size


def serves(x: Tensor, weight_OI: Tensor) -> bool:
    """Return whether a linear map is computed by oneDNN in bfloat16 on many rows."""
    # Checked first: a compiler would create separate graphs for few and for many rows.
    if torch.compiler.is_compiling():
        return False
    if x.device.type != "cpu" or x.numel() < FEWEST * x.size(-1):
        return False
    if torch.is_autocast_enabled("cpu"):
        half = torch.get_autocast_dtype("cpu") == torch.bfloat16
        half = half and {x.dtype, weight_OI.dtype} <= {torch.float32, torch.bfloat16}
    else:
        half = x.dtype == weight_OI.dtype == torch.bfloat16
    return (
        half
        and type(x) is Tensor
        and type(weight_OI) in (Tensor, nn.Parameter)
        and torch.backends.mkldnn.is_available()
    )


def times_in_parts(a_RI: Tensor, b_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    """Return a b^T + bias, computed in parts of rows."""
    b_IO = b_OI.t()
    y_RO = a_RI.new_empty(len(a_RI), len(b_OI))
    for start, size in _ranges(len(a_RI)):
        target = y_RO[start : start + size]
        product = target if len(target) == size else a_RI.new_empty(size, len(b_OI))
        if bias_O is None:
            torch.mm(_part(a_RI, start, size), b_IO, out=product)
        else:
            torch.addmm(bias_O, _part(a_RI, start, size), b_IO, out=product)
        if product is not target:
            target.copy_(product[: len(target)])
    return y_RO


def summed_in_parts(a_RO: Tensor, b_RI: Tensor) -> Tensor:
    """Return a^T b, summed over parts of rows."""
    y_OI: Tensor | None = None
    for start, size in _ranges(len(a_RO)):
        part_OI = _part(a_RO, start, size).t() @ _part(b_RI, start, size)
        y_OI = part_OI if y_OI is None else y_OI.add_(part_OI)
    return a_RO.new_zeros(a_RO.size(1), b_RI.size(1)) if y_OI is None else y_OI


def _ranges(rows: int) -> Iterator[tuple[int, int]]:
    """Yield the first row and the size of each part."""
    start = 0
    for size in parts(rows):
        yield start, size
        start += size


def _part(x_RI: Tensor, start: int, size: int) -> Tensor:
    """Return `size` rows from `start` on, padded with rows of zeros."""
    part = x_RI[start : start + size]
    if len(part) == size:
        return part
    padded = x_RI.new_zeros(size, x_RI.size(1))
    padded[: len(part)] = part
    return padded
