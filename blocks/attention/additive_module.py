"""Additive attention: scores from a feed-forward network with one hidden layer.

Axes: B sequences, T query positions, S memory positions, D model width, M memory width,
A hidden width; R rows = N sentences x K beams.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..kernels.decode_state import Capacity, State
from ..kernels.linear import draw_linear


class AdditiveAttention(nn.Module):
    """Attention scored by a feed-forward network with one hidden layer.

    The score of memory position h for a query q is v^T tanh(W q + U h); the output is the
    sum of the memory vectors, weighted by the softmax of the scores.

    Source: Bahdanau et al. 2015, section 3.1 and appendix A.1.2.
    """

    def __init__(self, d_model: int, d_memory: int, d_attention: int) -> None:
        """Create W (`query`), U (`key`) and v (`score`)."""
        super().__init__()
        self.query = nn.Linear(d_model, d_attention, bias=False)
        self.key = nn.Linear(d_memory, d_attention, bias=False)
        self.score = nn.Linear(d_attention, 1, bias=False)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights."""
        draw_linear(generator, self.query, self.key, self.score)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend from every position of x [B, T, D] to memory [B, S, M].

        Args:
            x: queries.
            memory: the sequence that is attended to.
            mask: [B, S], true at memory positions that may be attended to.

        Returns:
            Weighted sums of the memory, [B, T, M]; zeros for rows whose memory is fully masked.
        """
        return self._attend(x, self.key(memory), memory, mask)

    def begin(self, capacity: Capacity, memory: Tensor, mask: Tensor | None = None) -> State:  # noqa: ARG002
        """Return the decoding state: the memory and its keys U h, computed once."""
        fixed = {"memory": memory, "key": self.key(memory)}
        return State(fixed=fixed if mask is None else {**fixed, "mask": mask})

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:  # noqa: ARG002
        """Attend from the next positions of every row, x [R, T, D], to the memory.

        The beams of a sentence are treated as further query positions of that sentence.
        """
        fixed = state.fixed
        x_NTD = x.unflatten(0, (fixed["memory"].size(0), -1)).flatten(1, 2)
        y_NTM = self._attend(x_NTD, fixed["key"], fixed["memory"], fixed.get("mask"))
        y_NKTM: Tensor = y_NTM.unflatten(1, (-1, x.size(1)))
        return y_NKTM.flatten(0, 1)

    def attention_weights(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the attention weights, [B, 1, T, S]; arguments as of `forward`."""
        return self._weights(x, self.key(memory), mask)[:, None]

    def _attend(
        self, x: Tensor, key_BSA: Tensor, memory_BSM: Tensor, mask_BS: Tensor | None
    ) -> Tensor:
        """Return the weighted sum of the memory for every query in x [B, T, D]."""
        return self._weights(x, key_BSA, mask_BS) @ memory_BSM

    def _weights(self, x: Tensor, key_BSA: Tensor, mask_BS: Tensor | None) -> Tensor:
        """Return the attention weights [B, T, S]; needs a temporary tensor [B, T, S, A]."""
        query_BTA = self.query(x)
        both_BTSA = (query_BTA[:, :, None] + key_BSA[:, None]).tanh()
        score_BTS: Tensor = self.score(both_BTSA).squeeze(-1)
        if mask_BS is None:
            return score_BTS.softmax(-1)
        masked = ~mask_BS[:, None]
        # The softmax of a fully masked row is NaN, so the weights are masked again.
        return score_BTS.masked_fill(masked, float("-inf")).softmax(-1).masked_fill(masked, 0.0)
