"""Attention in blocks of queries, to train on a CPU.

torch's fused kernel computes its backward pass slowly on a CPU, and two whole products write the
scores of all pairs of positions to memory.  Here the scores of a block of queries stay in the
cache, keys after the last query of a causal block are left out, and only the weights are stored, in
the dtype of the queries.

Forward and backward on one thread of an AMD EPYC, 4 rows of 4 heads of width 64, causal, 512
positions: in float32 fused 53 ms, plain 65, blocked 33; in bfloat16 48, 37 and 24.

Axes: B sequences, H heads, T query positions, S key positions, Q and P the queries of a block and
the keys that they may read, K and V key and value widths of one head.

Source: the gradients are those of Dao et al. 2022, appendix B.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .backends import AttentionCall, fused_attend, plain_attend, softmax_of_keys

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
