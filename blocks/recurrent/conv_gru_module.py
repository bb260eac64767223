"""Convolutional recurrence: a gated unit that changes a whole sequence at once.

Axes: B sequences, T steps and positions that are decoded, S positions of the memory,
L = max(S, T) positions of the state, D its width, E width of what is written; R rows =
N sentences x beams.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.autocast import uncompiled
from ..kernels.decode_state import Capacity, State, one_by_one


class ConvGRU(nn.Module):
    """Convolutional gated recurrent unit.

    With gates u, r = sigmoid(U' * x + b'), the next state is u x + (1 - u) tanh(U * (r x) + b);
    `*` convolves over positions.

    Source: Kaiser & Sutskever 2016, section 2.
    """

    def __init__(self, d_model: int, kernel: int) -> None:
        """Make the convolutions of the gates, D to 2 D, and of the candidate, D to D."""
        super().__init__()
        self.gates = nn.Conv1d(d_model, 2 * d_model, kernel, padding=kernel // 2)
        self.candidate = nn.Conv1d(d_model, d_model, kernel, padding=kernel // 2)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; gates start open, with a bias of 1."""
        for convolution in (self.gates, self.candidate):
            nn.init.xavier_uniform_(convolution.weight, generator=generator)
        if self.gates.bias is not None and self.candidate.bias is not None:
            nn.init.ones_(self.gates.bias)
            nn.init.zeros_(self.candidate.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the next state of x [B, T, D].

        Args:
            x: the state.
            mask: [B, T]; where false zeros stand, before and after.
        """
        state_BDT = x.transpose(1, 2)
        if mask is None:
            return self._next(state_BDT).transpose(1, 2)
        absent = ~mask[:, None]
        state_BDT = state_BDT.masked_fill(absent, 0.0)
        return self._next(state_BDT).masked_fill(absent, 0.0).transpose(1, 2)

    def _next(self, state_BDT: Tensor, written: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Return the next state; `written` is what is added inside gates and candidate."""
        gates = self.gates(state_BDT)
        if written is not None:
            gates = gates + written[0]
        update, reset = gates.sigmoid().chunk(2, 1)
        candidate = self.candidate(reset * state_BDT)
        if written is not None:
            candidate = candidate + written[1]
        following: Tensor = update * state_BDT + (1 - update) * candidate.tanh()
        return following


class _WritingConvGRU(ConvGRU):
    """The unit of the decoder: gates and candidate also read what has been written.

    Source: Kaiser & Bengio 2016, section 3.1.
    """

    def __init__(self, d_model: int, d_in: int, kernel: int) -> None:
        """Make the unit, and the convolution of what is written, E to 3 D."""
        super().__init__(d_model, kernel)
        self.written = nn.Conv1d(d_in, 3 * d_model, kernel, padding=kernel // 2, bias=False)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; gates start open, with a bias of 1."""
        super().initialize(generator)
        nn.init.xavier_uniform_(self.written.weight, generator=generator)

    def advance(self, state_BDL: Tensor, tape_BEL: Tensor, alive_B1L: Tensor) -> Tensor:
        """Return the next state, zeros where it is not alive."""
        width = state_BDL.size(1)
        gates, candidate = self.written(tape_BEL).split((2 * width, width), 1)
        return self._next(state_BDL, (gates, candidate)).masked_fill(~alive_B1L, 0.0)


class ConvGRUDecoder(nn.Module):
    """Decoder with an active memory.

    The state begins as the memory.  Step t writes x_t at position t of a tape, moves the
    whole state by every unit in turn, and gives what then stands at position t.  Positions
    past the end of the memory come alive one at a time, when a step reaches them, so that
    a result depends neither on how far a batch is padded nor on how long it will get.

    Source: Kaiser & Bengio 2016, section 3.1.  There a state has w rows, of which the first
    is read, and an output is written where it was read, one position before ours.
    """

    def __init__(self, d_model: int, d_in: int, kernel: int, cells: int) -> None:
        """Make the units."""
        super().__init__()
        self.d_in = d_in
        self.cells = nn.ModuleList(_WritingConvGRU(d_model, d_in, kernel) for _ in range(cells))

    @uncompiled
    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Decode as many steps as x [B, T, E] has positions, from memory [B, S, D].

        Args:
            x: what each step writes.
            memory: the state before the first step.
            mask: [B, S], true where the memory counts.

        Returns:
            Position t of the state after step t, [B, T, D].
        """
        length = max(x.size(1), memory.size(1))
        state_BDL, alive_BL = _room_for(memory, mask, length)
        written_BLE = F.pad(x, (0, 0, 0, length - x.size(1)))
        positions_L = torch.arange(length, device=x.device)
        read = []
        for position in range(x.size(1)):
            reached_L = positions_L <= position
            tape_BEL = written_BLE.masked_fill(~reached_L[:, None], 0.0).transpose(1, 2)
            state_BDL = self._advance(state_BDL, tape_BEL, alive_BL | reached_L)
            read.append(state_BDL[:, :, position])
        return torch.stack(read, 1)

    def begin(self, capacity: Capacity, memory: Tensor, mask: Tensor | None = None) -> State:
        """Give every row a state of its own, long enough, and an empty tape."""
        length = max(capacity.length, memory.size(1))
        state_NDL, alive_NL = _room_for(memory, mask, length)
        tape = torch.zeros(
            (capacity.rows, self.d_in, length), dtype=capacity.dtype, device=capacity.device
        )
        state = state_NDL.to(capacity.dtype).repeat_interleave(capacity.beams, 0).contiguous()
        return State(carried={"state": state, "tape": tape}, fixed={"alive": alive_NL})

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:
        """Do the next steps of every row, with x [R, T, E] written first; gives [R, T, D]."""
        return one_by_one(lambda x, _, position: self._step(x, state, position), x, None, position)

    def _step(self, x: Tensor, state: State, position: int) -> Tensor:
        """Do one step of every row, with x [R, 1, E] written first; gives [R, 1, D]."""
        moved, tape = state.carried["state"], state.carried["tape"]
        # By index and not by slice, so that one exported graph serves every position.
        here_1 = torch.arange(position, position + 1, device=x.device)
        tape.index_copy_(2, here_1, x.transpose(1, 2).to(tape.dtype))
        alive_NL = state.fixed["alive"]
        reached_L = torch.arange(tape.size(2), device=x.device) <= position
        alive_RL = (alive_NL | reached_L).repeat_interleave(x.size(0) // alive_NL.size(0), 0)
        moved.copy_(self._advance(moved, tape, alive_RL))
        return moved.index_select(2, here_1).transpose(1, 2)

    def _advance(self, state_BDL: Tensor, tape_BEL: Tensor, alive_BL: Tensor) -> Tensor:
        """Move the state by every unit in turn."""
        units: Any = self.cells
        for cell in units:
            state_BDL = cell.advance(state_BDL, tape_BEL, alive_BL[:, None])
        return state_BDL


def _room_for(memory: Tensor, mask: Tensor | None, length: int) -> tuple[Tensor, Tensor]:
    """Return a state [B, D, L] that begins as the memory, and what of it is alive, [B, L]."""
    if mask is None:
        mask = torch.ones(memory.shape[:2], dtype=torch.bool, device=memory.device)
    more = length - memory.size(1)
    kept_BSD = memory.masked_fill(~mask[..., None], 0.0)
    return F.pad(kept_BSD.transpose(1, 2), (0, more)), F.pad(mask, (0, more), value=False)
