"""Rows: products of many rows in bfloat16 on the CPU, in few shapes.

oneDNN writes machine code for every shape that it meets, and keeps that of bfloat16 products
for as long as the process lives: 0.3 MB for each number of rows and each of the three products
of a linear map, and as much again in a cache of its own.  Batches have ever new numbers of rows,
so a training grew by gigabytes.  Here rows are multiplied in a few parts whose sizes come
from a short list.  The values are the same; only the gradient at the weight adds up in parts.

Axes: R rows, I width of what is read, O width of what is given.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

FEWEST = 256
"""Rows below which they are multiplied at once: so many shapes do no harm."""
STEPS = 16
"""Sizes of parts between a power of two and the next."""
SMALLEST = 32
"""Rows of the smallest part; what is left over is filled up to a multiple of it."""


def parts(rows: int) -> Iterator[int]:
    """Yield sizes of parts that together hold the rows: the last may hold some more.

    Each is the greatest from the list that fits, and the list has `STEPS` sizes for every
    power of two, so that parts are few as well.
    """
    while rows > 0:
        step = max(SMALLEST, (1 << (rows.bit_length() - 1)) // STEPS)
        size = max(SMALLEST, rows // step * step)
        # Little is left: one part that holds all is better than two.
        if rows < FEWEST:
            size = -(-rows // SMALLEST) * SMALLEST
        yield size
        rows -= size


def serves(x: Tensor, weight_OI: Tensor) -> bool:
    """Say whether a linear map of these is one that oneDNN multiplies in bfloat16, of many rows."""
    # Asked first: a compiler would make a graph for few rows and another for many.
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
    """Return a b^T + bias, rows in parts."""
    b_IO = b_OI.t()
    y_RO = a_RI.new_empty(len(a_RI), len(b_OI))
    for start, size in _places(len(a_RI)):
        into = y_RO[start : start + size]
        made = into if len(into) == size else a_RI.new_empty(size, len(b_OI))
        if bias_O is None:
            torch.mm(_part(a_RI, start, size), b_IO, out=made)
        else:
            torch.addmm(bias_O, _part(a_RI, start, size), b_IO, out=made)
        if made is not into:
            into.copy_(made[: len(into)])
    return y_RO


def summed_in_parts(a_RO: Tensor, b_RI: Tensor) -> Tensor:
    """Return a^T b, the sum over rows in parts."""
    y_OI: Tensor | None = None
    for start, size in _places(len(a_RO)):
        part_OI = _part(a_RO, start, size).t() @ _part(b_RI, start, size)
        y_OI = part_OI if y_OI is None else y_OI.add_(part_OI)
    return a_RO.new_zeros(a_RO.size(1), b_RI.size(1)) if y_OI is None else y_OI


def _places(rows: int) -> Iterator[tuple[int, int]]:
    """Yield where each part begins, and its size."""
    start = 0
    for size in parts(rows):
        yield start, size
        start += size


def _part(x_RI: Tensor, start: int, size: int) -> Tensor:
    """Return rows from a start on, with rows of zeros where there are not so many."""
    part = x_RI[start : start + size]
    if len(part) == size:
        return part
    filled = x_RI.new_zeros(size, x_RI.size(1))
    filled[: len(part)] = part
    return filled
