"""Scaled dot-product attention with a backend of `backends.py`.

Axes: B sequences, H heads, G key and value heads, T query positions, S key positions,
K and V key and value widths of one head.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from .backends import (
    BY_RULE,
    COMPARED,
    UNPADDED,
    AttentionCall,
    Computes,
    Core,
    Cores,
    Pairs,
    Score,
    flex_attend,
    flex_serves,
    fused_attend,
    near,
    of_pairs,
    plain_attend,
    plain_weights,
    varlen_attend,
    varlen_serves,
)
from .blocks import blocked_attend

FEW = 16
"""Queries per row up to which a step without gradients may use the plain backend in float32."""
MANY = 1 << 16
"""Values of keys from which it does."""


def core_for(cores: Cores, query_BHTK: Tensor, key_BGSK: Tensor) -> Core:
    """Return the backend for the given queries and keys.

    Compiled graphs must not depend on lengths, so they use one backend for all lengths: the one
    that was chosen for all of them, or else that of the rule.
    """
    if UNPADDED in cores:
        cores = {key: backend for key, backend in cores.items() if key != UNPADDED}
    special = [backend for backend in cores.values() if backend not in COMPARED]
    if special:
        return special[0]
    if torch.compiler.is_compiling() and {*cores.values()} in ({"plain"}, {"fused"}):
        return next(iter(cores.values()))
    if not cores or torch.compiler.is_compiling():
        return "plain" if _suits_plain(query_BHTK, key_BGSK) else "fused"
    length = max(query_BHTK.size(2), key_BGSK.size(2))
    limits = sorted(int(limit) for limit in cores if limit != "*")
    fitting = next((str(limit) for limit in limits if length <= limit), "*")
    return cores.get(fitting, "fused")


def _suits_plain(query_BHTK: Tensor, key_BGSK: Tensor) -> bool:
    """Return whether two products are likely faster than the fused kernel, by a rule.

    On a CPU, they are in bfloat16, where the fused backward pass takes several times as long, and
    in float32 in a decoding step of many rows: at most `FEW` queries per row, and at least `MANY`
    values of keys.  Measured on an AMD EPYC for 64 rows of 8 heads and 32 keys: 1 query 0.24 ms
    instead of 0.35 on one thread; 4 queries 0.30 instead of 1.50 on two threads.
    """
    if query_BHTK.device.type != "cpu":
        return False
    if query_BHTK.dtype == torch.bfloat16:
        return True
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    return query_BHTK.size(2) <= FEW and key_BGSK.numel() >= MANY


def by_name(core: Core) -> Computes:
    """Return the function of a backend from `COMPARED`; `fused_attend` for any other."""
    if core == "blocked":
        return blocked_attend
    return plain_attend if core == "plain" else fused_attend


def attend(  # noqa: PLR0913 - the parts of one formula
    query_BHTK: Tensor,
    key_BGSK: Tensor,
    value_BGSV: Tensor,
    mask_BS: Tensor | None = None,
    *,
    causal: bool = False,
    pairs: Pairs | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
    inner: Tensor | None = None,
    score: Score | None = None,
    bias: Tensor | None = None,
    after_softmax: Score | None = None,
    elementwise: bool = False,
    cores: Cores = BY_RULE,
) -> Tensor:
    """Compute scaled dot-product attention.

    Args:
        query_BHTK: queries.
        key_BGSK: keys; H / G consecutive query heads share a key head.
        value_BGSV: values.
        mask_BS: true at key positions that may be attended to; None if all may be.
        causal: whether position t attends only to positions up to t; requires T = S.
        pairs: which pairs of positions may attend, besides `causal`; requires T = S.
        dropout: dropout probability of the attention weights; pass 0 outside of training.
        scale: factor of the scores; 1 / sqrt(K) if None.
        inner: added to the scores before `score`, [B or 1, H or 1, T, S].
        score: function of the scores, [B, H, T, S].
        bias: added to the scores, [B or 1, H or 1, T, S]; -inf masks a pair.
        after_softmax: function of the attention weights, [B, H, T, S].
        elementwise: whether `score` is elementwise, so that FlexAttention can compute it.
        cores: backends by length.

    Returns:
        softmax(q k^T / sqrt(K)) v, [B, H, T, V]; zeros for rows whose keys are all masked.

    Source: Vaswani et al. 2017, section 3.2.1; shared keys: Ainslie et al. 2023.
    """
    if score is None and inner is not None:  # without a function between, both are one sum
        bias = inner if bias is None else inner + bias
        inner = None
    backend = core_for(cores, query_BHTK, key_BGSK)
    changed = score is not None or after_softmax is not None
    fusible = after_softmax is None and (score is None or elementwise)
    if backend == "flex" and fusible and flex_serves(query_BHTK, dropout=dropout):
        return flex_attend(
            query_BHTK,
            key_BGSK,
            value_BGSV,
            mask_BS,
            causal=causal,
            pairs=pairs,
            scale=scale,
            bias=bias,
            score=score,
            inner=inner,
        )
    if changed:
        weight_BHTS = weigh(
            query_BHTK,
            key_BGSK,
            mask_BS,
            causal=causal,
            pairs=pairs,
            scale=scale,
            inner=inner,
            score=score,
            bias=bias,
            after_softmax=after_softmax,
        )
        return F.dropout(weight_BHTS, dropout) @ _repeated(value_BGSV, query_BHTK.size(1))
    biased = bias is not None or pairs is not None
    if backend == "varlen" and varlen_serves(
        query_BHTK,
        mask_BS,
        causal=causal,
        dropout=dropout,
        biased=biased,
        widths=(key_BGSK.size(-1), value_BGSV.size(-1)),
    ):
        return varlen_attend(query_BHTK, key_BGSK, value_BGSV, mask_BS, causal=causal, scale=scale)
    shared = query_BHTK.size(1) // key_BGSK.size(1)
    mask = None if mask_BS is None else mask_BS[:, None, None, :]
    masked = bias is not None or (mask is not None and (backend != "blocked" or shared > 1))
    if pairs is not None or (causal and (masked or (backend != "fused" and shared > 1))):
        mask, causal = _local(query_BHTK, mask, causal=causal, pairs=pairs), False
        if shared > 1:
            mask = torch.cat([mask] * shared, -2)
    compute = by_name(backend)
    if causal or shared == 1:
        bias = None if bias is None else bias.to(query_BHTK.dtype)
        return compute(
            AttentionCall(query_BHTK, key_BGSK, value_BGSV, mask, causal, dropout, scale, bias)
        )
    # Heads that share a key head become further query positions of one head, so that the keys
    # need not be copied.
    query = query_BHTK.unflatten(1, (-1, shared)).flatten(2, 3)
    if bias is not None:
        bias = _shared_bias(bias.to(query.dtype), shared)
    y = compute(
        AttentionCall(query, key_BGSK, value_BGSV, mask, dropout=dropout, scale=scale, bias=bias)
    )
    y_BHTV: Tensor = y.unflatten(2, (shared, -1)).flatten(1, 2)
    return y_BHTV


def weigh(  # noqa: PLR0913 - the parts of one formula
    query_BHTK: Tensor,
    key_BGSK: Tensor,
    mask_BS: Tensor | None = None,
    *,
    causal: bool = False,
    pairs: Pairs | None = None,
    scale: float | None = None,
    inner: Tensor | None = None,
    score: Score | None = None,
    bias: Tensor | None = None,
    after_softmax: Score | None = None,
) -> Tensor:
    """Return the attention weights of `attend`, [B, H, T, S]; arguments as of `attend`."""
    mask = None if mask_BS is None else mask_BS[:, None, None, :]
    if causal or pairs is not None:
        mask = _local(query_BHTK, mask, causal=causal, pairs=pairs)
    if score is None and inner is not None:
        bias = inner if bias is None else inner + bias
        inner = None
    changed_score = score if inner is None or score is None else _after_adding(inner, score)
    key_BHSK = _repeated(key_BGSK, query_BHTK.size(1))
    weight_BHTS = plain_weights(
        query_BHTK, key_BHSK, mask, causal=False, scale=scale, bias=bias, score=changed_score
    )
    return weight_BHTS if after_softmax is None else after_softmax(weight_BHTS)


def _after_adding(inner: Tensor, score: Score) -> Score:
    return lambda score_BHTS: score(score_BHTS + inner.to(score_BHTS.dtype))


def _local(query_BHTK: Tensor, mask: Tensor | None, *, causal: bool, pairs: Pairs | None) -> Tensor:
    """Return a mask combined with those of causal attention and of pairs of positions."""
    rows, length, device = query_BHTK.size(0), query_BHTK.size(2), query_BHTK.device
    local = near(length, device, causal=causal)
    if pairs is not None:
        at_T = torch.arange(length, device=device)
        local = local & of_pairs(pairs, at_T, at_T, rows)
    return local if mask is None else mask & local


def _repeated(key_BGSK: Tensor, heads: int) -> Tensor:
    """Return keys or values with each shared head repeated for its query heads."""
    shared = heads // key_BGSK.size(1)
    return key_BGSK if shared == 1 else key_BGSK.repeat_interleave(shared, 1)


def _shared_bias(bias: Tensor, shared: int) -> Tensor:
    """Rearrange a bias [B, H or 1, T, S] for heads that became query positions."""
    if bias.size(1) == 1:
        return torch.cat([bias] * shared, 2)
    grouped: Tensor = bias.unflatten(1, (-1, shared)).flatten(2, 3)
    return grouped
