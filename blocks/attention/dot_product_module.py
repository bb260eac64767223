"""Dot-product attention without projections.

Axes: B sequences, T query positions, S key positions, H heads, G key and value heads, K key width,
V value width, of all heads together; R rows = N sentences x beams.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..kernels.attention import attend
from ..kernels.attention_backends import BY_RULE, Cores
from ..kernels.decode_state import Capacity, State
from .slots_module import stored_so_far


class DotAttention(nn.Module):
    """Dot-product attention with separate keys and values and no projections.

    Source: Gehring et al. 2017, section 3.3; gain: section 3.4.
    """

    cores: Cores = BY_RULE
    """Attention backends by length."""

    def __init__(
        self,
        scale: float | str = "none",
        gain: str = "none",
        heads: int = 1,
        kv_heads: int | None = None,
        *,
        causal: bool = False,
        d_key: int = 0,
        d_value: int = 0,
    ) -> None:
        """Set the heads, and how the scores and the output are scaled.

        Args:
            scale: factor of the scores, `none` for 1, or `sqrt` for 1 / sqrt(K / H).
            gain: `sqrt_length` to multiply by the root of the number of unmasked positions.
            heads: number of heads.
            kv_heads: number of key and value heads; `heads` if None.
            causal: whether positions attend only to keys of the same and earlier positions.
            d_key: with `causal`, width of the keys that decoding stores.
            d_value: with `causal`, width of the values that decoding stores; 0 for the keys.
        """
        super().__init__()
        self.scale = {"sqrt": None, "none": 1.0}[scale] if isinstance(scale, str) else scale
        self.by_length = gain == "sqrt_length"
        self.heads, self.kv_heads = heads, heads if kv_heads is None else kv_heads
        self.causal, self.widths = causal, {"key": d_key, "value": d_value}

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Attend from queries [B, T, K] to keys [B, S, K] and values [B, S, V].

        Args:
            query: queries.
            key: keys; with fewer key and value heads, less wide than the queries.
            value: values; the keys if None.
            mask: [B, S], true at key positions that may be attended to.

        Returns:
            Weighted sums of the values, [B, T, V]; zeros for rows whose keys are all masked.
        """
        key_BGSK = _split(key, self.kv_heads)
        value_BGSV = key_BGSK if value is None else _split(value, self.kv_heads)
        y_BTV = self._attend(query, key_BGSK, value_BGSV, mask, causal=self.causal)
        if not self.by_length:
            return y_BTV
        ones_BS = torch.ones_like(key[..., 0]) if mask is None else mask.to(y_BTV.dtype)
        return y_BTV * ones_BS.sum(1).sqrt()[:, None, None]

    def _attend(
        self, query: Tensor, key_BGSK: Tensor, value_BGSV: Tensor, mask: Tensor | None, **how: Any
    ) -> Tensor:
        """Attend with each head, and concatenate the heads."""
        query_BHTK = _split(query, self.heads)
        how |= {"scale": self.scale, "cores": self.cores}
        y_BHTV = attend(query_BHTK, key_BGSK, value_BGSV, mask, **how)
        return y_BHTV.transpose(1, 2).flatten(2)

    def begin(
        self,
        capacity: Capacity,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> State:
        """Return the decoding state: empty buffers, or keys and values stored once per sentence."""
        if key is None:
            shape = (capacity.rows, self.kv_heads, capacity.allocated)
            widths = {name: d // self.kv_heads for name, d in self.widths.items() if d}
            return State(appended={n: capacity.zeros((*shape, d)) for n, d in widths.items()})
        wires = {"key": key, "value": value, "mask": mask}
        return State(fixed={name: wire for name, wire in wires.items() if wire is not None})

    def step(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        state: State,
        position: int,
    ) -> Tensor:
        """Attend from the next queries of every row, [R, T, K].

        Without `causal`, the beams of a sentence are treated as further query positions of it.

        Args:
            query: queries.
            key: keys of the same positions, if they move; stored, perhaps by several layers.
            value: values of these positions; the keys if None.
            mask: [R, T], of these positions.
            state: the state returned by `begin`; updated in place.
            position: index of the first of these positions, from 0.
        """
        fixed = state.fixed
        if key is None:
            query_NTK = query.unflatten(0, (fixed["key"].size(0), -1)).flatten(1, 2)
            y_NTV = self.forward(query_NTK, **fixed)
            y_NKTV: Tensor = y_NTV.unflatten(1, (-1, query.size(1)))
            return y_NKTV.flatten(0, 1)
        end = position + query.size(1)
        for name, new in (("key", key), ("value", value)):
            if new is not None:
                state.appended[name][:, :, position:end] = _split(new, self.kv_heads)
        if mask is not None:
            mask = stored_so_far(state, "mask", mask, position)[:, :end]
        key_RGSK = state.appended["key"][:, :, :end]
        value_RGSV = key_RGSK if value is None else state.appended["value"][:, :, :end]
        if query.size(1) == 1:
            return self._attend(query, key_RGSK, value_RGSV, mask)
        place_S = torch.arange(end, device=query.device)
        later_TS = place_S > place_S[position:, None]
        bias_TS = query.new_zeros(later_TS.shape).masked_fill(later_TS, float("-inf"))
        return self._attend(query, key_RGSK, value_RGSV, mask, bias=bias_TS[None, None])


def _split(x: Tensor, heads: int) -> Tensor:
    """Reshape [B, T, H * K] to [B, H, T, K]."""
    x_BTHK: Tensor = x.unflatten(-1, (heads, -1))
    return x_BTHK.transpose(1, 2)
