"""Core: scaled dot-product attention by the core (`cores.py`) that is in use.

Axes: B sequences, H heads, G heads of keys and values, T positions that read, S
positions that are read, K and V widths of one head.
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
    """Let every query read the values whose keys it matches.

    Args:
        query_BHTK: what each reading position looks for.
        key_BGSK: what each read position offers; H / G heads in a row share one.
        value_BGSV: what it gives.
        mask_BS: true where a position may be read; all when None.
        causal: whether position t reads none later than t; needs T = S.
        window: how far apart reader and read may stand; needs T = S.
        dropout: probability of dropping one attention weight, 0 when not training.
        scale: times which scores are taken; 1 / sqrt(K) when None.
        bias: what is added to the scores, [B or 1, H or 1, T, S]; -inf where none may read.

    Returns:
        softmax(q k^T / sqrt(K)) v, B x H x T x V.  A row that may read nothing gives
        zeros.

    Source: Vaswani et al. 2017, section 3.2.1; shared keys: Ainslie et al. 2023.
    """
    core = core_for(query_BHTK, key_BGSK)
    if core == "flex" and flex_serves(query_BHTK, dropout=dropout):
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
    if core == "varlen" and varlen_serves(
        query_BHTK, mask_BS, causal=causal, dropout=dropout, biased=biased
    ):
        return varlen_attend(query_BHTK, key_BGSK, value_BGSV, mask_BS, causal=causal, scale=scale)
    shared = query_BHTK.size(1) // key_BGSK.size(1)
    mask = None if mask_BS is None else mask_BS[:, None, None, :]
    given = mask is not None or bias is not None
    if window is not None or (causal and (given or (core == "plain" and shared > 1))):
        seen = near(query_BHTK.size(2), query_BHTK.device, causal=causal, window=window)
        mask, causal = seen if mask is None else mask & seen, False
        if shared > 1:
            mask = torch.cat([mask] * shared, -2)
    compute = by_name(core)
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
    # Heads with one key read as more positions of one head: no key is copied.
    query = query_BHTK.unflatten(1, (-1, shared)).flatten(2, 3)
    if bias is not None:
        bias = _shared_bias(bias.to(query.dtype), shared)
    y = compute(
        query, key_BGSK, value_BGSV, mask, causal=False, dropout=dropout, scale=scale, bias=bias
    )
    apart: Tensor = y.unflatten(2, (shared, -1)).flatten(1, 2)
    return apart


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
    """Return the weights by which `attend` sums values, B x H x T x S; arguments are its own."""
    mask = None if mask_BS is None else mask_BS[:, None, None, :]
    if causal or window is not None:
        seen = near(query_BHTK.size(2), query_BHTK.device, causal=causal, window=window)
        mask = seen if mask is None else mask & seen
    key_BHSK = key_BGSK.repeat_interleave(query_BHTK.size(1) // key_BGSK.size(1), 1)
    return plain_weights(query_BHTK, key_BHSK, mask, causal=False, scale=scale, bias=bias)


def _shared_bias(bias: Tensor, shared: int) -> Tensor:
    """Return a bias [B, H or 1, T, S] for heads that are read as positions, `shared` in a row."""
    if bias.size(1) == 1:
        return torch.cat([bias] * shared, 2)
    grouped: Tensor = bias.unflatten(1, (-1, shared)).flatten(2, 3)
    return grouped
