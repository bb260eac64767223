"""Scaled dot-product attention with the backend in use (`attention_backends.py`).

Axes: B sequences, H heads, G key and value heads, T query positions, S key positions,
K and V key and value widths of one head.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .attention_backends import (
    by_name,
    core_for,
    flex_attend,
    flex_serves,
    near,
    plain_weights,
    varlen_attend,
    varlen_serves,
)


def attend(  # noqa: PLR0913 - the parts of one formula
    query_BHTK: Tensor,
    key_BGSK: Tensor,
    value_BGSV: Tensor,
    mask_BS: Tensor | None = None,
    *,
    causal: bool = False,
    window: int | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Compute scaled dot-product attention.

    Args:
        query_BHTK: queries.
        key_BGSK: keys; H / G consecutive query heads share a key head.
        value_BGSV: values.
        mask_BS: true at key positions that may be attended to; None if all may be.
        causal: whether position t attends only to positions up to t; requires T = S.
        window: largest distance in positions that is attended to; requires T = S.
        dropout: dropout probability of the attention weights; pass 0 outside of training.
        scale: factor of the scores; 1 / sqrt(K) if None.
        bias: added to the scores, [B or 1, H or 1, T, S]; -inf masks a pair.

    Returns:
        softmax(q k^T / sqrt(K)) v, [B, H, T, V]; zeros for rows whose keys are all masked.

    Source: Vaswani et al. 2017, section 3.2.1; shared keys: Ainslie et al. 2023.
    """
    backend = core_for(query_BHTK, key_BGSK)
    if backend == "flex" and flex_serves(query_BHTK, dropout=dropout):
        return flex_attend(
            query_BHTK,
            key_BGSK,
            value_BGSV,
            mask_BS,
            causal=causal,
            window=window,
            scale=scale,
            bias=bias,
        )
    biased = bias is not None or window is not None
    if backend == "varlen" and varlen_serves(
        query_BHTK, mask_BS, causal=causal, dropout=dropout, biased=biased
    ):
        return varlen_attend(query_BHTK, key_BGSK, value_BGSV, mask_BS, causal=causal, scale=scale)
    shared = query_BHTK.size(1) // key_BGSK.size(1)
    mask = None if mask_BS is None else mask_BS[:, None, None, :]
    masked = mask is not None or bias is not None
    if window is not None or (causal and (masked or (backend == "plain" and shared > 1))):
        local = near(query_BHTK.size(2), query_BHTK.device, causal=causal, window=window)
        mask, causal = local if mask is None else mask & local, False
        if shared > 1:
            mask = torch.cat([mask] * shared, -2)
    compute = by_name(backend)
    if causal or shared == 1:
        bias = None if bias is None else bias.to(query_BHTK.dtype)
        return compute(
            query_BHTK,
            key_BGSK,
            value_BGSV,
            mask,
            causal=causal,
            dropout=dropout,
            scale=scale,
            bias=bias,
        )
    # Heads that share a key head become further query positions of one head, so that the keys
    # need not be copied.
    query = query_BHTK.unflatten(1, (-1, shared)).flatten(2, 3)
    if bias is not None:
        bias = _shared_bias(bias.to(query.dtype), shared)
    y = compute(
        query, key_BGSK, value_BGSV, mask, causal=False, dropout=dropout, scale=scale, bias=bias
    )
    y_BHTV: Tensor = y.unflatten(2, (shared, -1)).flatten(1, 2)
    return y_BHTV


def weigh(
    query_BHTK: Tensor,
    key_BGSK: Tensor,
    mask_BS: Tensor | None = None,
    *,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Return the attention weights of `attend`, [B, H, T, S]; arguments as of `attend`."""
    mask = None if mask_BS is None else mask_BS[:, None, None, :]
    if causal or window is not None:
        local = near(query_BHTK.size(2), query_BHTK.device, causal=causal, window=window)
        mask = local if mask is None else mask & local
    key_BHSK = key_BGSK.repeat_interleave(query_BHTK.size(1) // key_BGSK.size(1), 1)
    return plain_weights(query_BHTK, key_BHSK, mask, causal=False, scale=scale, bias=bias)


def _shared_bias(bias: Tensor, shared: int) -> Tensor:
    """Rearrange a bias [B, H or 1, T, S] for heads that became query positions."""
    if bias.size(1) == 1:
        return torch.cat([bias] * shared, 2)
    grouped: Tensor = bias.unflatten(1, (-1, shared)).flatten(2, 3)
    return grouped
