"""Modules that shift sequences.

Axes: B sequences, T positions; R rows = B sequences x beams.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..kernels.decode_state import Capacity, State

_DTYPES = {"int64": torch.int64, "bool": torch.bool}


class Shift(nn.Module):
    """Shift a sequence along time.

    Source: to the right: Vaswani et al. 2017, section 3.1; to the left: Gloeckle et al. 2024,
    section 2.
    """

    def __init__(
        self,
        by: int,
        fill: float,
        dtype: str = "float",
        shape: Sequence[int] = (),
        dimension: int = 1,
    ) -> None:
        """Set the shift.

        Args:
            by: number of positions to the right, or if negative, to the left.
            fill: value at the open end.
            dtype: `int64`, `bool`, or `float` for that of the model.
            shape: sizes of the axes after that of time, for decoding.
            dimension: index of the time axis.
        """
        super().__init__()
        self.by, self.fill, self.dimension = by, fill, dimension
        self.dtype, self.shape = dtype, tuple(shape)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Shift x [B, T, ...].

        Args:
            x: sequences of any dtype.
            mask: [B, T], true at non-padding positions; the fill takes the place of the others.
        """
        if mask is not None:
            inner = (None,) * (x.dim() - 1 - self.dimension)
            x = x.masked_fill(~mask[(..., *inner)], self.fill)
        size = list(x.shape)
        size[self.dimension] = abs(self.by)
        filled = x.new_full(size, self.fill)
        if self.by > 0:
            return torch.cat([filled, x], self.dimension).narrow(
                self.dimension, 0, x.size(self.dimension)
            )
        return torch.cat([x, filled], self.dimension).narrow(
            self.dimension, -self.by, x.size(self.dimension)
        )

    def begin(self, capacity: Capacity) -> State:
        """Return the decoding state: the last positions of every row, at first the fill."""
        dtype = _DTYPES.get(self.dtype, capacity.dtype)
        size = (capacity.rows, self.by, *self.shape)
        return State(
            carried={"last": torch.full(size, self.fill, dtype=dtype, device=capacity.device)}
        )

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:  # noqa: ARG002
        """Return what precedes the next positions x [R, T, ...] of every row."""
        last = state.carried["last"]
        joined = torch.cat([last.to(x.dtype), x], 1)
        last.copy_(joined[:, -self.by :])
        return joined[:, : x.size(1)]
