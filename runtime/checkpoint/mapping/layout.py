"""Layouts: which elements of a source tensor a target weight consists of, in which order.

A layout is a view of the source tensor, so the same code reads a weight from it and writes a weight
into it.  Only reshaping the view to the target weight copies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

Sizes = tuple[int, ...]
Ranges = tuple[int | tuple[int, int | None] | None, ...]
"""For each axis, an index, a range or null, which takes all."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What a layout says about the size of an axis of the source tensor."""

    size: int
    exact: bool
    """Whether the axis has this size; otherwise it is at least as long."""


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """The selection and order of elements; axes that are not mentioned stay as they are."""

    split: tuple[Sizes | None, ...] = ()
    """For each axis of the source, the sizes of the axes that it is split into; one may be -1."""
    take: Ranges = ()
    """For each axis after splitting, an index (which removes the axis) or a range."""
    permute: Sizes = ()
    """Order of the first axes after that."""
    tile: Sizes = ()
    """How many times the entries of each of the first axes are repeated, after that; -1 for one
    of them stands for as often as needed."""

    def view(self, tensor: Tensor) -> Tensor:
        """Return the selected elements, as a view of the source tensor.

        Raises:
            ValueError: an operation does not fit the shape.
            RuntimeError: sizes do not multiply to the size of their axis.
        """
        axis = 0
        for sizes in self.split:
            _in_range(axis, tensor)
            if sizes is not None:
                tensor = tensor.unflatten(axis, sizes)
            axis += len(sizes or (0,))
        tensor = selected(tensor, self.take)
        if not self.permute:
            return tensor
        if sorted(self.permute) != list(range(min(len(self.permute), tensor.dim()))):
            msg = f"{list(self.permute)} is not an order of the first of its {tensor.dim()} axes"
            raise ValueError(msg)
        return tensor.permute(*self.permute, *range(len(self.permute), tensor.dim()))

    def result(self, tensor: Tensor, shape: Sizes | None) -> Tensor:
        """Return the selected elements; neighbouring axes are joined to the target's shape.

        Elements that do not fit the shape are returned in theirs.

        Args:
            tensor: the source tensor.
            shape: shape of the target; None joins nothing.

        Raises:
            ValueError: an operation does not fit the shape of the tensor.
            RuntimeError: sizes do not multiply to the size of their axis.
        """
        view = self.view(tensor)
        if self.tile:
            view = self._tiled(view, shape)
        if shape is None or view.shape == shape or fit(list(view.shape), list(shape)) is None:
            return view
        return view.reshape(shape)

    def _tiled(self, view: Tensor, shape: Sizes | None) -> Tensor:
        """Return elements repeated along the first axes, if the target has as many.

        Raises:
            ValueError: it has not.
        """
        _in_range(len(self.tile) - 1, view)
        counts = [*self.tile, *(1,) * (view.dim() - len(self.tile))]
        if counts.count(-1) == 1 and shape is not None:
            others = -math.prod(counts) * view.numel()
            counts[counts.index(-1)] = math.prod(shape) // max(others, 1)
        size = view.numel() * math.prod(counts)
        if min(counts) < 1 or (shape is not None and size != math.prod(shape)):
            repeated = f"{list(view.shape)}, repeated {list(self.tile)} times,"
            msg = f"{repeated} does not fill {list(shape or ())}"
            raise ValueError(msg)
        return view.tile(counts)

    def extents(self, shape: Sizes) -> list[Extent]:
        """Return what is known about the source tensor of a target weight with a given shape.

        Raises:
            ValueError: the sizes do not determine the shape of the source tensor.
        """
        split_sizes: list[int | None] = []
        for sizes in self.split:
            split_sizes += (
                [None] if sizes is None else [None if size == -1 else size for size in sizes]
            )
        removed = sum(isinstance(which, int) for which in self.take)
        count = max(len(split_sizes), len(self.take), len(self.permute) + removed)
        split_sizes += [None] * (count - len(split_sizes))
        takes = [*self.take, *[None] * (count - len(self.take))]
        remaining = [axis for axis, which in enumerate(takes) if not isinstance(which, int)]
        order = [*self.permute, *range(len(self.permute), len(remaining))]
        sizes_ = [_kept(split_sizes[remaining[at]], takes[remaining[at]]) for at in order]
        for trailing in range(len(shape) + 1):
            cut = len(shape) - trailing
            fitted = fit(sizes_, list(shape[:cut]), join=bool(self.split))
            if fitted is not None:
                by_axis = {remaining[at]: size for at, size in zip(order, fitted, strict=True)}
                axes = [
                    _extent(split_sizes[axis], takes[axis], by_axis.get(axis, 1))
                    for axis in range(count)
                ]
                return [*self._joined(axes), *(Extent(size, exact=True) for size in shape[cut:])]
        msg = f"the shape {list(shape)} does not determine that of the source tensor"
        raise ValueError(msg)

    def _joined(self, axes: list[Extent]) -> list[Extent]:
        """Return the extents of the source's axes, given those after splitting."""
        extents: list[Extent] = []
        for sizes in self.split:
            part = axes[: len(sizes or (0,))]
            axes = axes[len(part) :]
            if len(part) > 1 and not all(extent.exact for extent in part):
                msg = "an axis that is split needs the size of each part that is not taken whole"
                raise ValueError(msg)
            extents.append(
                Extent(
                    math.prod(extent.size for extent in part), all(extent.exact for extent in part)
                )
            )
        return [*extents, *axes]


