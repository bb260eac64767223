"""Pointer: words of a vocabulary, and copies of what is read.

Axes: B sequences, T positions that write, S positions that are read, D width of the
model, M width of the memory, V words; R rows = N sentences x beams.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..kernels.decode_state import Capacity, State
from ..kernels.init import draw_linear

LEAST = 1e-20
"""Probability below which all words are alike: its log is finite."""


class PointerHead(nn.Module):
    """Words of a vocabulary mixed with copies of what is read.

    A gate g says how much is written, W x which word; the rest is shared among what is
    read by softmax(q^T h / sqrt(M)), and a word gets the shares of all its positions.
    Unlike its source the gate sees x alone, which has read already, and the attention
    is its own.

    Source: See et al. 2017, section 2.2.
    """

    def __init__(self, d_model: int, d_memory: int, vocab: int) -> None:
        """Make the maps to a query, M x D, to the gate, 1 x D, and to words, V x D."""
        super().__init__()
        self.query = nn.Linear(d_model, d_memory, bias=False)
        self.gate = nn.Linear(d_model, 1)
        self.out = nn.Linear(d_model, vocab, bias=False)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; the gate starts without preference."""
        draw_linear(generator, self.query, self.gate, self.out)

    def forward(self, x: Tensor, memory: Tensor, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """Say how likely each word comes next.

        Args:
            x: what writes, [B, T, D].
            memory: what may be pointed at, [B, S, M].
            ids: the word that a copy of each position is, [B, S].
            mask: [B, S], true where it may be pointed at.

        Returns:
            Log-probabilities, [B, T, V].
        """
        score_BTS: Tensor = (self.query(x) @ memory.transpose(1, 2)).float() * memory.size(
            -1
        ) ** -0.5
        if mask is not None:
            score_BTS = score_BTS.masked_fill(~mask[:, None], torch.finfo(torch.float32).min)
        written_BT1 = self.gate(x).float().sigmoid()
        p_BTV: Tensor = self.out(x).float().softmax(-1) * written_BT1
        copied_BTS = score_BTS.softmax(-1) * (1 - written_BT1)
        p_BTV = p_BTV.scatter_add(2, ids[:, None].expand_as(copied_BTS), copied_BTS)
        return p_BTV.clamp(min=LEAST).log().to(x.dtype)

    def begin(
        self,
        capacity: Capacity,  # noqa: ARG002 - it grows with nothing
        memory: Tensor,
        ids: Tensor,
        mask: Tensor | None = None,
    ) -> State:
        """Remember what may be pointed at, once for each sentence."""
        fixed = {"memory": memory, "ids": ids}
        return State(fixed=fixed if mask is None else {**fixed, "mask": mask})

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:  # noqa: ARG002
        """Do so for the next of every row, x [R, T, D]; beams are positions of their sentence."""
        fixed = state.fixed
        x_NTD = x.unflatten(0, (fixed["memory"].size(0), -1)).flatten(1, 2)
        y_NTV = self.forward(x_NTD, fixed["memory"], fixed["ids"], fixed.get("mask"))
        y_NKTV: Tensor = y_NTV.unflatten(1, (-1, x.size(1)))
        return y_NKTV.flatten(0, 1)
