"""Cores: the ways to compute softmax(q k^T / sqrt(K)) v, and which of them is in use.

    plain    two matrix products as the paper writes them; the reference
    fused    torch's scaled_dot_product_attention
    flex     FlexAttention: masks are functions, and blocks of nothing are left out
    varlen   torch's kernel for sequences of many lengths in a row; CUDA alone

A core is chosen by device, precision and length, by a measurement
(`runtime/compile/autotune.py`); without one by a rule.  What a core cannot do (weights that
are dropped, gradients on the CPU, a bias) the fused one does.

Axes: B sequences, H heads, G heads of keys and values, T positions that read, S
positions that are read, K and V widths of one head.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from .unpad import Rows

Core = Literal["fused", "plain", "flex", "varlen"]
COMPARED: tuple[Core, ...] = ("fused", "plain")
"""Cores that do everything everywhere, from which a measurement chooses."""

_chosen: Mapping[str, Core] = MappingProxyType({})


class Computes(Protocol):
    """A core that does everything."""

    def __call__(
        self,
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
        """Let every query read; arguments as of `plain_attend`."""


def use(chosen: Mapping[str, Core]) -> None:
    """Compute attention by these cores from now on, in this process.

    Args:
        chosen: positions up to which a core is used, as text, to the core; `*` beyond the
            last; empty for the rule.
    """
    global _chosen  # noqa: PLW0603 - kernels are the process's, like its threads
    _chosen = MappingProxyType(dict(chosen))


def in_use() -> Mapping[str, Core]:
    """Return what `use` was given last."""
    return _chosen


def core_for(query_BHTK: Tensor, key_BGSK: Tensor) -> Core:
    """Return the core for queries and keys.

    Compiled graphs must not depend on lengths, so there one core serves all.
    """
    uncommon = [core for core in _chosen.values() if core not in COMPARED]
    if uncommon:
        return uncommon[0]
    if not _chosen or torch.compiler.is_compiling():
        # The fused kernel's backward is several times slower than plain products there.
        plain = query_BHTK.device.type == "cpu" and query_BHTK.dtype == torch.bfloat16
        return "plain" if plain else "fused"
    length = max(query_BHTK.size(2), key_BGSK.size(2))
    limits = sorted(int(limit) for limit in _chosen if limit != "*")
    fitting = next((str(limit) for limit in limits if length <= limit), "*")
    return _chosen.get(fitting, "fused")


def by_name(core: Core) -> Computes:
    """Return a core of those that do everything."""
    return plain_attend if core == "plain" else fused_attend


def fused_attend(
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
    """Compute attention by torch's scaled_dot_product_attention; arguments as of `plain_attend`."""
    if causal and (mask is not None or bias is not None):
        past = near(query_BHTK.size(2), query_BHTK.device, causal=True)
        mask, causal = past if mask is None else mask & past, False
    if bias is not None:
        mask = bias if mask is None else torch.where(mask, bias, float("-inf"))
    shared = False
    # A branch: compiled for sizes that change, the comparison alone would be no bool.
    if query_BHTK.size(1) != key_BHSK.size(1):
        shared = True
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
    """Compute attention as the paper writes it, with two matrix products.

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

    A row that may read nothing is zeros, and so is its gradient.
    """
    times = query_BHTK.size(-1) ** -0.5 if scale is None else scale
    if query_BHTK.size(-2) == 1:  # keys times one vector: they need not be turned, nor copied
        score_BHTS = (key_BHSK @ query_BHTK.transpose(-2, -1)).transpose(-2, -1) * times
    else:
        score_BHTS = query_BHTK @ key_BHSK.transpose(-2, -1) * times
    if causal:
        past = near(query_BHTK.size(2), query_BHTK.device, causal=True)
        mask = past if mask is None else mask & past
    if bias is not None:
        score_BHTS = score_BHTS + bias
        readable = bias > float("-inf")
        mask = readable if mask is None else mask & readable
    if mask is not None:
        score_BHTS = score_BHTS.masked_fill(~mask, float("-inf"))
    weight_BHTS = score_BHTS.softmax(-1)
    return weight_BHTS if mask is None else weight_BHTS.masked_fill(~mask, 0.0)


def flex_serves(query_BHTK: Tensor, *, dropout: float) -> bool:
    """Say whether FlexAttention can do what is asked: no dropout, on the CPU no gradients."""
    slopes = torch.is_grad_enabled() and query_BHTK.requires_grad
    return dropout == 0.0 and not (slopes and query_BHTK.device.type == "cpu")


