"""Packing: positions that are no padding, one after the other, and back in their rows.

While a model is trained on packed rows, its modules give `[R, D]` to one another instead of
`[B, T, D]`.  Most need not know.  One that looks at rows or at order is told where the
positions belong; what reaches it tells by its number of axes whether it is packed.

Axes: B rows, T positions of a row, R positions of all rows that are no padding.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Rows(NamedTuple):
    """Where packed positions belong."""

    at: Tensor
    """[R]: their numbers in the padded batch, row after row: b * T + t."""
    back: Tensor
    """[B * T]: which of them stands there, R for padding."""
    mask: Tensor
    """[B, T], true at each of them."""


class Place(Protocol):
    """Which axes of a value are packed, as `graphs/passes/unpad.py` says.

    A form of its own: an ejected model holds this file and nothing of graphs.
    """

    axis: str
    dim: int
    rank: int


class Batched:
    """What the modules of one model are told of the batch that they work on."""

    def __init__(self) -> None:
        """Know of none."""
        self.rows: dict[str, Rows] = {}

    def rows_of(self, value: Tensor, place: Place | None) -> Rows | None:
        """Return where the positions of a value belong; None for one that is padded."""
        if place is None or value.dim() >= place.rank:
            return None
        return self.rows[place.axis]


def rows_of(mask_BT: Tensor, count: int | None = None) -> Rows:
    """Return the rows of a batch.

    Args:
        mask_BT: true where there is no padding.
        count: how many positions that is; an accelerator that must tell is waited for.
    """
    mask = mask_BT.flatten()
    waits = count is None or mask.device.type == "cpu"
    at_R = mask.nonzero()[:, 0] if waits else _first(mask, count or 0)
    return Rows(at_R, (mask.cumsum(0) - 1).masked_fill(~mask, len(at_R)), mask_BT)


def _first(mask: Tensor, count: int) -> Tensor:
    """Return where the first `count` true values stand, without counting them."""
    return (~mask).to(torch.uint8).argsort(stable=True)[:count]


def with_padding(value: Tensor, rows: Rows | None, dim: int = 0) -> Tensor:
    """Return a value [..., R, ...] as [..., B, T, ...], zeros where padding is.

    Args:
        value: packed; returned as it is where `rows` is None.
        rows: where its positions belong.
        dim: axes before R.
    """
    if rows is None:
        return value
    full: Tensor = _WithPadding.apply(value, rows.at, rows.back, dim)  # type: ignore[no-untyped-call]
    shaped: Tensor = full.unflatten(dim, rows.mask.shape)
    return shaped


def without_padding(value: Tensor, rows: Rows | None, dim: int = 0) -> Tensor:
    """Return a value [..., B, T, ...] as [..., R, ...]; arguments as of `with_padding`."""
    if rows is None:
        return value
    flat = value.flatten(dim, dim + 1)
    taken: Tensor = _WithoutPadding.apply(flat, rows.at, rows.back, dim)  # type: ignore[no-untyped-call]
    return taken


def _put_back(value: Tensor, back: Tensor, dim: int) -> Tensor:
    """Return packed values at their places.

    They are read, with a zero at their end: ten times as fast on a CPU as written into zeros.
    """
    zero = value.new_zeros(*value.shape[:dim], 1, *value.shape[dim + 1 :])
    return torch.cat((value, zero), dim).index_select(dim, back)


class _WithPadding(torch.autograd.Function):
    """Positions put back; each gradient is read from where its value went."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, at_R: Tensor, back: Tensor, dim: int) -> Tensor:
        """Put them."""
        ctx.save_for_backward(at_R)
        ctx.dim = dim
        return _put_back(value, back, dim)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_full: Tensor) -> tuple[Tensor, None, None, None]:
        """Take the gradients."""
        (at_R,) = ctx.saved_tensors
        return of_full.index_select(ctx.dim, at_R), None, None, None


class _WithoutPadding(torch.autograd.Function):
    """Positions taken, each at most once; their gradients are put back, not added."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, at_R: Tensor, back: Tensor, dim: int) -> Tensor:
        """Take them."""
        ctx.save_for_backward(back)
        ctx.dim = dim
        return value.index_select(dim, at_R)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_taken: Tensor) -> tuple[Tensor, None, None, None]:
        """Put the gradients."""
        (back,) = ctx.saved_tensors
        return _put_back(of_taken, back, ctx.dim), None, None, None