def selected(tensor: Tensor, ranges: Ranges) -> Tensor:
    """Return entries of a tensor, as a view.

    Args:
        tensor: the tensor.
        ranges: for each axis, an index (which removes it), a range or null.

    Raises:
        ValueError: the tensor has no such entries.
    """
    axis = 0
    for which in ranges:
        _in_range(axis, tensor)
        size = tensor.size(axis)
        if isinstance(which, int):
            if not -size <= which < size:
                msg = f"index {which} is out of range for its {size} entries"
                raise ValueError(msg)
            tensor = tensor.select(axis, which)
            continue
        if which is not None:
            first, last = _range(which, size)
            if not 0 <= first < last <= size:
                msg = f"{first} to {last} are out of range for its {size} entries"
                raise ValueError(msg)
            tensor = tensor.narrow(axis, first, last - first)
        axis += 1
    return tensor


def fit(sizes: Sequence[int | None], shape: Sequence[int], *, join: bool = True) -> Sizes | None:
    """Return the sizes of axes that have a shape when neighbours are joined, or None.

    Args:
        sizes: sizes of the axes; None for an unknown one.
        shape: the shape.
        join: whether axes may be joined at all.

    >>> fit([2, 3, None], [6, 5])
    (2, 3, 5)
    """
    if not shape:
        return () if not sizes else None
    most = len(sizes) - len(shape) + 1 if join else min(1, len(sizes))
    for count in range(1, most + 1):
        group = sizes[:count]
        product = math.prod(size for size in group if size is not None)
        unknown = sum(size is None for size in group)
        if (
            unknown > 1
            or not product
            or shape[0] % product
            or (not unknown and product != shape[0])
        ):
            continue
        after = fit(sizes[count:], shape[1:], join=join)
        if after is not None:
            return (*(shape[0] // product if size is None else size for size in group), *after)
    return None


def _in_range(axis: int, tensor: Tensor) -> None:
    if axis >= tensor.dim():
        msg = f"it has {tensor.dim()} axes, and axis {axis} is read"
        raise ValueError(msg)


def _range(which: tuple[int, int | None], size: int) -> tuple[int, int]:
    """Return the first and the last index of a range; negative ones count from the end."""
    first, last = which[0], size if which[1] is None else which[1]
    return first + size * (first < 0), last + size * (last < 0)


def _kept(size: int | None, which: int | tuple[int, int | None] | None) -> int | None:
    """Return the number of entries that are kept of an axis, if it is known."""
    if not isinstance(which, tuple):
        return size
    if size is not None:
        first, last = _range(which, size)
        return last - first
    bounded = which[1] is not None and (which[0] < 0) == (which[1] < 0)
    return (which[1] or 0) - which[0] if bounded else None


def _extent(size: int | None, which: int | tuple[int, int | None] | None, taken: int) -> Extent:
    """Return what is known about an axis of which some entries are kept."""
    if size is not None or which is None:
        return Extent(taken if size is None else size, exact=True)
    first, last = (which, which + 1) if isinstance(which, int) else which
    if first < 0 or (last is not None and last < 0):
        msg = "an index from the end needs the size of its axis; write it in 'split'"
        raise ValueError(msg)
    return Extent(first + taken, exact=last is None)
