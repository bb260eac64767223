"""Attention: every position of one sequence reads from another sequence, or its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from ...graphs.ir.block_type import BlockType, Division, Signature, port
from ..params import LATER, Base, Count, Flag, Params, Probability
from .projections import head_widths, linear_weights, nearest, projections

DISTANT = ("alibi", "relative_bias", "relative_key")
"""Values of `position` that add to each score what its distance is worth."""


class AttentionParams(Params):
    """Params of `attention`."""

    heads: Count
    """Number of heads."""
    d_k: Count | None = None
    """Width of one head's queries and keys; d_model / heads when left out."""
    d_v: Count | None = None
    """Width of one head's values; d_k when left out."""
    causal: Flag = False
    """Whether a position reads none later than itself; only without `memory`."""
    bias: Flag = True
    """Whether the four projections have biases."""
    dropout: Probability = 0.0
    """Probability of dropping an attention weight while training."""
    position: Annotated[
        Literal["none", "rotary", "alibi", "relative_bias", "relative_key"], LATER
    ] = "none"
    """`rotary` turns pairs (2i, 2i+1) of q and k by pos * base^(-2i/d_k), only without `memory`;
    `alibi` takes 2^(-8h/heads) * distance off the scores of head h, from 1; `relative_bias` adds
    a learned number for each head and bucket of distances; `relative_key` adds to each key a
    learned one for its distance, the same in all heads.  The last three leave no `memory`."""
    rotary_base: Annotated[Base, LATER] = 10_000.0
    """Base of the angles of `rotary`; a larger one turns more slowly."""
    window: Annotated[Count | None, LATER] = None
    """Farthest position that is read, counted from the reader; only without `memory`."""
    buckets: Annotated[Count, LATER] = 32
    """Buckets of distances of `relative_bias`; when not `causal`, half for what stands after."""
    max_distance: Annotated[Count, LATER] = 128
    """Distance of `relative_bias` from which on all share the last bucket."""
    reach: Annotated[Count, LATER] = 16
    """Distance of `relative_key` from which on all share a key, to either side."""
    scale: Annotated[Literal["sqrt", "none"], LATER] = "sqrt"
    """`sqrt` divides scores by sqrt(d_k); `none` leaves the dot products as they are."""
    head_gates: Annotated[Flag, LATER] = False
    """Whether what each head read is multiplied by a learned number that starts at 1; its slope
    says how much the head counts."""
    key_bias: Annotated[Flag, LATER] = True
    """Whether the keys have a bias, where the others do; softmax takes the same off all scores
    of a reader, so it changes nothing but, with `rotary`, the angle."""


class GroupedQueryAttentionParams(AttentionParams):
    """Params of `grouped_query_attention`."""

    kv_heads: Count
    """Heads of keys and values, dividing `heads`; 1 is multi-query, `heads` is attention@1."""


def _signature(params: AttentionParams, wired: frozenset[str]) -> Signature:
    """Self-attention when `memory` is not wired, then s is t; always where distance counts."""
    memory = port("memory", "f[b s d_memory]?", "what is read; x itself when not wired")
    read = () if params.position in DISTANT else (memory,)
    crossed = "memory" in wired and bool(read)
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "what reads"),
            *read,
            port("mask", "mask[b s]?", "which positions may be read"),
            port("bias", "bias[b t s]?", "what is added to the scores; -inf where none may read"),
        ),
        outputs=(port("y", "f[b t d_model]", "what each position read"),),
        same={} if crossed else {"s": "t", "d_memory": "d_model"},
        behavior={"s": "full"} if crossed else {"t": "causal" if params.causal else "full"},
    )


