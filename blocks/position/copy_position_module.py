"""Counted position: a position encoding of the number of ids in a range written so far.

Axes: B sequences, R decoding rows, T positions, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..kernels.decode_state import Capacity, State
from ..kernels.dropout import Dropout
from .position_module import sinusoids


class CountedPosition(nn.Module):
    """Add a sinusoidal encoding of a count, then apply dropout.

    Source: after Ma et al. 2017, section 3; encoding: Vaswani et al. 2017, section 3.5.
    """

    def __init__(
        self,
        below: int,
        first: int = 0,
        start: int = 0,
        dropout: float = 0.0,
        form: str = "interleaved",
    ) -> None:
        """Set the range of ids to count, `first` to `below` - 1; there are no parameters."""
        super().__init__()
        self.first, self.below, self.start, self.form = first, below, start, form
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        """Add the encoding of the counts up to each of ids [B, T] to x [B, T, D]."""
        return self._add(x, self.start + self._counted(ids).cumsum(1))

    def begin(self, capacity: Capacity) -> State:
        """Return the decoding state: the count of each row."""
        shape = (capacity.rows, 1)
        count_R1 = torch.full(shape, self.start, dtype=torch.long, device=capacity.device)
        return State(carried={"count": count_R1})

    def step(self, x: Tensor, ids: Tensor, *, state: State, position: int) -> Tensor:  # noqa: ARG002
        """Add the encoding of the counts up to each of the next ids [R, T] to x [R, T, D]."""
        count_RT = state.carried["count"] + self._counted(ids).cumsum(1)
        state.carried["count"].copy_(count_RT[:, -1:])
        return self._add(x, count_RT)

    def _counted(self, ids: Tensor) -> Tensor:
        """Return 1 where an id is in the range and 0 elsewhere."""
        return ((ids >= self.first) & (ids < self.below)).long()

    def _add(self, x: Tensor, count_BT: Tensor) -> Tensor:
        encoding = sinusoids(count_BT.flatten(), x.size(-1), self.form).unflatten(0, count_BT.shape)
        added: Tensor = self.dropout(x + encoding.to(x.dtype))
        return added
