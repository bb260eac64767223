"""Recurrent networks: simple RNN, GRU and LSTM.

Axes: B sequences, T positions, D input width, H state width, G vectors that a cell
computes; R rows = N sentences x beams.
"""

from __future__ import annotations

import math
import warnings
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..kernels.decode_state import Capacity, State, one_by_one
from ..kernels.precision import Copies, as_autocast, operand, uncompiled

_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
_BACK = "_reverse"
_KernelArguments = tuple[bool, int, float, bool, bool, bool]
"""has_biases, num_layers, dropout, train, bidirectional and batch_first of torch's kernels."""


class _Recurrent(nn.Module):
    """Base class of the recurrent networks, which differ only in their cell."""

    gates: ClassVar[int]
    state_names: ClassVar[tuple[str, ...]] = ("hidden",)
    copied: ClassVar[tuple[str, ...]] = (*_NAMES, *(name + _BACK for name in _NAMES))
    """Weights that get low-precision copies."""
    copies: Copies | None = None
    """The copies, if the graph of the model has them."""

    def __init__(
        self, d_in: int, d_hidden: int, direction: str = "forward", *, bias: bool = True
    ) -> None:
        """Create the weights of each direction, [G * H, D] and [G * H, H]."""
        super().__init__()
        self.d_hidden, self.bias = d_hidden, bias
        rows = self.gates * d_hidden
        shapes = [(rows, d_in), (rows, d_hidden), (rows,), (rows,)]
        self.directions = [("", direction == "backward")]
        if direction == "both":
            self.directions.append((_BACK, True))
        for suffix, _ in self.directions:
            for name, shape in zip(self._names(), shapes, strict=False):
                self.register_parameter(name + suffix, nn.Parameter(torch.empty(shape)))

    def initialize(self, generator: torch.Generator) -> None:
        """Draw all weights uniformly within 1 / sqrt(H), as torch.nn does."""
        bound = 1 / math.sqrt(self.d_hidden)
        for weight in self.parameters():
            nn.init.uniform_(weight, -bound, bound, generator=generator)

    @uncompiled
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the hidden state after each position of x [B, T, D].

        The states of both directions are concatenated along the last axis.

        Args:
            x: input vectors.
            mask: [B, T]; where it is false, the state does not change and the output is zero.
        """
        x = x.to(self._weights("")[0].dtype)
        return torch.cat(
            [self._run(x, mask, suffix, back=back) for suffix, back in self.directions], -1
        )

    def begin(self, capacity: Capacity) -> State:
        """Return the decoding state: zeros for every row."""
        shape = (capacity.rows, self.d_hidden)
        return State(
            carried={
                name: torch.zeros(shape, dtype=capacity.dtype, device=capacity.device)
                for name in self.state_names
            }
        )

    def step(self, x: Tensor, mask: Tensor | None = None, *, state: State, position: int) -> Tensor:
        """Process the next positions of every row, x [R, T, D], with a mask [R, T]."""
        if x.size(1) > 1:
            return one_by_one(lambda x, mask, _: self._step(x, mask, state), x, mask, position)
        return self._step(x, mask, state)

    def _step(self, x: Tensor, mask: Tensor | None, state: State) -> Tensor:
        """Process one position of every row, x [R, 1, D], with a mask [R, 1]."""
        weights = self._weights("")
        x_RD = x[:, 0].to(weights[0].dtype)
        old = [state.carried[name].to(x_RD.dtype) for name in self.state_names]
        new = self._cell(x_RD, old, weights)
        y_RH = new[0]
        if mask is not None:
            y_RH = y_RH.masked_fill(~mask, 0.0)
            new = [after.where(mask, before) for after, before in zip(new, old, strict=True)]
        for name, value in zip(self.state_names, new, strict=True):
            state.carried[name].copy_(value)
        return y_RH[:, None]

    def _run(self, x: Tensor, mask: Tensor | None, suffix: str, *, back: bool) -> Tensor:
        """Run one direction over x [B, T, D].

        Masked positions must not change the state, so the unmasked positions of each row are
        moved to the front, in order, and moved back afterwards.  The masked ones behind them
        are processed too, but cannot affect an unmasked position.
        """
        weights = self._weights(suffix)
        if mask is None:
            return self._scan(x.flip(1), weights).flip(1) if back else self._scan(x, weights)
        order_BT = (~(mask.flip(1) if back else mask)).to(torch.uint8).argsort(dim=1, stable=True)
        if back:
            order_BT = x.size(1) - 1 - order_BT
        y = self._scan(_permuted(x, order_BT), weights)
        return _permuted(y, order_BT.argsort(1)).masked_fill(~mask[..., None], 0.0)

    def _scan(self, x: Tensor, weights: list[Tensor]) -> Tensor:
        """Run torch's fused kernel over x [B, T, D], starting from a state of zeros."""
        start = [x.new_zeros(1, x.size(0), self.d_hidden) for _ in self.state_names]
        # One layer without dropout; cuDNN supports backward only in training mode.
        options = (self.bias, 1, 0.0, torch.is_grad_enabled(), False, True)
        with warnings.catch_warnings():
            # cuDNN copies the weights into one chunk at every call, which is cheap here.
            warnings.filterwarnings("ignore", message="RNN module weights are not part of single")
            y_BTH: Tensor = self._kernel(x, start, weights, options)
        return y_BTH

    def _names(self) -> tuple[str, ...]:
        return _NAMES if self.bias else _NAMES[:2]

    def _weights(self, suffix: str) -> list[Tensor]:
        """Return the weights of a direction, in the autocast dtype if autocast is enabled."""
        return as_autocast(*(operand(self, name + suffix) for name in self._names()))

    def _kernel(
        self, x: Tensor, start: list[Tensor], weights: list[Tensor], options: _KernelArguments
    ) -> Tensor:
        raise NotImplementedError

    def _cell(self, x: Tensor, old: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
        raise NotImplementedError


def _permuted(x: Tensor, order_BT: Tensor) -> Tensor:
    """Return the vectors of each row of x [B, T, D] in another order."""
    # Copying whole vectors, forward and backward, is several times as fast as `gather`.
    row_B1 = torch.arange(x.size(0), device=x.device)[:, None]
    index_N = (row_B1 * x.size(1) + order_BT).flatten()
    return x.flatten(0, 1).index_select(0, index_N).view_as(x)


class RNN(_Recurrent):
    """Simple recurrent network: h_t = tanh(W x_t + b + U h_{t-1} + b').

    Source: Elman 1990.
    """

    gates = 1

    def _kernel(
        self, x: Tensor, start: list[Tensor], weights: list[Tensor], options: _KernelArguments
    ) -> Tensor:
        return torch.rnn_tanh(x, start[0], weights, *options)[0]

    def _cell(self, x: Tensor, old: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
        return [torch.rnn_tanh_cell(x, old[0], *weights)]


class GRU(_Recurrent):
    """Gated recurrent unit.

    With gates r and z of x_t and h_{t-1}, h_t = (1 - z) n + z h_{t-1} where n =
    tanh(W x_t + b + r (U h_{t-1} + b')).

    Source: Cho et al. 2014, section 2.3, which applies r before U; this matches torch.nn.GRU.
    """

    gates = 3

    def _kernel(
        self, x: Tensor, start: list[Tensor], weights: list[Tensor], options: _KernelArguments
    ) -> Tensor:
        return torch.gru(x, start[0], weights, *options)[0]

    def _cell(self, x: Tensor, old: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
        return [torch.gru_cell(x, old[0], *weights)]


class LSTM(_Recurrent):
    """Long short-term memory.

    With gates i, f and o of x_t and h_{t-1}, c_t = f c_{t-1} + i g and h_t = o tanh(c_t)
    where g = tanh(W x_t + b + U h_{t-1} + b').

    Source: Hochreiter & Schmidhuber 1997; forget gate: Gers et al. 2000.
    """

    gates = 4
    state_names = ("hidden", "cell")

    def _kernel(
        self, x: Tensor, start: list[Tensor], weights: list[Tensor], options: _KernelArguments
    ) -> Tensor:
        return torch.lstm(x, start, weights, *options)[0]

    def _cell(self, x: Tensor, old: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
        return list(torch.lstm_cell(x, old, *weights))
