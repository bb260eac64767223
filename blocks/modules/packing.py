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
    keep: Tensor
    """[B, T], true at each of them."""


class Place(Protocol):
    """Which axes of a value are packed; see `graphs/packing.py`."""

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
        packed = place is not None and value.dim() < place.rank
        return self.rows[place.axis] if packed and place is not None else None


def rows_of(keep_BT: Tensor, count: int | None = None) -> Rows:
    """Return the rows of a batch.

    Args:
        keep_BT: true where there is no padding.
        count: how many positions that is; an accelerator that must tell is waited for.
    """
    if count is None or keep_BT.device.type == "cpu":
        return Rows(keep_BT.flatten().nonzero()[:, 0], keep_BT)
    return Rows(_first(keep_BT.flatten(), count), keep_BT)


def _first(keep: Tensor, count: int) -> Tensor:
    """Return where the first `count` true values stand, without counting them."""
    return (~keep).to(torch.uint8).argsort(stable=True)[:count]


def padded(value: Tensor, rows: Rows | None, dim: int = 0) -> Tensor:
    """Return a value [..., R, ...] as [..., B, T, ...], zeros where padding is.

    Args:
        value: packed; returned as it is where `rows` is None.
        rows: where its positions belong.
        dim: axes before R.
    """
    if rows is None:
        return value
    places = rows.keep.numel()
    empty = value.new_zeros(*value.shape[:dim], places, *value.shape[dim + 1 :])
    full: Tensor = empty.index_copy(dim, rows.at, value).unflatten(dim, rows.keep.shape)
    return full


def packed(value: Tensor, rows: Rows | None, dim: int = 0) -> Tensor:
    """Return a value [..., B, T, ...] as [..., R, ...]; arguments as of `padded`."""
    if rows is None:
        return value
    taken: Tensor = _Packed.apply(value.flatten(dim, dim + 1), rows.at, dim)  # type: ignore[no-untyped-call]
    return taken


class _Packed(torch.autograd.Function):
    """Positions taken, each at most once: so their slopes are put, not added."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, at_R: Tensor, dim: int) -> Tensor:
        """Take them."""
        ctx.save_for_backward(at_R)
        ctx.dim, ctx.places = dim, value.size(dim)
        return value.index_select(dim, at_R)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_taken: Tensor) -> tuple[Tensor, None, None]:
        """Put the slopes where the values came from."""
        (at_R,) = ctx.saved_tensors
        shape = list(of_taken.shape)
        shape[ctx.dim] = ctx.places
        return of_taken.new_zeros(shape).index_copy(ctx.dim, at_R, of_taken), None, None
