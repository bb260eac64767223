"""Convolutional GRU: a gated unit that updates all positions of a sequence at once.

Axes: B sequences, T decoder positions (one per step), S memory positions, L = max(S, T)
state positions, D state width, E input width; R rows = N sentences x beams.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.decode_state import Capacity, State, one_by_one
from ..kernels.precision import uncompiled


class ConvGRU(nn.Module):
    """Convolutional gated recurrent unit.

    With gates u, r = sigmoid(U' * x + b'), the next state is u x + (1 - u) tanh(U * (r x) + b);
    `*` convolves over positions.

    Source: Kaiser & Sutskever 2016, section 2.
    """

    def __init__(self, d_model: int, kernel: int) -> None:
        """Create the convolutions of the gates, D to 2 D, and of the candidate, D to D."""
        super().__init__()
        self.gates = nn.Conv1d(d_model, 2 * d_model, kernel, padding=(kernel - 1) // 2)
        self.candidate = nn.Conv1d(d_model, d_model, kernel, padding=(kernel - 1) // 2)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; the biases of the gates start at one, others at zero."""
        for convolution in (self.gates, self.candidate):
            nn.init.xavier_uniform_(convolution.weight, generator=generator)
        if self.gates.bias is not None and self.candidate.bias is not None:
            nn.init.ones_(self.gates.bias)
            nn.init.zeros_(self.candidate.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the next state of x [B, T, D].

        Args:
            x: state of every position.
            mask: [B, T]; positions where it is false are zeros in the input and the output.
        """
        state_BDT = x.transpose(1, 2)
        if mask is None:
            return self._next(state_BDT).transpose(1, 2)
        padding = ~mask[:, None]
        state_BDT = state_BDT.masked_fill(padding, 0.0)
        return self._next(state_BDT).masked_fill(padding, 0.0).transpose(1, 2)

    def _next(self, state_BDT: Tensor, written: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Return the next state; `written` holds terms added to the gates and the candidate."""
        gates = self.gates(_followed(state_BDT, self.gates))
        if written is not None:
            gates = gates + written[0]
        update, reset = gates.sigmoid().chunk(2, 1)
        candidate = self.candidate(_followed(reset * state_BDT, self.candidate))
        if written is not None:
            candidate = candidate + written[1]
        next_state: Tensor = update * state_BDT + (1 - update) * candidate.tanh()
        return next_state


class _TapeConvGRU(ConvGRU):
    """Convolutional GRU of the decoder, whose gates and candidate also read the tape.

    Source: Kaiser & Bengio 2016, section 3.1.
    """

    def __init__(self, d_model: int, d_in: int, kernel: int) -> None:
        """Create the unit and the convolution of the tape, E to 3 D."""
        super().__init__(d_model, kernel)
        self.written = nn.Conv1d(d_in, 3 * d_model, kernel, padding=(kernel - 1) // 2, bias=False)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; the biases of the gates start at one, others at zero."""
        super().initialize(generator)
        nn.init.xavier_uniform_(self.written.weight, generator=generator)

    def advance(self, state_BDL: Tensor, tape_BEL: Tensor, active_B1L: Tensor) -> Tensor:
        """Return the next state, with zeros at inactive positions."""
        width = state_BDL.size(1)
        written = self.written(_followed(tape_BEL, self.written))
        gates, candidate = written.split((2 * width, width), 1)
        return self._next(state_BDL, (gates, candidate)).masked_fill(~active_B1L, 0.0)


class ConvGRUDecoder(nn.Module):
    """Decoder with an active memory.

    The initial state is the memory.  Step t writes x_t to position t of a tape, updates the
    entire state with every unit in sequence, and outputs position t of the state.  Positions
    past the end of the memory become active one at a time, when a step reaches them, so the
    result depends neither on the padding of the batch nor on the final length.

    Source: Kaiser & Bengio 2016, section 3.1.  In the paper, a state has w rows, of which the
    first is read, and an output is written where it was read, one position earlier than here.
    """

    def __init__(self, d_model: int, d_in: int, kernel: int, cells: int) -> None:
        """Create the units."""
        super().__init__()
        self.d_in = d_in
        self.cells = nn.ModuleList(_TapeConvGRU(d_model, d_in, kernel) for _ in range(cells))

    @uncompiled
    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Decode T steps, one for each position of x [B, T, E], from memory [B, S, D].

        Args:
            x: vectors to write to the tape, one per step.
            memory: initial state.
            mask: [B, S], true at non-padding positions of the memory.

        Returns:
            Position t of the state after step t, [B, T, D].
        """
        length = max(x.size(1), memory.size(1))
        state_BDL, active_BL = _initial_state(memory, mask, length)
        written_BLE = F.pad(x, (0, 0, 0, length - x.size(1)))
        positions_L = torch.arange(length, device=x.device)
        outputs = []
        for position in range(x.size(1)):
            reached_L = positions_L <= position
            tape_BEL = written_BLE.masked_fill(~reached_L[:, None], 0.0).transpose(1, 2)
            state_BDL = self._advance(state_BDL, tape_BEL, active_BL | reached_L)
            outputs.append(state_BDL[:, :, position])
        return torch.stack(outputs, 1)

    def begin(self, capacity: Capacity, memory: Tensor, mask: Tensor | None = None) -> State:
        """Return the decoding state: for every row, the padded memory and an empty tape."""
        length = max(capacity.length, memory.size(1))
        state_NDL, active_NL = _initial_state(memory, mask, length)
        tape = torch.zeros(
            (capacity.rows, self.d_in, length), dtype=capacity.dtype, device=capacity.device
        )
        state = state_NDL.to(capacity.dtype).repeat_interleave(capacity.beams, 0).contiguous()
        return State(carried={"state": state, "tape": tape}, fixed={"alive": active_NL})

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:
        """Run the next T steps of every row on x [R, T, E]; return [R, T, D]."""
        return one_by_one(lambda x, _, position: self._step(x, state, position), x, None, position)

    def _step(self, x: Tensor, state: State, position: int) -> Tensor:
        """Write x [R, 1, E] to the tape and run one step of every row; return [R, 1, D]."""
        current, tape = state.carried["state"], state.carried["tape"]
        # Indexed instead of sliced, so that one exported graph is valid for every position.
        position_1 = torch.arange(position, position + 1, device=x.device)
        tape.index_copy_(2, position_1, x.transpose(1, 2).to(tape.dtype))
        active_NL = state.fixed["alive"]
        reached_L = torch.arange(tape.size(2), device=x.device) <= position
        active_RL = (active_NL | reached_L).repeat_interleave(x.size(0) // active_NL.size(0), 0)
        current.copy_(self._advance(current, tape, active_RL))
        return current.index_select(2, position_1).transpose(1, 2)

    def _advance(self, state_BDL: Tensor, tape_BEL: Tensor, active_BL: Tensor) -> Tensor:
        """Update the state with every unit in sequence."""
        units: Any = self.cells
        for cell in units:
            state_BDL = cell.advance(state_BDL, tape_BEL, active_BL[:, None])
        return state_BDL


def _followed(x_BDT: Tensor, convolution: nn.Conv1d) -> Tensor:
    """Return x with one more zero after it for an even kernel, whose second half is longer."""
    return x_BDT if convolution.kernel_size[0] % 2 else F.pad(x_BDT, (0, 1))


def _initial_state(memory: Tensor, mask: Tensor | None, length: int) -> tuple[Tensor, Tensor]:
    """Return the initial state [B, D, L] from the memory, and its active positions [B, L]."""
    if mask is None:
        mask = torch.ones(memory.shape[:2], dtype=torch.bool, device=memory.device)
    missing = length - memory.size(1)
    masked_BSD = memory.masked_fill(~mask[..., None], 0.0)
    return F.pad(masked_BSD.transpose(1, 2), (0, missing)), F.pad(mask, (0, missing), value=False)
