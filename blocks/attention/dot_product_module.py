"""Dot-product attention without projections.

Axes: B sequences, T query positions, S key positions, K key width, V value width;
R rows = N sentences x beams.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..kernels.attention_backends import BY_RULE, Cores
from ..kernels.attention_dispatch import attend
from ..kernels.decode_state import Capacity, State


class DotAttention(nn.Module):
    """Dot-product attention with separate keys and values and no projections.

    Source: Gehring et al. 2017, section 3.3; gain: section 3.4.
    """

    cores: Cores = BY_RULE
    """Attention backends by length."""

    def __init__(self, scale: str = "none", gain: str = "none") -> None:
        """Set how the scores and the output are scaled."""
        super().__init__()
        self.scale = 1.0 if scale == "none" else None
        self.by_length = gain == "sqrt_length"

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Attend from queries [B, T, K] to keys [B, S, K] and values [B, S, V].

        Args:
            query: queries.
            key: keys.
            value: values.
            mask: [B, S], true at key positions that may be attended to.

        Returns:
            Weighted sums of the values, [B, T, V]; zeros for rows whose keys are all masked.
        """
        one, two, three = (part[:, None] for part in (query, key, value))
        y_BTV = attend(one, two, three, mask, scale=self.scale, cores=self.cores)[:, 0]
        if not self.by_length:
            return y_BTV
        ones_BS = torch.ones_like(key[..., 0]) if mask is None else mask.to(y_BTV.dtype)
        return y_BTV * ones_BS.sum(1).sqrt()[:, None, None]

    def begin(
        self,
        capacity: Capacity,  # noqa: ARG002 - the state has a fixed size
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
    ) -> State:
        """Return the decoding state: keys and values, stored once per sentence."""
        fixed = {"key": key, "value": value}
        return State(fixed=fixed if mask is None else {**fixed, "mask": mask})

    def step(self, query: Tensor, *, state: State, position: int) -> Tensor:  # noqa: ARG002
        """Attend from the next queries of every row, [R, T, K].

        The beams of a sentence are treated as further query positions of that sentence.
        """
        fixed = state.fixed
        query_NTK = query.unflatten(0, (fixed["key"].size(0), -1)).flatten(1, 2)
        y_NTV = self.forward(query_NTK, fixed["key"], fixed["value"], fixed.get("mask"))
        y_NKTV: Tensor = y_NTV.unflatten(1, (-1, query.size(1)))
        return y_NKTV.flatten(0, 1)
