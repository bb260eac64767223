"""Attention: every position of one sequence reads from another, or from its own.

Axes: B sequences, T positions that read, S positions that are read, D width of the
model, H heads, K and V widths of one head; R rows = N sentences x beams.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .core import attend
from .state import Room, State


class Attention(nn.Module):
    """Multi-head scaled dot-product attention.

    Each head weighs what is read by softmax(q k^T / sqrt(K)) and returns the weighted
    sum of values; a linear map mixes the heads.

    Source: Vaswani et al. 2017, section 3.2.
    """

    def __init__(
        self,
        d_model: int,
        d_memory: int,
        heads: int,
        d_k: int,
        d_v: int,
        *,
        causal: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        """Make the four projections."""
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.query = nn.Linear(d_model, heads * d_k, bias)
        self.key = nn.Linear(d_memory, heads * d_k, bias)
        self.value = nn.Linear(d_memory, heads * d_v, bias)
        self.out = nn.Linear(heads * d_v, d_model, bias)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; biases start at zero."""
        for linear in (self.query, self.key, self.value, self.out):
            nn.init.xavier_uniform_(linear.weight, generator=generator)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def forward(
        self, x: Tensor, memory: Tensor | None = None, keep: Tensor | None = None
    ) -> Tensor:
        """Let every position of x [B, T, D] read memory [B, S, D'], or x itself.

        Args:
            x: what reads.
            memory: what is read.
            keep: [B, S], true where it may be read.

        Returns:
            What each position read, [B, T, D]; zeros mixed where nothing may be read.
        """
        read = x if memory is None else memory
        y_BHTV = attend(
            self._split(self.query(x)),
            self._split(self.key(read)),
            self._split(self.value(read)),
            keep,
            causal=self.causal and memory is None,
            dropout=self.dropout if self.training else 0.0,
        )
        return self._merge(y_BHTV)

    def begin(self, room: Room, memory: Tensor | None = None, keep: Tensor | None = None) -> State:
        """Return buffers for own keys and values, or those of the memory, computed once."""
        if memory is not None:
            fixed = {"key": self._split(self.key(memory)), "value": self._split(self.value(memory))}
            return State(fixed=fixed if keep is None else {**fixed, "keep": keep})

        def buffer(linear: nn.Linear) -> Tensor:
            width = linear.out_features // self.heads
            shape = (room.rows, self.heads, room.length, width)
            return torch.zeros(shape, dtype=room.dtype, device=room.device)

        return State(appended={"key": buffer(self.key), "value": buffer(self.value)})

    def step(self, x: Tensor, keep: Tensor | None = None, *, state: State, position: int) -> Tensor:
        """Let one position of every row, x [R, 1, D], read.

        With a memory, the beams of a sentence are its query positions, so the memory's
        keys and values are kept once for each sentence.

        Args:
            x: what reads.
            keep: [R, 1], true where later positions may read this one; without a memory.
            state: what `begin` returned.
            position: where the rows stand, counted from 0.
        """
        query_RHTK = self._split(self.query(x))
        if state.fixed:
            key = state.fixed["key"]
            query = query_RHTK.unflatten(0, (key.size(0), -1)).squeeze(3).transpose(1, 2)
            y = attend(query, key, state.fixed["value"], state.fixed.get("keep"))
            return self._merge(y.transpose(1, 2).flatten(0, 1).unsqueeze(2))
        for name, new in (("key", self.key(x)), ("value", self.value(x))):
            state.appended[name][:, :, position : position + 1] = self._split(new)
        key, value = (state.appended[name][:, :, : position + 1] for name in ("key", "value"))
        if keep is not None:
            length = state.appended["key"].size(2)
            kept = state.appended.setdefault("keep", keep.new_zeros(keep.size(0), length, 1))
            kept[:, position] = keep
            keep = kept[:, : position + 1, 0]
        return self._merge(attend(query_RHTK, key, value, keep))

    def _split(self, x: Tensor) -> Tensor:
        """[B, T, H * K] to [B, H, T, K]."""
        x_BTHK: Tensor = x.unflatten(-1, (self.heads, -1))
        return x_BTHK.transpose(1, 2)

    def _merge(self, y_BHTV: Tensor) -> Tensor:
        """[B, H, T, V] to [B, T, D], the heads mixed."""
        out: Tensor = self.out(y_BHTV.transpose(1, 2).flatten(2))
        return out
