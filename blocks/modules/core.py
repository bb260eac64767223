"""Core: scaled dot-product attention by the fastest way that this device has.

Axes: B sequences, H heads, G heads of keys and values, T positions that read, S
positions that are read, K and V widths of one head.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def attend(  # noqa: PLR0913 - the parts of one formula
    query_BHTK: Tensor,
    key_BGSK: Tensor,
    value_BGSV: Tensor,
    keep_BS: Tensor | None = None,
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
        keep_BS: true where a position may be read; all when None.
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
    shared = query_BHTK.size(1) // key_BGSK.size(1)
    # The fused kernel's backward is several times slower than plain products here.
    plain = query_BHTK.device.type == "cpu" and query_BHTK.dtype == torch.bfloat16
    mask = None if keep_BS is None else keep_BS[:, None, None, :]
    given = mask is not None or bias is not None
    if window is not None or (causal and (given or (plain and shared > 1))):
        near = _near(query_BHTK.size(2), query_BHTK.device, causal=causal, window=window)
        mask, causal = near if mask is None else mask & near, False
        if shared > 1:
            mask = torch.cat([mask] * shared, -2)
    if causal and not plain:
        return F.scaled_dot_product_attention(
            query_BHTK,
            key_BGSK,
            value_BGSV,
            dropout_p=dropout,
            is_causal=True,
            enable_gqa=shared > 1,
            scale=scale,
        )
    # Heads with one key read as more positions of one head: no key is copied.
    query = query_BHTK
    if shared > 1:
        query = query_BHTK.unflatten(1, (-1, shared)).flatten(2, 3)
    if bias is not None:
        bias = _shared_bias(bias.to(query.dtype), shared)
    if plain:
        y = plain_attend(
            query,
            key_BGSK,
            value_BGSV,
            mask,
            causal=causal,
            dropout=dropout,
            scale=scale,
            bias=bias,
        )
    else:
        if bias is not None:
            mask = bias if mask is None else torch.where(mask, bias, float("-inf"))
        y = F.scaled_dot_product_attention(
            query, key_BGSK, value_BGSV, attn_mask=mask, dropout_p=dropout, scale=scale
        )
    return y.unflatten(2, (shared, -1)).flatten(1, 2) if shared > 1 else y


def plain_attend(
    query_BHTK: Tensor,
    key_BHSK: Tensor,
    value_BHSV: Tensor,
    mask: Tensor | None,
    *,
    causal: bool,
    dropout: float,
    scale: float | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Compute `attend` as the paper writes it, with two matrix products.

    Args:
        query_BHTK: queries.
        key_BHSK: keys.
        value_BHSV: values.
        mask: bool, true may be read, to be broadcast to B x H x T x S.
        causal: whether position t reads none later than t.
        dropout: probability of dropping one attention weight.
        scale: times which scores are taken; 1 / sqrt(K) when None.
        bias: what is added to the scores, to be broadcast to B x H x T x S.
    """
    weight_BHTS = plain_weights(query_BHTK, key_BHSK, mask, causal=causal, scale=scale, bias=bias)
    return F.dropout(weight_BHTS, dropout) @ value_BHSV


def plain_weights(
    query_BHTK: Tensor,
    key_BHSK: Tensor,
    mask: Tensor | None,
    *,
    causal: bool,
    scale: float | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Return softmax(q k^T / sqrt(K)), B x H x T x S; arguments as of `plain_attend`.

    A row that may read nothing is zeros, and so is its slope.
    """
    times = query_BHTK.size(-1) ** -0.5 if scale is None else scale
    score_BHTS = query_BHTK @ key_BHSK.transpose(-2, -1) * times
    if causal:
        past = _near(query_BHTK.size(2), query_BHTK.device, causal=True)
        mask = past if mask is None else mask & past
    if bias is not None:
        score_BHTS = score_BHTS + bias
        readable = bias > float("-inf")
        mask = readable if mask is None else mask & readable
    if mask is not None:
        score_BHTS = score_BHTS.masked_fill(~mask, float("-inf"))
    weight_BHTS = score_BHTS.softmax(-1)
    return weight_BHTS if mask is None else weight_BHTS.masked_fill(~mask, 0.0)


def weigh(
    query_BHTK: Tensor,
    key_BGSK: Tensor,
    keep_BS: Tensor | None = None,
    *,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Return the weights by which `attend` sums values, B x H x T x S; arguments are its own."""
    mask = None if keep_BS is None else keep_BS[:, None, None, :]
    if causal or window is not None:
        near = _near(query_BHTK.size(2), query_BHTK.device, causal=causal, window=window)
        mask = near if mask is None else mask & near
    key_BHSK = key_BGSK.repeat_interleave(query_BHTK.size(1) // key_BGSK.size(1), 1)
    return plain_weights(query_BHTK, key_BHSK, mask, causal=False, scale=scale, bias=bias)


def _shared_bias(bias: Tensor, shared: int) -> Tensor:
    """Return a bias [B, H or 1, T, S] for heads that are read as positions, `shared` in a row."""
    if shared == 1:
        return bias
    if bias.size(1) == 1:
        return torch.cat([bias] * shared, 2)
    grouped: Tensor = bias.unflatten(1, (-1, shared)).flatten(2, 3)
    return grouped


def _near(length: int, device: torch.device, *, causal: bool, window: int | None = None) -> Tensor:
    """Return [T, T], true where position t may read position s.

    Args:
        length: positions T.
        device: where the mask lies.
        causal: whether s must not be later than t.
        window: how far apart they may be.
    """
    all_ = torch.ones(length, length, dtype=torch.bool, device=device)
    past = all_.tril() if causal else all_
    if window is None:
        return past
    return past.triu(-window) if causal else past.triu(-window).tril(window)
