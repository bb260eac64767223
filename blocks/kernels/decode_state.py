"""Decoding state of a block between steps.

Rows R = N sentences x K beams, ordered by sentence.  Tensors that depend only on the source
are stored once per sentence; only tensors that depend on the output of a beam are stored once
per row, so that reordering beams affects nothing else.

The `step` of a block processes the next position of every row, or several at once, as for a
prompt.  It returns the same values for them as `forward` does for the complete sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor


class Capacity(NamedTuple):
    """Sizes, dtype and device for which a decoding state is allocated."""

    sentences: int
    """Number of sentences N."""
    beams: int
    """Number of beams K per sentence."""
    length: int
    """Maximum number of positions to decode."""
    dtype: torch.dtype
    """Dtype of the state."""
    device: torch.device
    """Device of the state."""
    first: int | None = None
    """Positions for which buffers are allocated at first, if they are enlarged later."""
    candidates: Tensor | None = None
    """Ids of the logits that steps compute, if the graph has a shortlist; None for all."""

    lead: int = 0
    """Number of positions that come before the first step, included in `length`."""
    lengths: Mapping[str, int] = {}
    """Lengths of the axes of which the lead consists, by name."""

    def after(self, lead: int, **lengths: int) -> Capacity:
        """Return the capacity for as many positions after a lead.

        Args:
            lead: number of positions before the first step.
            lengths: the axes of which the lead consists.
        """
        first = None if self.first is None else self.first + lead
        return self._replace(length=self.length + lead, first=first, lead=lead, lengths=lengths)

    @property
    def rows(self) -> int:
        """Number of rows R = N * K."""
        return self.sentences * self.beams

    def zeros(self, shape: tuple[int, ...]) -> Tensor:
        """Return zeros of a shape, with this dtype and device."""
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    @property
    def allocated(self) -> int:
        """Number of positions for which `begin` allocates a buffer that is filled step by step."""
        return self.length if self.first is None else min(self.first, self.length)


class State(NamedTuple):
    """Decoding state of one block."""

    appended: dict[str, Tensor] = {}  # noqa: RUF012 - never changed in place
    """Buffers [R, ..., length, width] that are filled position by position."""
    carried: dict[str, Tensor] = {}  # noqa: RUF012 - never changed in place
    """Tensors [R, ...] that each step overwrites in place."""
    fixed: dict[str, Tensor] = {}  # noqa: RUF012 - never changed in place
    """Tensors [N, ...] that steps do not change."""


def so_far(state: State, name: str, value: Tensor, position: int, dim: int) -> Tensor:
    """Store a value of the next positions, and return that of all positions so far.

    Args:
        state: has a buffer of this name, whose positions are at dimension -2.
        name: the buffer.
        value: values [R, ...] of the next positions.
        position: index of the first of these.
        dim: dimension of the positions in `value`.
    """
    is_last = dim == value.dim() - 1
    value = value.unsqueeze(-1) if is_last else value.movedim(dim, -2)
    buffer, end = state.appended[name], position + value.size(-2)
    buffer[..., position:end, :] = value
    stored = buffer[..., :end, :]
    return stored.squeeze(-1) if is_last else stored.movedim(-2, dim)


def one_by_one(
    step: Callable[[Tensor, Tensor | None, int], Tensor],
    x: Tensor,
    mask: Tensor | None,
    position: int,
) -> Tensor:
    """Process several positions of x [R, T, ...] one at a time.

    Args:
        step: function of x [R, 1, ...], a mask [R, 1] and a position, which returns [R, 1, ...].
        x: inputs.
        mask: [R, T], or None.
        position: index of the first of these positions.
    """
    outputs = []
    for index in range(x.size(1)):
        span = slice(index, index + 1)
        mask_here = None if mask is None else mask[:, span]
        outputs.append(step(x[:, span], mask_here, position + index))
    return torch.cat(outputs, 1)
