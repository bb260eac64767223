"""Products of blocks of rows with the matrices of experts, as operators of a compiled graph.

How many rows an expert has is known only from data, so a compiler would end its graph there.  The
operators have backward passes of their own, which consist of the same two operators.

Axes: E experts, M rows sorted by expert, I and O widths of inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import register_flop_formula

from .precision import without_autocast

ALIGNED = 8
"""Widths that the kernel for all experts needs are multiples of this."""

_LIBRARY = torch.library.Library("weft", "FRAGMENT")
for _signature in (
    "expert_matmul(Tensor x, Tensor weight, Tensor count) -> Tensor",
    "expert_outer(Tensor x, Tensor y, Tensor count) -> Tensor",
):
    _LIBRARY.define(_signature, tags=torch.Tag.pt2_compliant_tag)


def expert_matmul(x_MI: Tensor, weight_EIO: Tensor, count_E: Tensor) -> Tensor:
    """Return each block of rows times the matrix of its expert, [M, O].

    Args:
        x_MI: rows, sorted by expert.
        weight_EIO: a matrix for each expert, of the dtype of the rows.
        count_E: number of rows of each expert; they sum to M.
    """
    product: Tensor = torch.ops.weft.expert_matmul(x_MI, weight_EIO, count_E)
    return product


def expert_outer(x_MI: Tensor, y_MO: Tensor, count_E: Tensor) -> Tensor:
    """Return the sum of x^T y over the rows of each expert, [E, I, O]; arguments as above."""
    product: Tensor = torch.ops.weft.expert_outer(x_MI, y_MO, count_E)
    return product


def _at_once(*widths: Tensor) -> bool:
    """Return whether one kernel multiplies for all experts, without waiting for the counts."""
    aligned = all(tensor.size(-1) % ALIGNED == 0 for tensor in widths)
    return widths[0].dtype == torch.bfloat16 and aligned


def _ends(count_E: Tensor) -> Tensor:
    return count_E.cumsum(0).to(torch.int32)


def _blocks(count_E: Tensor, *rows: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield the rows of each expert."""
    sizes = count_E.tolist()
    yield from zip(*(part.split(sizes) for part in rows), strict=True)


def _matmul(x_MI: Tensor, weight_EIO: Tensor, count_E: Tensor) -> Tensor:
    if _at_once(x_MI, weight_EIO):
        return F.grouped_mm(x_MI, weight_EIO, offs=_ends(count_E))
    y_MO = x_MI.new_empty(x_MI.size(0), weight_EIO.size(2))
    with without_autocast(x_MI):
        blocks = zip(_blocks(count_E, x_MI, y_MO), weight_EIO, strict=True)
        for (part, product), weight_IO in blocks:
            torch.mm(part, weight_IO, out=product)
    return y_MO


def _outer(x_MI: Tensor, y_MO: Tensor, count_E: Tensor) -> Tensor:
    if _at_once(x_MI, y_MO):
        return F.grouped_mm(x_MI.mT, y_MO, offs=_ends(count_E))
    product_EIO = x_MI.new_empty(count_E.size(0), x_MI.size(1), y_MO.size(1))
    with without_autocast(x_MI):
        blocks = zip(_blocks(count_E, x_MI, y_MO), product_EIO, strict=True)
        for (part, other), product_IO in blocks:
            torch.mm(part.mT, other, out=product_IO)
    return product_EIO


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    """Keep what the backward passes read."""
    del output
    ctx.save_for_backward(*inputs)


def _gradients_of_matmul(ctx: Any, gradient_MO: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients of rows and matrices; they can be differentiated again."""
    x_MI, weight_EIO, count_E = ctx.saved_tensors
    of_x = of_weight = None
    gradient_MO = gradient_MO.contiguous()
    if ctx.needs_input_grad[0]:
        of_x = expert_matmul(gradient_MO, weight_EIO.mT, count_E)
    if ctx.needs_input_grad[1]:
        of_weight = expert_outer(x_MI, gradient_MO, count_E)
    return of_x, of_weight, None


def _gradients_of_outer(ctx: Any, gradient_EIO: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients of both rows; they can be differentiated again."""
    x_MI, y_MO, count_E = ctx.saved_tensors
    of_x = of_y = None
    if ctx.needs_input_grad[0]:
        of_x = expert_matmul(y_MO, gradient_EIO.mT, count_E)
    if ctx.needs_input_grad[1]:
        of_y = expert_matmul(x_MI, gradient_EIO, count_E)
    return of_x, of_y, None


def _sized_matmul(x_MI: Tensor, weight_EIO: Tensor, count_E: Tensor) -> Tensor:
    del count_E
    return x_MI.new_empty(x_MI.size(0), weight_EIO.size(2))


def _sized_outer(x_MI: Tensor, y_MO: Tensor, count_E: Tensor) -> Tensor:
    return x_MI.new_empty(count_E.size(0), x_MI.size(1), y_MO.size(1))


def _flops(x: Sequence[int], other: Sequence[int], *_: Any, **__: Any) -> int:
    """Count products, for torch's counter, which gives the shapes of tensors."""
    return 2 * x[0] * x[1] * other[-1]


for _name, _kernel, _sized, _gradients in (
    ("expert_matmul", _matmul, _sized_matmul, _gradients_of_matmul),
    ("expert_outer", _outer, _sized_outer, _gradients_of_outer),
):
    _LIBRARY.impl(_name, _kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"weft::{_name}", _sized, lib=_LIBRARY)
    torch.library.register_autograd(f"weft::{_name}", _gradients, setup_context=_save, lib=_LIBRARY)
    register_flop_formula(getattr(torch.ops.weft, _name))(_flops)
