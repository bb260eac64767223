"""Attention backends: implementations of softmax(q k^T / sqrt(K)) v, and which one is in use.

    plain    two matrix products as in the paper; the reference
    fused    torch's scaled_dot_product_attention
    blocked  products of blocks of queries (`blocks.py`); training on the CPU only
    flex     FlexAttention: masks are functions, and fully masked blocks are skipped
    varlen   torch's kernel for concatenated sequences of different lengths; CUDA only

The backend is chosen by device, precision and length: from a measurement
(`runtime/compile/autotune.py`) that `kernel_choice.py` gives to the modules of a model, otherwise
by a rule.  Where a backend lacks a feature (dropout, gradients on the CPU, a bias), another one
is used instead.

Axes: B sequences, H heads, G key and value heads, T query positions, S key positions,
K and V key and value widths of one head.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from .softmax import masked_weights
from .unpad import Rows

Core = Literal["fused", "plain", "blocked", "flex", "varlen"]
COMPARED: tuple[Core, ...] = ("fused", "plain", "blocked")
"""Backends among which a measurement chooses; `blocked` on the CPU only."""

FLOATS: Final = 16
"""Floats in a vector of AVX-512, which has twice as many numbers in bfloat16."""
FEW: Final = 4096
"""Scores below which a copy takes longer than it saves."""
WIDEST = 256
"""Maximum width of a head in the kernel for different lengths.

Source: https://github.com/Dao-AILab/flash-attention"""

Pairs = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Maps the positions of queries and keys, and the rows of the batch, to true where the query may
attend to the key; elementwise, for index tensors of any shapes that broadcast."""
Score = Callable[[Tensor], Tensor]
"""Maps scores or attention weights [B, H, T, S] to others."""

UNPADDED = "unpadded"
"""Key of `Cores` for queries and keys without padding; only `varlen` computes those as they are."""
Cores = Mapping[str, Core]
"""Backend by the maximum length it is used for, as text; `*` for longer sequences, and `UNPADDED`.
If empty, the backend is chosen by a rule."""
BY_RULE: Cores = MappingProxyType({})


class AttentionCall(NamedTuple):
    """What a backend computes: softmax(q k^T * scale + bias) v, [B, H, T, V]."""

    query: Tensor
    """Queries [B, H, T, K]."""
    key: Tensor
    """Keys [B, H, S, K]."""
    value: Tensor
    """Values [B, H, S, V]."""
    mask: Tensor | None = None
    """True where attention is allowed; broadcastable to [B, H, T, S]."""
    causal: bool = False
    """Whether position t attends only to positions up to t."""
    dropout: float = 0.0
    """Dropout probability of the attention weights."""
    scale: float | None = None
    """Factor of the scores; 1 / sqrt(K) if None."""
    bias: Tensor | None = None
    """Added to the scores; broadcastable to [B, H, T, S]."""


Computes = Callable[[AttentionCall], Tensor]
"""An attention backend that supports all features."""


def fused_attend(call: AttentionCall) -> Tensor:
    """Compute attention with torch's scaled_dot_product_attention."""
    query_BHTK, key_BHSK, value_BHSV, mask, causal, dropout, scale, bias = call
    if causal and (mask is not None or bias is not None):
        past = near(query_BHTK.size(2), query_BHTK.device, causal=True)
        mask, causal = past if mask is None else mask & past, False
    if bias is not None:
        mask = bias if mask is None else torch.where(mask, bias, float("-inf"))
    shared = False
    # An if statement, because with dynamic shapes the comparison itself is a SymBool.
    if query_BHTK.size(1) != key_BHSK.size(1):
        shared = True
    with _planned_once(query_BHTK.device):
        return F.scaled_dot_product_attention(
            query_BHTK,
            key_BHSK,
            value_BHSV,
            attn_mask=mask,
            dropout_p=dropout,
            is_causal=causal,
            scale=scale,
            enable_gqa=shared,
        )


