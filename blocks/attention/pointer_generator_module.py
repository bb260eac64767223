"""Pointer-generator head: generate a word from the vocabulary or copy one from the source.

Axes: B sequences, T decoder positions, S source positions, D model width, M memory width,
V vocabulary size; R rows = N sentences x K beams.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..kernels.decode_state import Capacity, State
from ..kernels.linear import draw_linear

LEAST = 1e-20
"""Lower bound of the probabilities, so that their logarithms are finite."""


class PointerHead(nn.Module):
    """Mixture of generating a word from the vocabulary and copying a source word.

    The probability of a word is g softmax(W x) plus (1 - g) times the attention
    softmax(q^T h / sqrt(M)), summed over the source positions of that word.  Unlike in the
    paper, the gate g is computed only from x, which already contains the attention context,
    and the copy attention has a query projection of its own.

    Source: See et al. 2017, section 2.2.
    """

    def __init__(self, d_model: int, d_memory: int, vocab: int) -> None:
        """Create the maps to the query [M, D], the gate [1, D] and the vocabulary [V, D]."""
        super().__init__()
        self.query = nn.Linear(d_model, d_memory, bias=False)
        self.gate = nn.Linear(d_model, 1)
        self.out = nn.Linear(d_model, vocab, bias=False)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; the bias of the gate starts at zero."""
        draw_linear(generator, self.query, self.gate, self.out)

    def forward(self, x: Tensor, memory: Tensor, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """Compute the log-probabilities of the next word.

        Args:
            x: decoder vectors, [B, T, D].
            memory: encoded source, [B, S, M].
            ids: ids of the source words, [B, S].
            mask: [B, S], true at source positions that may be copied.

        Returns:
            Log-probabilities, [B, T, V].
        """
        exact = torch.promote_types(x.dtype, torch.float32)
        score_BTS: Tensor = (self.query(x) @ memory.transpose(1, 2)).to(exact)
        score_BTS = score_BTS * memory.size(-1) ** -0.5
        if mask is not None:
            score_BTS = score_BTS.masked_fill(~mask[:, None], torch.finfo(exact).min)
        gate_BT1 = self.gate(x).to(exact).sigmoid()
        p_BTV: Tensor = self.out(x).to(exact).softmax(-1) * gate_BT1
        copied_BTS = score_BTS.softmax(-1) * (1 - gate_BT1)
        p_BTV = p_BTV.scatter_add(2, ids[:, None].expand_as(copied_BTS), copied_BTS)
        return p_BTV.clamp(min=LEAST).log().to(x.dtype)

    def begin(
        self,
        capacity: Capacity,  # noqa: ARG002 - the state has a fixed size
        memory: Tensor,
        ids: Tensor,
        mask: Tensor | None = None,
    ) -> State:
        """Return the decoding state: the encoded source and its ids, stored once per sentence."""
        fixed = {"memory": memory, "ids": ids}
        return State(fixed=fixed if mask is None else {**fixed, "mask": mask})

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:  # noqa: ARG002
        """Compute the log-probabilities at the next positions of every row, x [R, T, D].

        The beams of a sentence are treated as further positions of that sentence.
        """
        fixed = state.fixed
        x_NTD = x.unflatten(0, (fixed["memory"].size(0), -1)).flatten(1, 2)
        y_NTV = self.forward(x_NTD, fixed["memory"], fixed["ids"], fixed.get("mask"))
        y_NKTV: Tensor = y_NTV.unflatten(1, (-1, x.size(1)))
        return y_NKTV.flatten(0, 1)
