"""Linear recurrence: a factor and a term for each element and position.

Axes: B sequences, T positions, D elements; R rows = sentences x beams.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..kernels.affine_scan import affine_scan
from ..kernels.decode_state import Capacity, State


class LinearRecurrence(nn.Module):
    """The recurrence y_t = a_t y_{t-1} + x_t of each element, computed in groups of positions.

    Source: Martin & Cundy 2018, section 2; groups: Blelloch 1990, section 1.4.1.
    """

    def __init__(self, d: int) -> None:
        """Store the number of elements."""
        super().__init__()
        self.d = d

    def forward(
        self, x: Tensor, a: Tensor, start: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Return the state after each position, [B, T, D].

        Args:
            x: vectors to add to the state, [B, T, D].
            a: factors of the previous state, [B, T, D].
            start: state before the first position, [B, D]; zero if None.
            mask: [B, T]; where false, the state does not change.
        """
        return self._states(x, a, start, mask).to(x.dtype)

    def begin(self, capacity: Capacity, start: Tensor | None = None) -> State:
        """Return the decoding state: `start` or zero for every row, in float32 at least."""
        kind = torch.promote_types(capacity.dtype, torch.float32)
        if start is None:
            state = torch.zeros(capacity.rows, self.d, dtype=kind, device=capacity.device)
        else:
            state = start.to(kind).repeat_interleave(capacity.beams, 0)
        return State(carried={"state": state})

    def step(
        self, x: Tensor, a: Tensor, mask: Tensor | None = None, *, state: State, position: int
    ) -> Tensor:
        """Process the next positions of every row, x and a [R, T, D], with a mask [R, T]."""
        del position
        states = self._states(x, a, state.carried["state"], mask)
        state.carried["state"].copy_(states[:, -1])
        return states.to(x.dtype)

    def _states(self, x: Tensor, a: Tensor, start: Tensor | None, mask: Tensor | None) -> Tensor:
        """Return the state after each position, [B, T, D], in float32 at least."""
        kind = torch.promote_types(x.dtype, torch.float32)
        x, a = x.to(kind), a.to(kind)
        if mask is not None:
            x, a = x.masked_fill(~mask[..., None], 0.0), a.masked_fill(~mask[..., None], 1.0)
        return affine_scan(a, x, start if start is None else start.to(kind))
