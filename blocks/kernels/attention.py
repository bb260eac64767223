"""Scaled dot-product attention with a backend of `attention_backends.py`, or in blocks of queries.

Blocks are for training on a CPU, where the backward pass of torch's fused kernel is slow, and two
whole products write the scores of all pairs of positions to memory.  Here the scores of a block of
queries stay in the cache, keys after the last query of a causal block are left out, and only the
weights are stored, in the dtype of the queries.

Forward and backward on one thread of an AMD EPYC, 4 rows of 4 heads of width 64, causal, 512
positions: in float32 fused 53 ms, plain 65, blocked 33; in bfloat16 48, 37 and 24.

Axes: B sequences, H heads, G key and value heads, T query positions, S key positions, Q and P the
queries of a block and the keys that they may read, K and V key and value widths of one head.

Source: the gradients of attention in blocks are those of Dao et al. 2022, appendix B.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .attention_backends import (
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
    softmax_of_keys,
    varlen_attend,
    varlen_serves,
)
from .few_shapes import attend_in_few_shapes

QUERIES: Final = {torch.float32: 64, torch.bfloat16: 128}
"""Queries of a block, by dtype; other dtypes use the fused kernel."""
LONGEST: Final = 2048
"""Positions above which the fused kernel is used, since the weights would take too much memory."""


def blocked_attend(call: AttentionCall) -> Tensor:
    """Compute attention in blocks of queries; see `AttentionCall`.

    Where it does not apply (with dropout or a bias, without gradients, on other devices, and for
    subclasses of tensors), the fused kernel is used.  With dropout or a bias in bfloat16, these are
    two products, since the backward pass of that kernel is slow there.
    """
    query, key, value, mask, causal, dropout, scale, bias = call
    if torch.is_autocast_enabled("cpu") and query.device.type == "cpu":
        half = torch.get_autocast_dtype("cpu")
        query, key, value = (part.to(half) for part in (query, key, value))
        call = AttentionCall(query, key, value, mask, causal, dropout, scale, bias)
    if not _serves(query, key, value):
        return fused_attend(call)
    if dropout or bias is not None:
        return (plain_attend if query.dtype == torch.bfloat16 else fused_attend)(call)
    factor = query.size(-1) ** -0.5 if scale is None else scale
    y_BHTV: Tensor = _Blocked.apply(query, key, value, mask, causal, factor)  # type: ignore[no-untyped-call]
    return y_BHTV


def _serves(*parts: Tensor) -> bool:
    query_BHTK, key_BHSK, _ = parts
    return (
        torch.is_grad_enabled()
        and query_BHTK.device.type == "cpu"
        and query_BHTK.dtype in QUERIES
        and max(query_BHTK.size(2), key_BHSK.size(2)) <= LONGEST
        and query_BHTK.size(1) == key_BHSK.size(1)
        and all(type(part) is Tensor and part.dtype == query_BHTK.dtype for part in parts)
        and any(part.requires_grad for part in parts)
    )


class _Blocked(torch.autograd.Function):
    """Attention whose scores exist for one block of queries at a time; N = B x H."""

    @staticmethod
    def forward(
        ctx: Any,
        query_BHTK: Tensor,
        key_BHSK: Tensor,
        value_BHSV: Tensor,
        mask: Tensor | None,
        causal: bool,  # noqa: FBT001 - autograd functions have no arguments by name
        factor: float,
    ) -> Tensor:
        """Return the outputs [B, H, T, V]."""
        shape = query_BHTK.shape
        query, key, value = (x.flatten(0, 1) for x in (query_BHTK, key_BHSK, value_BHSV))
        y_BHTV = query.new_empty(*shape[:3], value.size(-1))
        y_NTV = y_BHTV.view(*query.shape[:2], value.size(-1))
        weights = []
        with torch.autocast("cpu", enabled=False):
            for queries, keys in _blocks(query, key, causal=causal):
                score_NQP = query[:, queries] @ key[:, keys].transpose(1, 2)
                score_NQP = score_NQP.float().mul_(factor)
                hidden = _hidden(score_NQP, mask, queries, causal=causal)
                if hidden is not None:  # in a view, for masks of all heads
                    score_NQP.unflatten(0, shape[:2]).masked_fill_(hidden, float("-inf"))
                weight_NQP = softmax_of_keys(score_NQP)
                if mask is not None:  # all keys of a query may be masked
                    weight_NQP.unflatten(0, shape[:2]).masked_fill_(hidden, 0.0)
                weights.append(weight_NQP.to(query.dtype))
                y_NTV[:, queries] = weights[-1] @ value[:, keys]
        ctx.save_for_backward(query, key, value, y_BHTV, *weights)
        ctx.causal, ctx.factor, ctx.shape = causal, factor, shape
        return y_BHTV

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BHTV: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        """Return the gradients of queries, keys and values."""
        query, key, value, y_BHTV, *weights = ctx.saved_tensors
        grad_NTV = grad_BHTV.flatten(0, 1)
        inner_NT1 = (grad_NTV.float() * y_BHTV.flatten(0, 1).float()).sum(-1, keepdim=True)
        grad_query = torch.empty_like(query)
        grad_key, grad_value = (torch.zeros_like(x, dtype=torch.float32) for x in (key, value))
        blocks = _blocks(query, key, causal=ctx.causal)
        for (queries, keys), weight_NQP in zip(blocks, weights, strict=True):
            grad_NQV = grad_NTV[:, queries]
            grad_value[:, keys] += weight_NQP.transpose(1, 2) @ grad_NQV
            grad_NQP = (grad_NQV @ value[:, keys].transpose(1, 2)).float()
            grad_NQP.sub_(inner_NT1[:, queries]).mul_(weight_NQP).mul_(ctx.factor)
            score_NQP = grad_NQP.to(query.dtype)
            grad_query[:, queries] = score_NQP @ key[:, keys]
            grad_key[:, keys] += score_NQP.transpose(1, 2) @ query[:, queries]
        grads = (grad_query, grad_key.to(key.dtype), grad_value.to(value.dtype))
        query_, key_, value_ = (grad.unflatten(0, ctx.shape[:2]) for grad in grads)
        return query_, key_, value_, None, None, None


def _blocks(query_NTK: Tensor, key_NSK: Tensor, *, causal: bool) -> Iterator[tuple[slice, slice]]:
    """Yield the queries of each block, and the keys that they may read."""
    length, size = query_NTK.size(1), QUERIES[query_NTK.dtype]
    for start in range(0, length, size):
        end = min(start + size, length)
        yield slice(start, end), slice(0, end if causal else key_NSK.size(1))


def _hidden(
    score_NQP: Tensor, mask: Tensor | None, queries: slice, *, causal: bool
) -> Tensor | None:
    """Return which pairs of a block are masked; None if none is."""
    count, keys = score_NQP.shape[1:]
    hidden = None
    if mask is not None:
        hidden = ~(mask if mask.size(-2) == 1 else mask[..., queries, :])[..., :keys]
    if causal:
        later = score_NQP.new_ones(count, keys, dtype=torch.bool).triu(queries.start + 1)
        hidden = later if hidden is None else hidden | later
    return hidden


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
    backends: dict[Core, Computes] = {"blocked": blocked_attend, "plain": plain_attend}
    return partial(attend_in_few_shapes, backends.get(core, fused_attend))


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
    kind: str = "softmax",
    sinks: Tensor | None = None,
    returned: dict[str, Tensor] | None = None,
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
        kind: function that turns scores into weights, one of `softmax.WEIGHTS`.
        sinks: logits [H] of a further key whose value is zero.
        returned: gets the `scores` before masks and the `weights` before dropout, [B, H, T, S];
            then two products compute attention, and `mask_BS` may also be [B or 1, 1, T, S].
        cores: backends by length.

    Returns:
        softmax(q k^T / sqrt(K)) v, [B, H, T, V]; zeros for rows whose keys are all masked.

    Source: Vaswani et al. 2017, section 3.2.1; shared keys: Ainslie et al. 2023.
    """
    if score is None and inner is not None:  # without a function between, both are one sum
        bias = inner if bias is None else inner + bias
        inner = None
    backend = core_for(cores, query_BHTK, key_BGSK)
    normalized = kind == "softmax" and sinks is None and returned is None
    changed = not normalized or score is not None or after_softmax is not None
    fusible = normalized and after_softmax is None and (score is None or elementwise)
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
            kind=kind,
            sinks=sinks,
            returned=returned,
        )
        weight_BHTS = F.dropout(weight_BHTS, dropout).to(value_BGSV.dtype)
        return weight_BHTS @ _repeated(value_BGSV, query_BHTK.size(1))
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
    kind: str = "softmax",
    sinks: Tensor | None = None,
    returned: dict[str, Tensor] | None = None,
) -> Tensor:
    """Return the attention weights of `attend`, [B, H, T, S]; arguments as of `attend`."""
    by_key = mask_BS is not None and mask_BS.dim() == 2  # noqa: PLR2004 - not of pairs
    mask = mask_BS[:, None, None, :] if mask_BS is not None and by_key else mask_BS
    if causal or pairs is not None:
        mask = _local(query_BHTK, mask, causal=causal, pairs=pairs)
    if score is None and inner is not None:
        bias = inner if bias is None else inner + bias
        inner = None
    changed_score = score if inner is None or score is None else _after_adding(inner, score)
    key_BHSK = _repeated(key_BGSK, query_BHTK.size(1))
    weight_BHTS = plain_weights(
        query_BHTK,
        key_BHSK,
        mask,
        causal=False,
        scale=scale,
        bias=bias,
        score=changed_score,
        kind=kind,
        sinks=sinks,
        returned=returned,
    )
    if after_softmax is not None:
        weight_BHTS = after_softmax(weight_BHTS)
    if returned is not None:
        returned["weights"] = weight_BHTS.to(query_BHTK.dtype)
    return weight_BHTS


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