def _planned_once(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context without the kernel of cuDNN, which plans anew for every shape.

    In bfloat16 torch prefers it on recent GPUs.  Batches have hundreds of shapes (decision 0026),
    and a plan takes up to a second (FunASR issue 3704, measured with torch 2.11).
    `benchmarks/attention.py` measures it.
    """
    kinds = SDPBackend
    others = [kinds.FLASH_ATTENTION, kinds.EFFICIENT_ATTENTION, kinds.MATH]
    return sdpa_kernel(others) if device.type == "cuda" else nullcontext()


def plain_attend(call: AttentionCall) -> Tensor:
    """Compute attention with two matrix products, as in the paper."""
    weight_BHTS = plain_weights(
        call.query,
        call.key,
        call.mask,
        causal=call.causal,
        scale=call.scale,
        bias=call.bias,
    )
    return F.dropout(weight_BHTS, call.dropout) @ call.value


def plain_weights(  # noqa: PLR0913 - the parts of one formula
    query_BHTK: Tensor,
    key_BHSK: Tensor,
    mask: Tensor | None,
    *,
    causal: bool,
    scale: float | None = None,
    bias: Tensor | None = None,
    score: Score | None = None,
    kind: str = "softmax",
    sinks: Tensor | None = None,
    returned: dict[str, Tensor] | None = None,
) -> Tensor:
    """Return softmax(q k^T / sqrt(K)), [B, H, T, S]; arguments as of `AttentionCall`.

    Fully masked rows are zeros, and so are their gradients.  `score` maps the scaled scores to
    those to which the bias is added.  `kind` is the function that turns them into weights, one of
    `softmax.WEIGHTS`, and `sinks` [H] are the logits of a further key whose value is zero.
    `returned` gets the `scores`, before masks.
    """
    factor = query_BHTK.size(-1) ** -0.5 if scale is None else scale
    score_BHTS = query_BHTK @ key_BHSK.transpose(-2, -1) * factor
    if score is not None:
        score_BHTS = score(score_BHTS)
    if causal:
        past = near(query_BHTK.size(2), query_BHTK.device, causal=True)
        mask = past if mask is None else mask & past
    if bias is not None:
        score_BHTS = score_BHTS + bias
        allowed = bias > float("-inf")
        mask = allowed if mask is None else mask & allowed
    if returned is not None:
        returned["scores"] = score_BHTS.to(query_BHTK.dtype)
    if kind != "softmax":
        return masked_weights(score_BHTS, mask, kind)
    if sinks is not None:
        allowed = score_BHTS if mask is None else score_BHTS.masked_fill(~mask, float("-inf"))
        sink_BHT1 = sinks[:, None, None].expand(*score_BHTS.shape[:3], 1).to(score_BHTS.dtype)
        return torch.cat([allowed, sink_BHT1], -1).softmax(-1)[..., :-1]
    if mask is None:
        return softmax_of_keys(score_BHTS)
    masked = ~mask
    weight_BHTS = softmax_of_keys(score_BHTS.masked_fill(masked, float("-inf")))
    return weight_BHTS.masked_fill(masked, 0.0)


def flex_serves(query_BHTK: Tensor, *, dropout: float) -> bool:
    """Return whether FlexAttention applies: no dropout, and on the CPU no gradients.

    Code that is compiled for the CPU does not contain it either: that needs AVX2.
    """
    if query_BHTK.device.type != "cpu":
        return dropout == 0.0
    needs_grad = torch.is_grad_enabled() and query_BHTK.requires_grad
    return dropout == 0.0 and not (needs_grad or torch.compiler.is_compiling())


def flex_attend(  # noqa: PLR0913 - the parts of one formula
    query_BHTK: Tensor,
    key_BGSK: Tensor,
    value_BGSV: Tensor,
    mask_BS: Tensor | None = None,
    *,
    causal: bool = False,
    pairs: Pairs | None = None,
    scale: float | None = None,
    bias: Tensor | None = None,
    score: Score | None = None,
    inner: Tensor | None = None,
) -> Tensor:
    """Compute attention with FlexAttention; arguments as of `dispatch.attend`.

    `score` must be elementwise.

    It is compiled on accelerators, where fully masked blocks are skipped.

    Source: Dong et al. 2024, https://arxiv.org/abs/2412.05496
    """
    from torch.nn.attention.flex_attention import create_block_mask  # noqa: PLC0415 - slow to load

    def mask_mod(b: Tensor, _h: Tensor, t: Tensor, s: Tensor) -> Tensor:
        allowed = s >= 0 if not causal else s <= t
        if pairs is not None:
            allowed = allowed & pairs(t, s, b)
        return allowed if mask_BS is None else allowed & mask_BS[b, s]

    def added(value: Tensor, to: Tensor | None, *at: Tensor) -> Tensor:
        if to is None:
            return value
        b, h, t, s = at
        return value + to[b if to.size(0) > 1 else 0, h if to.size(1) > 1 else 0, t, s]

    def score_mod(value: Tensor, b: Tensor, h: Tensor, t: Tensor, s: Tensor) -> Tensor:
        value = added(value, inner, b, h, t, s)
        return added(value if score is None else score(value), bias, b, h, t, s)

    sentences, heads, length, _ = query_BHTK.shape
    changed = not (bias is None and score is None and inner is None)
    mask = create_block_mask(
        mask_mod,
        None if mask_BS is None and pairs is None else sentences,
        None,
        length,
        key_BGSK.size(2),
        device=query_BHTK.device,
    )
    y: Tensor = _flex(compiled=query_BHTK.device.type != "cpu")(
        query_BHTK,
        key_BGSK,
        value_BGSV,
        score_mod=score_mod if changed else None,
        block_mask=mask,
        scale=scale,
        enable_gqa=heads != key_BGSK.size(1),
    )
    return y


@functools.cache
def _flex(*, compiled: bool) -> Callable[..., Any]:
    """Return FlexAttention, optionally compiled; uncompiled, it is slow and exact."""
    from torch.nn.attention.flex_attention import flex_attention  # noqa: PLC0415 - slow to load

    if compiled:
        return torch.compile(flex_attention, dynamic=True)
    return flex_attention


def varlen_serves(
    query_BHTK: Tensor,
    mask_BS: Tensor | None,
    *,
    causal: bool,
    dropout: float,
    biased: bool,
    widths: tuple[int, int],
) -> bool:
    """Return whether the kernel for different lengths applies.

    It needs CUDA and half precision, and supports neither dropout nor a bias.  Masked keys are
    removed, which shifts the positions of later keys, so a causal mask cannot be combined
    with a padding mask.
    """
    return (
        _varlen_runs(query_BHTK, widths, dropout=dropout)
        and not biased
        and not (causal and mask_BS is not None)
    )


def varlen_attend(
    query_BHTK: Tensor,
    key_BGSK: Tensor,
    value_BGSV: Tensor,
    mask_BS: Tensor | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Compute attention over unmasked keys only; arguments as of `dispatch.attend`.

    Counting the unmasked keys synchronizes with the device.
    """
    sentences, _, length, _ = query_BHTK.shape
    keys = key_BGSK.size(2)
    key, value = (part.transpose(1, 2).flatten(0, 1) for part in (key_BGSK, value_BGSV))
    # Inductor cannot compile a running sum of a constant that depends on the shape.
    ordinals = torch.arange(sentences + 1, device=query_BHTK.device)
    starts = ordinals * keys
    if mask_BS is not None:
        unmasked = mask_BS.flatten().nonzero()[:, 0]
        key, value, starts = key[unmasked], value[unmasked], _starts(mask_BS.sum(1))
    y = _varlen(
        query_BHTK.transpose(1, 2).flatten(0, 1),
        key,
        value,
        (ordinals * length, starts),
        (length, keys),
        causal=causal,
        scale=scale,
    )
    y_BTHV: Tensor = y.unflatten(0, (sentences, length))
    return y_BTHV.transpose(1, 2)


def varlen_applies(cores: Cores, query: Tensor, widths: tuple[int, int], *, dropout: float) -> bool:
    """Return whether `varlen_unpadded` is requested and applies.

    `widths` are those of a head of the keys and of the values.
    """
    return "varlen" in cores.values() and _varlen_runs(query, widths, dropout=dropout)


def _varlen_runs(query: Tensor, widths: tuple[int, int], *, dropout: float) -> bool:
    """Return whether the kernel supports the queries: CUDA, half precision, no dropout.

    Both widths of a head must be the same multiple of 8, of at most 256.
    """
    width, same = widths[0], widths[0] == widths[1]
    half = query.dtype in (torch.bfloat16, torch.float16)
    fits = same and width % 8 == 0 and width <= WIDEST
    return half and fits and query.device.type == "cuda" and dropout == 0.0


def varlen_unpadded(
    query_RHK: Tensor,
    key_SGK: Tensor,
    value_SGV: Tensor,
    reads: Rows,
    read: Rows,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Compute attention over unpadded rows, without synchronizing with the device.

    Args:
        query_RHK: queries of R non-padding positions.
        key_SGK: keys of S non-padding positions.
        value_SGV: values of the same positions.
        reads: rows of the queries.
        read: rows of the keys; row b of the queries attends to row b of the keys.
        causal: whether a position attends only to itself and earlier ones.
        scale: factor of the scores; 1 / sqrt(K) if None.

    Returns:
        The attention output, [R, H, V].
    """
    return _varlen(
        query_RHK,
        key_SGK,
        value_SGV,
        (_starts(reads.mask.sum(1)), _starts(read.mask.sum(1))),
        (reads.mask.size(1), read.mask.size(1)),
        causal=causal,
        scale=scale,
    )


def _varlen(
    query_RHK: Tensor,
    key_SGK: Tensor,
    value_SGV: Tensor,
    starts: tuple[Tensor, Tensor],
    longest: tuple[int, int],
    *,
    causal: bool,
    scale: float | None,
) -> Tensor:
    """Call torch's kernel.

    `starts` holds the starts of the query and key rows and the end of the last one, [B + 1] each,
    and `longest` an upper bound of their lengths.
    """
    from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415 - new in torch

    groups, heads = key_SGK.size(1), query_RHK.size(1)
    if groups != heads:  # older versions of torch lack grouped-query attention here
        shared = heads // groups
        key_SGK, value_SGV = (x.repeat_interleave(shared, 1) for x in (key_SGK, value_SGV))
    query_starts, key_starts = (rows.to(torch.int32) for rows in starts)
    y: Any = varlen_attn(
        query_RHK,
        key_SGK,
        value_SGV,
        query_starts,
        key_starts,
        *longest,
        scale=scale,
        window_size=(-1, 0) if causal else (-1, -1),
    )
    y_RHV: Tensor = y
    return y_RHV


def _starts(lengths_B: Tensor) -> Tensor:
    """Return the starts of rows of these lengths, and the end of the last one, [B + 1]."""
    return F.pad(lengths_B.cumsum(0), (1, 0))


def near(length: int, device: torch.device, *, causal: bool) -> Tensor:
    """Return the mask [T, T] of causal attention, or of attention to all positions.

    Args:
        length: number of positions T.
        device: device of the mask.
        causal: whether position t attends only to positions up to t.
    """
    all_ = torch.ones(length, length, dtype=torch.bool, device=device)
    return all_.tril() if causal else all_


def of_pairs(pairs: Pairs, query_T: Tensor, key_S: Tensor, rows: int) -> Tensor:
    """Return which keys each query may attend to, [T, S], or [B, 1, T, S] if rows differ.

    Args:
        pairs: the elementwise function.
        query_T: positions of the queries.
        key_S: positions of the keys.
        rows: number of rows B.
    """
    row_B11 = torch.arange(rows, device=query_T.device)[:, None, None]
    allowed = pairs(query_T[:, None], key_S[None, :], row_B11)
    return allowed[:, None] if allowed.dim() > 2 else allowed  # noqa: PLR2004 - with rows


def softmax_of_keys(score: Tensor) -> Tensor:
    """Return the softmax over the last axis, in the dtype of the scores.

    On a CPU, torch computes what does not fill a vector of AVX-512 one value at a time: rows of
    fewer than 16 floats, and in bfloat16 rows of fewer than 32 and the remainders of somewhat
    longer ones.  Such rows are filled up with -inf, and those in bfloat16 are computed in float32.

    Forward and backward for 600 x 14 queries on one thread of an AMD EPYC: 14 keys in bfloat16
    0.5 ms instead of 2.0, in float32 0.7 instead of 3.0; 24 keys in bfloat16 0.5 instead of 1.5.

    Args:
        score: scores of queries and keys, [..., S].
    """
    if not _is_slow(score):
        return score.softmax(-1)
    keys, floats = score.size(-1), score.float()
    if keys < FLOATS:
        floats = F.pad(floats, (0, FLOATS - keys), value=float("-inf"))
    return floats.softmax(-1)[..., :keys].to(score.dtype)


def _is_slow(score: Tensor) -> bool:
    """Return whether torch would compute many of the values one at a time."""
    if torch.compiler.is_compiling() or score.device.type != "cpu" or score.numel() < FEW:
        return False
    keys = score.size(-1)
    if score.dtype == torch.bfloat16:
        return keys < 4 * FLOATS and keys % (2 * FLOATS) > 0
    return score.dtype == torch.float32 and keys < FLOATS
