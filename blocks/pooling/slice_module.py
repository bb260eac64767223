"""Modules that select elements of an axis, or split a width.

Axes: B sequences, T positions, L layers, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

DIMENSIONS = {"layer": 0, "time": 1, "width": -1}
"""Maps each name of an axis to its dimension."""


class Slice(nn.Module):
    """Select elements of an axis.

    Source: Devlin et al. 2019, section 3.2 (the first position); Dai et al. 2020, section 2.
    """

    def __init__(
        self,
        axis: str,
        index: int | None = None,
        start: int = 0,
        stop: int | None = None,
        step: int = 1,
    ) -> None:
        """Set the axis, and what to select: the element `index`, or `start:stop:step`."""
        super().__init__()
        self.dimension = DIMENSIONS[axis]
        self.index, self.start, self.stop, self.step = index, start, stop, step

    def forward(self, x: Tensor) -> Tensor:
        """Return the selected elements of x: [B, T, D], [..., D] or [L, B, T, D].

        Raises:
            ValueError: the axis is shorter than the selection.
        """
        length = x.size(self.dimension)
        if self.index is not None:
            self._refuse_short(length, self.index + 1 if self.index >= 0 else -self.index)
            return x.select(self.dimension, self.index)
        backwards = self.stop is None or self.stop < 0
        least = self.start + 1 - (self.stop or 0) if backwards else self.stop
        self._refuse_short(length, least or 0)
        end = length + (self.stop or 0) if backwards else self.stop
        selection = slice(self.start, end, self.step)
        before = x.dim() + self.dimension if self.dimension < 0 else self.dimension
        return x[(*[slice(None)] * before, selection)]

    def _refuse_short(self, length: int, least: int) -> None:
        if length < least:
            msg = f"the axis has {length} elements, but the slice needs at least {least}"
            raise ValueError(msg)


class Split(nn.Module):
    """Split each vector into parts.

    Source: Dauphin et al. 2017, section 2.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        """Set the width of each part."""
        super().__init__()
        self.sizes = list(sizes)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return the parts of x [..., D]."""
        parts: tuple[Tensor, ...] = x.split(self.sizes, -1)
        return parts
