"""What an ejected file has instead of the kernels that Weft chooses by processor and length.

Each definition has the name, the arguments and the results of the one that it replaces, and calls
torch.  An ejected model gets padded values and keeps no low-precision copies of its weights.

Axes: B sequences, H heads, G key and value heads, T query positions, S key positions, K and V key
and value widths of one head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....blocks.kernels.affine_scan import states_in_groups
from ....blocks.kernels.attention import weigh
from ....blocks.kernels.attention_backends import (
    Cores,
    Pairs,
    Score,
    near,
    of_pairs,
)
from ....blocks.kernels.decode_state import State
from ....blocks.kernels.linear import Product
from ....blocks.kernels.precision import uncompiled

REPLACED = {
    "blocks.kernels.affine_scan": ("affine_scan",),
    "blocks.kernels.attention_backends": ("softmax_of_keys",),
    "blocks.kernels.attention": ("attend",),
    "blocks.kernels.dropout": ("Dropout",),
    "blocks.kernels.expert_matmul": ("expert_matmul",),
    "blocks.kernels.linear": ("linear", "linear_maps"),
    "runtime.decode.stepper": ("enlarge", "reorder"),
}
"""Module to the names of its definitions that those of this file replace."""
WITHOUT_LORA = {"blocks.kernels.linear": ("LinearMap",)}
"""The same, if no map of the model has LoRA."""


def attend(  # noqa: PLR0913 - the arguments of the function that this replaces
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
    elementwise: bool = False,  # noqa: ARG001 - an argument of the function that this replaces
    kind: str = "softmax",
    sinks: Tensor | None = None,
    returned: dict[str, Tensor] | None = None,
    cores: Cores | None = None,  # noqa: ARG001 - an argument of the function that this replaces
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
        elementwise: not used.
        kind: function that turns scores into weights.
        sinks: logits [H] of a further key whose value is zero.
        returned: gets the `scores` before masks and the `weights` before dropout, [B, H, T, S];
            then `mask_BS` may also be [B or 1, 1, T, S].
        cores: not used.

    Returns:
        softmax(q k^T / sqrt(K)) v, [B, H, T, V]; zeros for rows whose keys are all masked.
    """
    normalized = kind == "softmax" and sinks is None and returned is None
    if not normalized or score is not None or after_softmax is not None:
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
        shared = query_BHTK.size(1) // value_BGSV.size(1)
        weight_BHTS = F.dropout(weight_BHTS, dropout).to(value_BGSV.dtype)
        return weight_BHTS @ value_BGSV.repeat_interleave(shared, 1)
    mask = None if mask_BS is None else mask_BS[:, None, None, :]
    if pairs is not None:
        positions_T = torch.arange(query_BHTK.size(2), device=query_BHTK.device)
        allowed = of_pairs(pairs, positions_T, positions_T, query_BHTK.size(0))
        mask = allowed if mask is None else mask & allowed
    if causal and mask is not None:
        mask = mask & near(query_BHTK.size(2), query_BHTK.device, causal=True)
        causal = False
    if inner is not None:
        bias = inner if bias is None else inner + bias
    if bias is not None:
        bias = bias.to(query_BHTK.dtype)
        if causal:
            mask = near(query_BHTK.size(2), query_BHTK.device, causal=True)
            causal = False
        mask = bias if mask is None else torch.where(mask, bias, float("-inf"))
    return F.scaled_dot_product_attention(
        query_BHTK,
        key_BGSK,
        value_BGSV,
        attn_mask=mask,
        dropout_p=dropout,
        is_causal=causal,
        scale=scale,
        enable_gqa=query_BHTK.size(1) != key_BGSK.size(1),
    )


@uncompiled
def affine_scan(
    factor: Tensor, term: Tensor, start: Tensor | None = None, *, matrices: bool = False
) -> Tensor:
    """Return h_t = factor_t h_{t-1} + term_t at every position, [B, T, ...].

    Args:
        factor: factors, [B, T, ...], of the dtype of `term`.
        term: what is added, [B, T, ...].
        start: the state before the first position, [B, ...]; zero if None.
        matrices: whether factors multiply as matrices instead of element by element.
    """
    return states_in_groups(factor, term, start, matrices=matrices)


@uncompiled
def expert_matmul(x_MI: Tensor, weight_EIO: Tensor, count_E: Tensor) -> Tensor:
    """Return each block of rows times the matrix of its expert, [M, O].

    Args:
        x_MI: rows, sorted by expert.
        weight_EIO: a matrix for each expert, of the dtype of the rows.
        count_E: number of rows of each expert; they sum to M.
    """
    parts = zip(x_MI.split(count_E.tolist()), weight_EIO, strict=True)
    return torch.cat([part @ weight for part, weight in parts])


def softmax_of_keys(score: Tensor) -> Tensor:
    """Return the softmax over the last axis."""
    return score.softmax(-1)


def linear(
    x: Tensor,
    weight_OI: Tensor,
    bias_O: Tensor | None = None,
    kernel: Product = "torch",  # noqa: ARG001 - an argument of the function that this replaces
) -> Tensor:
    """Return x W^T + b for x [..., I]."""
    return F.linear(x, weight_OI, bias_O)


def linear_maps(x: Tensor, *maps: nn.Module) -> Sequence[Tensor]:
    """Apply linear maps to the same x [..., I]."""
    return tuple(linear_map(x) for linear_map in maps)


class LinearMap(nn.Linear):
    """Linear map x W^T + b."""

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., I] to [..., O]."""
        return super().forward(x)


class Dropout(nn.Module):
    """Zero elements at random in training and scale up the others.

    Source: Srivastava et al. 2014; Vaswani et al. 2017, section 5.4.
    """

    def __init__(self, dropout: float) -> None:
        """Set the dropout probability, in [0, 1)."""
        super().__init__()
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """Apply dropout to x, of any shape."""
        return F.dropout(x, self.dropout, self.training)


def reorder(state: Any, rows_R: Tensor) -> None:
    """Let each row of a decoding state continue another one, in place.

    Args:
        state: what `begin` returned.
        rows_R: for each row, the row that it continues; both have the same source.
    """
    if isinstance(state, State):
        for tensors in (state.appended, state.carried):
            for name, tensor in tensors.items():
                tensors[name] = tensor.index_select(0, rows_R)
    elif isinstance(state, dict | list):
        for inner in state.values() if isinstance(state, dict) else state:
            reorder(inner, rows_R)


def enlarge(state: Any, length: int) -> None:
    """Make room in the buffers of a decoding state, in place.

    Args:
        state: what `begin` returned.
        length: number of positions that each buffer can hold afterwards, besides a lead.
    """
    if isinstance(state, State):
        for name, buffer in state.appended.items():
            if (missing := length - buffer.size(-2)) > 0:
                state.appended[name] = F.pad(buffer, (0, 0, 0, missing))
    elif isinstance(state, dict | list):
        lead = state.get("=lead", 0) if isinstance(state, dict) else 0
        for inner in state.values() if isinstance(state, dict) else state:
            enlarge(inner, length + lead)
