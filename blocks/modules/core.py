"""Core: scaled dot-product attention by the fastest way that this device has.

Axes: B sequences, H heads, T positions that read, S positions that are read, K and
V widths of one head.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def attend(
    query_BHTK: Tensor,
    key_BHSK: Tensor,
    value_BHSV: Tensor,
    keep_BS: Tensor | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """Let every query read the values whose keys it matches.

    Args:
        query_BHTK: what each reading position looks for.
        key_BHSK: what each read position offers.
        value_BHSV: what it gives.
        keep_BS: true where a position may be read; all when None.
        causal: whether position t reads none later than t; needs T = S.
        dropout: probability of dropping one attention weight, 0 when not training.

    Returns:
        softmax(q k^T / sqrt(K)) v, B x H x T x V.  A row that may read nothing gives
        zeros.

    Source: Vaswani et al. 2017, section 3.2.1.
    """
    mask = None if keep_BS is None else keep_BS[:, None, None, :]
    if causal and mask is not None:
        mask, causal = mask & _past(query_BHTK.size(2), query_BHTK.device), False
    if query_BHTK.device.type == "cpu" and query_BHTK.dtype == torch.bfloat16:
        # The fused kernel's backward is several times slower than plain products here.
        return plain_attend(query_BHTK, key_BHSK, value_BHSV, mask, causal=causal, dropout=dropout)
    return F.scaled_dot_product_attention(
        query_BHTK, key_BHSK, value_BHSV, attn_mask=mask, dropout_p=dropout, is_causal=causal
    )


def plain_attend(
    query_BHTK: Tensor,
    key_BHSK: Tensor,
    value_BHSV: Tensor,
    mask: Tensor | None,
    *,
    causal: bool,
    dropout: float,
) -> Tensor:
    """Compute `attend` as the paper writes it, with two matrix products.

    Args:
        query_BHTK: queries.
        key_BHSK: keys.
        value_BHSV: values.
        mask: bool, true may be read, to be broadcast to B x H x T x S.
        causal: whether position t reads none later than t.
        dropout: probability of dropping one attention weight.
    """
    score_BHTS = query_BHTK @ key_BHSK.transpose(-2, -1) * query_BHTK.size(-1) ** -0.5
    if causal:
        past = _past(query_BHTK.size(2), query_BHTK.device)
        mask = past if mask is None else mask & past
    if mask is not None:
        score_BHTS = score_BHTS.masked_fill(~mask, float("-inf"))
    weight_BHTS = score_BHTS.softmax(-1)
    if mask is not None:
        weight_BHTS = weight_BHTS.masked_fill(~mask, 0.0)
    return F.dropout(weight_BHTS, dropout) @ value_BHSV


def _past(length: int, device: torch.device) -> Tensor:
    """Return [T, T], true on and below the diagonal."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()