def _arguments(params: AttentionParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    d_model, heads = sizes["d_model"], params.heads
    d_k, d_v = head_widths(d_model, heads, params.d_k, params.d_v)
    if params.position == "rotary" and d_k % 2:
        msg = f"d_k is {d_k}, which is odd, but rotary positions turn pairs of numbers"
        raise ValueError(msg, f"give a d_k that is even, such as {d_k + 1}, or another 'heads'")
    if params.position == "relative_bias":
        _check_buckets(params)
    return {
        "d_model": d_model,
        "d_memory": sizes.get("d_memory", d_model),
        "heads": heads,
        "d_k": d_k,
        "d_v": d_v,
        "kv_heads": heads,
        "causal": params.causal,
        "bias": params.bias,
        "key_bias": params.key_bias,
        "dropout": params.dropout,
        "position": params.position,
        "rotary_base": params.rotary_base,
        "window": params.window,
        "scale": params.scale,
        "buckets": params.buckets,
        "max_distance": params.max_distance,
        "reach": params.reach,
        "head_gates": params.head_gates,
    }


def _check_buckets(params: AttentionParams) -> None:
    """Refuse buckets that cannot be halved, and those of one distance that reach too far."""
    parts = 2 if params.causal else 4
    if params.buckets % (parts // 2) or params.buckets < parts:
        msg = f"{params.buckets} buckets do not divide into near and far, before and after"
        if params.causal:
            msg = f"{params.buckets} buckets do not divide into near and far"
        raise ValueError(msg, f"use {max(parts, params.buckets + params.buckets % 2)} buckets")
    exact = params.buckets // parts
    if params.max_distance <= exact:
        msg = f"max_distance is {params.max_distance}, but buckets of one distance reach {exact}"
        raise ValueError(msg, f"use a max_distance above {exact}, or fewer buckets")


def _grouped_arguments(
    params: GroupedQueryAttentionParams, sizes: Mapping[str, Any]
) -> dict[str, Any]:
    heads, kv_heads = params.heads, params.kv_heads
    if heads % kv_heads:
        msg = f"{heads} heads do not divide among {kv_heads} heads of keys and values"
        fits = (h for h in range(1, heads + 1) if heads % h == 0)
        raise ValueError(msg, f"use {nearest(kv_heads, fits)} kv_heads")
    return {**_arguments(params, sizes), "kv_heads": kv_heads}


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    a = arguments
    without = "" if a["key_bias"] else "key"
    weights = linear_weights(projections(a), bias=a["bias"], without=without)
    if a["head_gates"]:
        weights["head_gate"] = (a["heads"],)
    if a["position"] == "relative_bias":
        weights["relative_bias.weight"] = (a["buckets"], a["heads"])
    if a["position"] == "relative_key":
        weights["relative_key.weight"] = (_relative_keys(a), a["d_k"])
    return weights


def _relative_keys(arguments: Mapping[str, Any]) -> int:
    """Return how many distances have a key of their own."""
    reach: int = arguments["reach"]
    return reach + 1 if arguments["causal"] else 2 * reach + 1


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the four projections, and the two products of every head in full.

    With relative keys, also their products with every query.
    """
    a, reads, is_read = arguments, sizes["t"], sizes["s"]
    both = a["d_k"] + a["d_v"]
    ours = reads * a["d_model"] * a["heads"] * both
    theirs = is_read * a["d_memory"] * a["kv_heads"] * both
    if a["position"] == "relative_key":
        ours += reads * a["heads"] * a["d_k"] * _relative_keys(a)
    work: int = 2 * sizes["b"] * (ours + theirs + a["heads"] * reads * is_read * both)
    return work


def _division(arguments: Mapping[str, Any]) -> Division | None:
    """Divide by heads, where a head needs no number that is learned for it or for all."""
    if arguments["position"] in DISTANT or arguments["head_gates"]:
        return None
    names = ("heads", "kv_heads")
    return Division(
        parts={name: arguments[name] for name in names},
        counted=names,
        enter=("query", "key", "value"),
        leave=("out",),
    )


def _hops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the windows from one end to the other."""
    window = arguments["window"]
    return max(1, -(-(sizes["t"] - 1) // window)) if window else 1


ATTENTION = BlockType(
    name="attention",
    doc="Multi-head scaled dot-product attention; softmax(q k^T / sqrt(d_k)) v in each head.",
    source="Vaswani et al. 2017, section 3.2; rotary: Su et al. 2021, section 3.4; "
    "window: Beltagy et al. 2020, section 3.1; no scale: Luong et al. 2015, section 3.1; "
    "alibi: Press et al. 2022, section 3; relative bias: Raffel et al. 2020, section 2.1; "
    "relative keys: Shaw et al. 2018, section 3.2; head gates: Michel et al. 2019, section 2.3",
    params=AttentionParams,
    signature=_signature,
    arguments=_arguments,
    weights=_weights,
    flops=_flops,
    hops=_hops,
    division=_division,
    module=".attention.multi_head_module:Attention",
    steps=True,
    example={"heads": 2},
    example_inputs={"x": "f[B T 8]", "memory": "f[B S 6]", "mask": "mask[B S]"},
)

GROUPED_QUERY_ATTENTION = BlockType(
    name="grouped_query_attention",
    doc="Attention whose heads share keys and values in groups; head i reads k and v of head "
    "floor(i * kv_heads / heads).",
    source="Ainslie et al. 2023, section 2.2; kv_heads = 1: Shazeer 2019, section 3",
    params=GroupedQueryAttentionParams,
    signature=_signature,
    arguments=_grouped_arguments,
    weights=_weights,
    flops=_flops,
    hops=_hops,
    division=_division,
    module=".attention.multi_head_module:Attention",
    steps=True,
    example={"heads": 4, "kv_heads": 2},
    example_inputs={"x": "f[B T 8]", "memory": "f[B S 6]", "mask": "mask[B S]"},
)
