"""Combine: modules that make one value of two, and masks of what they are made from.

Axes: B sequences, T positions, S positions that are read; R rows = N sentences x beams.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..kernels.decode_state import Capacity, State


class Add(nn.Module):
    """The sum of two values.

    Source: He et al. 2016, section 3.2.
    """

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """Return x + z, both [..., D]."""
        return x + z


class Concatenate(nn.Module):
    """Two vectors as one longer one.

    Source: Bahdanau et al. 2015, section 3.2.
    """

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """Join x [..., D] and z [..., E] into [..., D + E]."""
        return torch.cat([x, z], -1)


class LengthsToMask(nn.Module):
    """The mask that goes with lengths.

    Source: Vaswani et al. 2017, section 3.2.3.
    """

    def forward(self, lengths: Tensor, x: Tensor) -> Tensor:
        """Return [B, T], true at positions of x [B, T, D] below lengths [B]."""
        return torch.arange(x.size(1), device=x.device) < lengths[:, None]

    def begin(self, capacity: Capacity, lengths: Tensor) -> State:  # noqa: ARG002 - the contract
        """Remember the lengths, [N]."""
        return State(fixed={"lengths": lengths})

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:
        """Return [R, T], true where positions of x [R, T, D] are below the row's length."""
        lengths = state.fixed["lengths"]
        lengths_R = lengths.repeat_interleave(x.size(0) // lengths.size(0))
        return torch.arange(position, position + x.size(1), device=x.device) < lengths_R[:, None]


class MaskToBias(nn.Module):
    """A mask as numbers that are added to scores.

    Source: Vaswani et al. 2017, section 3.2.3.
    """

    def forward(self, mask: Tensor, x: Tensor) -> Tensor:
        """Return [B, T, S] for mask [B, S] and x [B, T, D]: 0 where kept, else -inf."""
        bias_BS = x.new_zeros(mask.shape).masked_fill(~mask, float("-inf"))
        return bias_BS[:, None].expand(-1, x.size(1), -1)


class Unfold(nn.Module):
    """A sequence unfolded over another of any length: position t gets what stands at t there.

    Source: Kalchbrenner et al. 2016, sections 3.1 and 3.2.
    """

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return x [B, T, D] plus the first T positions of memory [B, S, D]; zeros past its end.

        Args:
            x: the sequence whose length counts.
            memory: the other one.
            mask: [B, S], true where the memory counts.
        """
        positions_T = torch.arange(x.size(1), device=x.device)
        last = memory.size(1) - 1
        there_BTD = _kept(memory, mask).index_select(1, positions_T.clamp(max=last))
        return x + there_BTD.masked_fill((positions_T > last)[:, None], 0.0)

    def begin(self, capacity: Capacity, memory: Tensor, mask: Tensor | None = None) -> State:  # noqa: ARG002
        """Remember the memory, zeros where it is not kept."""
        return State(fixed={"memory": _kept(memory, mask)})

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:
        """Add to the next positions of every row, x [R, T, D], those of its sentence's memory."""
        memory_NSD = state.fixed["memory"]
        places_T = torch.arange(position, position + x.size(1), device=x.device)
        last = memory_NSD.size(1) - 1
        here_NTD = memory_NSD.index_select(1, places_T.clamp(max=last))
        here_NTD = here_NTD.masked_fill((places_T > last)[:, None], 0.0)
        return x + here_NTD.repeat_interleave(x.size(0) // here_NTD.size(0), 0)


def _kept(memory: Tensor, mask: Tensor | None) -> Tensor:
    """Return memory [B, S, D] with zeros where it is not kept."""
    return memory if mask is None else memory.masked_fill(~mask[..., None], 0.0)
