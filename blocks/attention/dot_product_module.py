"""Dot attention: queries read values by their keys, all as they come, without projections.

Axes: B sequences, T positions that read, S positions that are read, K width of keys,
V width of values; R rows = N sentences x beams.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..kernels.attention_dispatch import attend
from ..kernels.decode_state import Capacity, State


class DotAttention(nn.Module):
    """Attention with keys and values of their own, and no projections.

    Source: Gehring et al. 2017, section 3.3; gain: section 3.4.
    """

    def __init__(self, scale: str = "none", gain: str = "none") -> None:
        """Keep how scores are scaled, and what is read."""
        super().__init__()
        self.scale = 1.0 if scale == "none" else None
        self.by_length = gain == "sqrt_length"

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Let every query [B, T, K] read the values [B, S, V] whose keys [B, S, K] it matches.

        Args:
            query: what reads.
            key: what it is compared with.
            value: what is read.
            mask: [B, S], true where it may be read.

        Returns:
            Weighted sums of the values, [B, T, V]; zeros where nothing may be read.
        """
        y_BTV = attend(query[:, None], key[:, None], value[:, None], mask, scale=self.scale)[:, 0]
        if not self.by_length:
            return y_BTV
        kept = torch.ones_like(key[..., 0]) if mask is None else mask.to(y_BTV.dtype)
        return y_BTV * kept.sum(1).sqrt()[:, None, None]

    def begin(
        self,
        capacity: Capacity,  # noqa: ARG002 - it grows with nothing
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
    ) -> State:
        """Remember what is read, once for each sentence."""
        fixed = {"key": key, "value": value}
        return State(fixed=fixed if mask is None else {**fixed, "mask": mask})

    def step(self, query: Tensor, *, state: State, position: int) -> Tensor:  # noqa: ARG002
        """Let the next of every row, [R, T, K], read; beams are queries of their sentence."""
        fixed = state.fixed
        query_NTK = query.unflatten(0, (fixed["key"].size(0), -1)).flatten(1, 2)
        y_NTV = self.forward(query_NTK, fixed["key"], fixed["value"], fixed.get("mask"))
        y_NKTV: Tensor = y_NTV.unflatten(1, (-1, query.size(1)))
        return y_NKTV.flatten(0, 1)
