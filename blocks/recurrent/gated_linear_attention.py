"""Gated linear attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, Signature, port
from ...graphs.ir.state_tensor import StateTensor
from ..params import Base, Count, Epsilon, Params


class GatedLinearAttentionParams(Params):
    """Params of `gated_linear_attention`."""

    heads: Count
    """Number of heads."""
    d_k: Count | None = None
    """Query and key width of one head; d_model / heads / 2 by default."""
    d_v: Count | None = None
    """Value width of one head; d_model / heads by default."""
    rank: Count = 16
    """Rank of the map from the input to the decays."""
    temperature: Base = 16.0
    """Divides the logarithm of the decay; a larger temperature means slower decay."""
    chunk: Count = 16
    """Chunk size in positions for the parallel computation; it affects time and memory, not the
    result."""
    eps: Epsilon = 1e-5
    """Added to the variance in the norm of each head."""


def _signature(_: GatedLinearAttentionParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "input vectors"),
            port("mask", "mask[b t]?", "true at positions that update the state"),
        ),
        outputs=(port("y", "f[b t d_model]", "output at each position"),),
        behavior={"t": "causal"},
    )


def _arguments(params: GatedLinearAttentionParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    d_model, heads = sizes["d_model"], params.heads
    for name, parts in (("d_k", 2 * heads), ("d_v", heads)):
        if getattr(params, name) is None and d_model % parts:
            msg = f"width {d_model} is not divisible by {parts}, so {name} has no default"
            fits = [
                h for h in range(1, min(d_model, 64) + 1) if d_model % (parts // heads * h) == 0
            ]
            near = f"use {min(fits, key=lambda h: abs(h - heads))} heads, or " if fits else ""
            raise ValueError(msg, f"{near}set {name}")
    widths = {"d_k": params.d_k or d_model // (2 * heads), "d_v": params.d_v or d_model // heads}
    return {"d_model": d_model, **params.model_dump(), **widths}


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    a = arguments
    keys, values = a["heads"] * a["d_k"], a["heads"] * a["d_v"]
    return {
        "query.weight": (keys, a["d_model"]),
        "key.weight": (keys, a["d_model"]),
        "value.weight": (values, a["d_model"]),
        "decay_inner.weight": (a["rank"], a["d_model"]),
        "decay_outer.weight": (keys, a["rank"]),
        "decay_outer.bias": (keys,),
        "gate.weight": (values, a["d_model"]),
        "gate.bias": (values,),
        "norm.weight": (a["d_v"],),
        "norm.bias": (a["d_v"],),
        "outer.weight": (a["d_model"], values),
    }


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the maps and the products of all chunks, padding included.

    Per chunk and head: the products of the scores with the values, the state update and the state
    read-out; the scores themselves are elementwise, since each feature decays at its own rate.
    Then the products between all pairs of chunks.
    """
    a, length = arguments, sizes["t"]
    d_k, d_v, heads, rank = a["d_k"], a["d_v"], a["heads"], a["rank"]
    maps = length * (a["d_model"] * (heads * (2 * d_k + 3 * d_v) + rank) + rank * heads * d_k)
    chunks, long = -(-length // a["chunk"]), a["chunk"]
    within = long**2 * d_v + 2 * long * d_k * d_v
    work: int = 2 * sizes["b"] * (maps + heads * (chunks * within + chunks**2 * d_k * d_v))
    return work


def _state(
    arguments: Mapping[str, Any], sizes: Mapping[str, int], _: frozenset[str]
) -> dict[str, StateTensor]:
    """Return the decayed sum of k v^T of each head."""
    a = arguments
    return {"state": StateTensor((sizes["b"], a["heads"], a["d_k"], a["d_v"]), "float32")}


GATED_LINEAR_ATTENTION = BlockType(
    name="gated_linear_attention",
    mixes="gated linear attention",
    doc="Gated linear attention: each head keeps a sum of k v^T whose features decay at rates that "
    "depend on the input, then a norm per head, a gate and a linear map; "
    "S_t = diag(a_t) S_{t-1} + k_t v_t^T, o_t = q_t S_t, a_t = sigmoid(W x_t + b)^(1/16).",
    source="Yang et al. 2024, section 4: recurrence 4.1, chunks 4.2 and 4.3, block 4.4",
    params=GatedLinearAttentionParams,
    signature=_signature,
    arguments=_arguments,
    weights=_weights,
    flops=_flops,
    module=".recurrent.gated_linear_attention_module:GatedLinearAttention",
    steps=True,
    state=_state,
    example={"heads": 2, "rank": 3, "chunk": 4},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
)
