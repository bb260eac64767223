"""Unpadding: gather the non-padding positions of a batch, and scatter them back.

In training with unpadding, modules exchange values `[R, D]` instead of `[B, T, D]`.  For most
modules this makes no difference.  Modules that depend on rows or on the order of positions
receive the `Rows` of the batch; the number of axes of a value shows whether it is unpadded.

Axes: B rows, T positions of a row, R non-padding positions of all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class Rows(NamedTuple):
    """Mapping between unpadded positions and the padded batch."""

    at: Tensor
    """[R]: index b * T + t of each unpadded position in the padded batch."""
    back: Tensor
    """[B * T]: index of the unpadded position at each padded position; R at padding."""
    mask: Tensor
    """[B, T], true at non-padding positions."""


class Batched:
    """Rows of the current batch, shared by the modules of a model."""

    def __init__(self) -> None:
        """Create an object without rows."""
        self.rows: dict[str, Rows | None] = {}
        """Rows of each unpadded time axis; None for an axis that this batch keeps padded."""
        self._counts: dict[str, int] = {}

    def join(self, model: nn.Module) -> None:
        """Share the rows with all modules of a model that declare unpadded ports, `places`."""
        modules: Iterable[Any] = model.modules()
        for module in modules:
            if hasattr(type(module), "places"):
                module.batched = self

    def expect(self, counts: Mapping[str, int]) -> None:
        """Set the numbers of non-padding tokens of inputs for the next `start`.

        Used is that of the mask of an axis, or, without a mask, that of its ids.
        """
        self._counts = dict(counts)

    def start(self, masks: Mapping[str, tuple[str, Tensor]], least: float = 0.0) -> None:
        """Find the rows of a batch.

        An axis stays padded if its number of tokens is unknown and counting them would wait for an
        accelerator, or if it has too little padding.

        Args:
            masks: time axis to the input that tells its padding, and its mask [B, T], which is
                true at non-padding tokens.
            least: fraction of padding from which an axis is unpadded, where counting is free.
        """
        self.rows.clear()
        for axis, (port, mask_BT) in masks.items():
            count = self._counts.get(port)
            free = counting_is_free(mask_BT)
            has_count = count is not None or free
            little = free and least > 0.0 and padding_of(mask_BT) < least
            self.rows[axis] = rows_of(mask_BT, count) if has_count and not little else None
        self._counts = {}

    def repeatable(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that computes the same when it is called again after another batch.

        Activation checkpointing calls it again in the backward pass, and a model that an objective
        runs twice has the rows of the last batch then.  Compiled code keeps the rows itself.
        """
        if torch.compiler.is_compiling():
            return function
        rows, counts = dict(self.rows), self._counts

        def repeated(*args: Any, **kwargs: Any) -> Any:
            self.rows, self._counts = dict(rows), counts
            return function(*args, **kwargs)

        return repeated

    def rows_of(self, value: Tensor, axis: str, rank: int) -> Rows | None:
        """Return the rows of an unpadded value; None for a padded value, which has `rank` axes."""
        return None if value.dim() >= rank else self.rows[axis]

    def padded(self, value: Any, axis: str, dim: int, rank: int) -> Any:
        """Pad a value that is an unpadded tensor; return any other as it is.

        Args:
            value: the value.
            axis: its time axis.
            dim: number of axes before the batch axis.
            rank: number of axes of the padded value.
        """
        if not isinstance(value, Tensor):
            return value
        return with_padding(value, self.rows_of(value, axis, rank), dim)


def padding_of(mask_BT: Tensor) -> float:
    """Return the fraction of a mask that is false."""
    return 1.0 - float(mask_BT.float().mean())


def non_padding(ids_BT: Tensor, pad: int) -> Tensor:
    """Return a mask [B, T], true up to the last non-padding id of each row.

    The first position is always true: some models begin their outputs with the padding id.
    """
    mask_BT = (ids_BT != pad).long().flip(1).cummax(1).values.flip(1) > 0
    mask_BT[:, 0] = True
    return mask_BT


