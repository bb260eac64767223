"""Modules that combine two values, and modules that create masks.

Axes: B sequences, T positions, S memory positions; R rows = N sentences x beams.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..kernels.decode_state import Capacity, State


class LengthsToMask(nn.Module):
    """Convert lengths to a padding mask.

    Source: Vaswani et al. 2017, section 3.2.3.
    """

    def forward(self, lengths: Tensor, x: Tensor) -> Tensor:
        """Return a mask [B, T] for x [B, T, D], true at positions below the lengths [B]."""
        return torch.arange(x.size(1), device=x.device) < lengths[:, None]

    def begin(self, capacity: Capacity, lengths: Tensor) -> State:  # noqa: ARG002 - the contract
        """Return the decoding state: the lengths, [N]."""
        return State(fixed={"lengths": lengths})

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:
        """Return a mask [R, T] for the next positions, true below the length of each row."""
        lengths = state.fixed["lengths"]
        lengths_R = lengths.repeat_interleave(x.size(0) // lengths.size(0))
        return torch.arange(position, position + x.size(1), device=x.device) < lengths_R[:, None]


class Unfold(nn.Module):
    """Dynamic unfolding: add a second sequence of any length position by position.

    Source: Kalchbrenner et al. 2016, sections 3.1 and 3.2.
    """

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return x [B, T, D] plus the first T positions of memory [B, S, D], zero-padded.

        Args:
            x: a sequence, which gives the length of the output.
            memory: a second sequence.
            mask: [B, S], true at non-padding positions of the memory.
        """
        positions_T = torch.arange(x.size(1), device=x.device)
        last = memory.size(1) - 1
        memory_BTD = _masked(memory, mask).index_select(1, positions_T.clamp(max=last))
        return x + memory_BTD.masked_fill((positions_T > last)[:, None], 0.0)

    def begin(self, capacity: Capacity, memory: Tensor, mask: Tensor | None = None) -> State:  # noqa: ARG002
        """Return the decoding state: the memory, with zeros where it is masked."""
        return State(fixed={"memory": _masked(memory, mask)})

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:
        """Add the memory at the same positions to the next positions of every row, x [R, T, D]."""
        memory_NSD = state.fixed["memory"]
        positions_T = torch.arange(position, position + x.size(1), device=x.device)
        last = memory_NSD.size(1) - 1
        memory_NTD = memory_NSD.index_select(1, positions_T.clamp(max=last))
        memory_NTD = memory_NTD.masked_fill((positions_T > last)[:, None], 0.0)
        return x + memory_NTD.repeat_interleave(x.size(0) // memory_NTD.size(0), 0)


def _masked(memory: Tensor, mask: Tensor | None) -> Tensor:
    """Return memory [B, S, D] with zeros where the mask is false."""
    return memory if mask is None else memory.masked_fill(~mask[..., None], 0.0)
