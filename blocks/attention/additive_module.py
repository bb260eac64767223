"""Additive attention: a small network says how well a query and a memory's position match.

Axes: B sequences, T positions that read, S positions that are read, D width of the
model, M width of the memory, A width of the comparison; R rows = N sentences x beams.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..kernels.decode_state import Capacity, State
from ..kernels.init import draw_linear


class AdditiveAttention(nn.Module):
    """Attention by a network of one hidden layer.

    A position h of the memory has the score v^T tanh(W q + U h) for a query q; the
    softmax of the scores weighs the memory itself.

    Source: Bahdanau et al. 2015, section 3.1 and appendix A.1.2.
    """

    def __init__(self, d_model: int, d_memory: int, d_attention: int) -> None:
        """Make W, U and v."""
        super().__init__()
        self.query = nn.Linear(d_model, d_attention, bias=False)
        self.key = nn.Linear(d_memory, d_attention, bias=False)
        self.score = nn.Linear(d_attention, 1, bias=False)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights."""
        draw_linear(generator, self.query, self.key, self.score)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Let every position of x [B, T, D] read memory [B, S, M].

        Args:
            x: what reads.
            memory: what is read.
            mask: [B, S], true where it may be read.

        Returns:
            Weighted sums of the memory, [B, T, M]; zeros where nothing may be read.
        """
        return self._read(x, self.key(memory), memory, mask)

    def begin(self, capacity: Capacity, memory: Tensor, mask: Tensor | None = None) -> State:  # noqa: ARG002
        """Remember the memory and U h of each of its positions, computed once."""
        fixed = {"memory": memory, "key": self.key(memory)}
        return State(fixed=fixed if mask is None else {**fixed, "mask": mask})

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:  # noqa: ARG002
        """Let the next of every row, x [R, T, D], read; beams are queries of their sentence."""
        fixed = state.fixed
        x_NTD = x.unflatten(0, (fixed["memory"].size(0), -1)).flatten(1, 2)
        y_NTM = self._read(x_NTD, fixed["key"], fixed["memory"], fixed.get("mask"))
        y_NKTM: Tensor = y_NTM.unflatten(1, (-1, x.size(1)))
        return y_NKTM.flatten(0, 1)

    def attention_weights(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return how much of each position is read, [B, 1, T, S]; arguments as of `forward`."""
        return self._weights(x, self.key(memory), mask)[:, None]

    def _read(
        self, x: Tensor, key_BSA: Tensor, memory_BSM: Tensor, mask_BS: Tensor | None
    ) -> Tensor:
        """Weigh the memory for every query in x [B, T, D]."""
        return self._weights(x, key_BSA, mask_BS) @ memory_BSM

    def _weights(self, x: Tensor, key_BSA: Tensor, mask_BS: Tensor | None) -> Tensor:
        """Return weights [B, T, S]; compares B x T x S x A numbers."""
        query_BTA = self.query(x)
        both_BTSA = (query_BTA[:, :, None] + key_BSA[:, None]).tanh()
        score_BTS: Tensor = self.score(both_BTSA).squeeze(-1)
        if mask_BS is None:
            return score_BTS.softmax(-1)
        hidden = ~mask_BS[:, None]
        # A row that may read nothing: its softmax is no number, and is masked again.
        return score_BTS.masked_fill(hidden, float("-inf")).softmax(-1).masked_fill(hidden, 0.0)