def all_positions(value: Tensor, dim: int) -> Tensor:
    """Return a mask [B, T] that is true everywhere, for a value whose batch axis is `dim`."""
    return torch.ones(value.shape[dim : dim + 2], dtype=torch.bool, device=value.device)


def rows_of(mask_BT: Tensor, count: int | None = None) -> Rows:
    """Return the rows of a batch.

    Args:
        mask_BT: true at non-padding positions.
        count: number of non-padding positions; if None, counting them synchronizes with an
            accelerator.

    Raises:
        ValueError: `count` is wrong; noticed only where counting is free, on the CPU.
    """
    mask = mask_BT.flatten()
    free = counting_is_free(mask)
    at_R = mask.nonzero()[:, 0] if count is None or free else _first(mask, count)
    if free and count not in (None, len(at_R)):
        msg = f"expected {count} non-padding tokens, found {len(at_R)}"
        raise ValueError(msg)
    return Rows(at_R, (mask.cumsum(0) - 1).masked_fill(~mask, len(at_R)), mask_BT)


def counting_is_free(mask: Tensor) -> bool:
    """Return whether counting does not wait for an accelerator."""
    return mask.device.type == "cpu"


def _first(mask: Tensor, count: int) -> Tensor:
    """Return the indices of the first `count` true values, without counting them."""
    return (~mask).to(torch.uint8).argsort(stable=True)[:count]


def with_padding(value: Tensor, rows: Rows | None, dim: int = 0) -> Tensor:
    """Pad a value [..., R, ...] to [..., B, T, ...], with zeros at padding.

    Args:
        value: unpadded value; returned as is if `rows` is None.
        rows: rows of the value.
        dim: index of axis R.
    """
    if rows is None:
        return value
    full: Tensor = _WithPadding.apply(value, rows.at, rows.back, dim)  # type: ignore[no-untyped-call]
    shaped: Tensor = full.unflatten(dim, rows.mask.shape)
    return shaped


def without_padding(value: Tensor, rows: Rows | None, dim: int = 0) -> Tensor:
    """Unpad a value [..., B, T, ...] to [..., R, ...]; arguments as of `with_padding`."""
    if rows is None:
        return value
    flat = value.flatten(dim, dim + 1)
    taken: Tensor = _WithoutPadding.apply(flat, rows.at, rows.back, dim)  # type: ignore[no-untyped-call]
    return taken


def _scatter(value: Tensor, back: Tensor, dim: int) -> Tensor:
    """Scatter unpadded values to their padded positions.

    Implemented as a gather from the values with a zero appended: on a CPU, this is ten times
    as fast as writing the values into zeros.
    """
    zero = value.new_zeros(*value.shape[:dim], 1, *value.shape[dim + 1 :])
    return torch.cat((value, zero), dim).index_select(dim, back)


class _WithPadding(torch.autograd.Function):
    """Scatter values to padded positions; the backward pass gathers the gradients."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, at_R: Tensor, back: Tensor, dim: int) -> Tensor:
        """Scatter the values."""
        ctx.save_for_backward(at_R)
        ctx.dim = dim
        return _scatter(value, back, dim)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        """Gather the gradients."""
        (at_R,) = ctx.saved_tensors
        return grad.index_select(ctx.dim, at_R), None, None, None


class _WithoutPadding(torch.autograd.Function):
    """Gather positions, each at most once; gradients are scattered without accumulation."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, at_R: Tensor, back: Tensor, dim: int) -> Tensor:
        """Gather the values."""
        ctx.save_for_backward(back)
        ctx.dim = dim
        return value.index_select(dim, at_R)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        """Scatter the gradients."""
        (back,) = ctx.saved_tensors
        return _scatter(grad, back, ctx.dim), None, None, None
