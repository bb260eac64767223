"""Rows: products of many rows in bfloat16 on the CPU, in few shapes.

oneDNN writes machine code for every shape that it meets, and keeps that of bfloat16 products
for as long as the process lives: 0.3 MB for each number of rows and each of the three products
of a linear map, and as much again in a cache of its own.  Batches have ever new numbers of rows,
so a training grew by gigabytes.  Here rows are multiplied in a few parts whose sizes come
from a short list.  The values are the same; only the slope at the weight adds up in parts.

Axes: R rows, I width of what is read, O width of what is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

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


def linear_in_parts(x: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    """Return x W^T + b in bfloat16, for x [..., I]."""
    half = torch.bfloat16
    bias = None if bias_O is None else bias_O.to(half)
    y: Tensor = _InParts.apply(x.to(half), weight_OI.to(half), bias)  # type: ignore[no-untyped-call]
    return y


class _InParts(torch.autograd.Function):
    """A linear map whose three products see few numbers of rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        """Return x W^T + b."""
        ctx.save_for_backward(x, weight_OI)
        ctx.has_bias = bias_O is not None
        weight_IO = weight_OI.t()

        def product(x_RI: Tensor, y_RO: Tensor) -> None:
            if bias_O is None:
                torch.mm(x_RI, weight_IO, out=y_RO)
            else:
                torch.addmm(bias_O, x_RI, weight_IO, out=y_RO)

        return _mapped(as_rows(x), weight_OI.size(0), product).view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_y: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return the slopes at x, W and b."""
        x, weight_OI = ctx.saved_tensors
        of_y_RO = as_rows(of_y)
        of_x = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:

            def product(of_y_RO: Tensor, of_x_RI: Tensor) -> None:
                torch.mm(of_y_RO, weight_OI, out=of_x_RI)

            of_x = _mapped(of_y_RO, weight_OI.size(1), product).view(x.shape)
        if ctx.needs_input_grad[1]:
            for start, size in _places(of_y_RO.size(0)):
                of_y_part, x_part = (_part(full, start, size) for full in (of_y_RO, as_rows(x)))
                of_part = of_y_part.t() @ x_part
                of_weight = of_part if of_weight is None else of_weight.add_(of_part)
        if ctx.has_bias and ctx.needs_input_grad[2]:
            of_bias = of_y_RO.sum(0)
        return of_x, of_weight, of_bias


def as_rows(x: Tensor) -> Tensor:
    """[..., I] to [R, I], in memory row after row."""
    return x.reshape(-1, x.size(-1)).contiguous()


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


def _mapped(x_RI: Tensor, width: int, product: Callable[[Tensor, Tensor], None]) -> Tensor:
    """Return what a product makes of the rows, part by part."""
    y_RO = x_RI.new_empty(len(x_RI), width)
    for start, size in _places(len(x_RI)):
        into = y_RO[start : start + size]
        if len(into) == size:
            product(x_RI[start : start + size], into)
        else:
            made = x_RI.new_empty(size, width)
            product(_part(x_RI, start, size), made)
            into.copy_(made[: len(into)])
    return y_RO