def flex_attend(
    query_BHTK: Tensor,
    key_BGSK: Tensor,
    value_BGSV: Tensor,
    mask_BS: Tensor | None = None,
    *,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Compute attention by FlexAttention; arguments as of `core.attend`.

    Compiled on an accelerator, where blocks that nobody may read cost nothing.

    Source: Dong et al. 2024, https://arxiv.org/abs/2412.05496
    """
    from torch.nn.attention.flex_attention import create_block_mask  # noqa: PLC0415 - slow to load

    def may_read(b: Tensor, _h: Tensor, t: Tensor, s: Tensor) -> Tensor:
        seen = s >= 0 if not causal else s <= t
        if window is not None:
            seen = seen & ((t - s).abs() <= window)
        return seen if mask_BS is None else seen & mask_BS[b, s]

    def biased(score: Tensor, b: Tensor, h: Tensor, t: Tensor, s: Tensor) -> Tensor:
        if bias is None:
            return score
        return score + bias[b if bias.size(0) > 1 else 0, h if bias.size(1) > 1 else 0, t, s]

    sentences, heads, length, _ = query_BHTK.shape
    mask = create_block_mask(
        may_read,
        None if mask_BS is None else sentences,
        None,
        length,
        key_BGSK.size(2),
        device=query_BHTK.device,
    )
    y: Tensor = _flex(compiled=query_BHTK.device.type != "cpu")(
        query_BHTK,
        key_BGSK,
        value_BGSV,
        score_mod=None if bias is None else biased,
        block_mask=mask,
        scale=scale,
        enable_gqa=heads != key_BGSK.size(1),
    )
    return y


@functools.cache
def _flex(*, compiled: bool) -> Callable[..., Any]:
    """Return FlexAttention; on the CPU as it is, which is slow and exact."""
    from torch.nn.attention.flex_attention import flex_attention  # noqa: PLC0415 - slow to load

    if compiled:
        return torch.compile(flex_attention, dynamic=True)
    return flex_attention


def varlen_serves(
    query_BHTK: Tensor, mask_BS: Tensor | None, *, causal: bool, dropout: float, biased: bool
) -> bool:
    """Say whether the kernel for many lengths can do what is asked.

    It is there on CUDA for half precision; it drops nothing, and keys that are left out would
    move those after them, so not where order counts.
    """
    return (
        _varlen_runs(query_BHTK, dropout=dropout)
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
    """Compute attention over the keys that may be read alone; arguments as of `core.attend`.

    How many there are is asked of the device, which is waited for.
    """
    sentences, _, length, _ = query_BHTK.shape
    read = key_BGSK.size(2)
    key, value = (part.transpose(1, 2).flatten(0, 1) for part in (key_BGSK, value_BGSV))
    lengths_B = torch.full((sentences,), read, device=query_BHTK.device)
    if mask_BS is not None:
        kept = mask_BS.flatten().nonzero()[:, 0]
        key, value, lengths_B = key[kept], value[kept], mask_BS.sum(1)
    all_B = torch.full_like(lengths_B, length)
    y = _varlen(
        query_BHTK.transpose(1, 2).flatten(0, 1),
        key,
        value,
        (all_B, lengths_B),
        (length, read),
        causal=causal,
        scale=scale,
    )
    y_BTHV: Tensor = y.unflatten(0, (sentences, length))
    return y_BTHV.transpose(1, 2)


def varlen_applies(query: Tensor, *, dropout: float) -> bool:
    """Say whether `varlen_unpadded` is asked for and can do what is asked."""
    return "varlen" in _chosen.values() and _varlen_runs(query, dropout=dropout)


def _varlen_runs(query: Tensor, *, dropout: float) -> bool:
    """Say whether the kernel takes such queries."""
    half = query.dtype in (torch.bfloat16, torch.float16)
    return half and query.device.type == "cuda" and dropout == 0.0


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
    """Compute attention over packed rows, none of them padded; nothing is waited for.

    Args:
        query_RHK: what each of the R positions that read looks for.
        key_SGK: what each of the S positions that are read offers.
        value_SGV: what it gives.
        reads: where those that read belong.
        read: where those that are read belong; the rows of one are those of the other.
        causal: whether a position reads none later than itself.
        scale: times which scores are taken; 1 / sqrt(K) when None.

    Returns:
        What each read, R x H x V.
    """
    return _varlen(
        query_RHK,
        key_SGK,
        value_SGV,
        (reads.mask.sum(1), read.mask.sum(1)),
        (reads.mask.size(1), read.mask.size(1)),
        causal=causal,
        scale=scale,
    )


def _varlen(
    query_RHK: Tensor,
    key_SGK: Tensor,
    value_SGV: Tensor,
    lengths: tuple[Tensor, Tensor],
    longest: tuple[int, int],
    *,
    causal: bool,
    scale: float | None,
) -> Tensor:
    """Call torch's kernel; both of those that read and of those that are read.

    Lengths are of each row, [B]; no row is longer than the longest.
    """
    from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415 - new in torch

    groups, heads = key_SGK.size(1), query_RHK.size(1)
    if groups != heads:  # older torch knows no shared keys here
        shared = heads // groups
        key_SGK, value_SGV = (x.repeat_interleave(shared, 1) for x in (key_SGK, value_SGV))
    starts, read_starts = (F.pad(each_B.cumsum(0), (1, 0)).to(torch.int32) for each_B in lengths)
    y: Any = varlen_attn(
        query_RHK,
        key_SGK,
        value_SGV,
        starts,
        read_starts,
        *longest,
        scale=scale,
        window_size=(-1, 0) if causal else (-1, -1),
    )
    y_RHV: Tensor = y
    return y_RHV


def near(length: int, device: torch.device, *, causal: bool, window: int | None = None) -> Tensor:
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
