"""Multi-head attention and grouped-query attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from ...graphs.ir.block_type import BlockType, Signature, port
from ...graphs.ir.needs import Needs, Unwired
from ...graphs.ir.state_tensor import StateTensor
from ...graphs.ir.weights.division import Division, Prunable
from ..params import (
    LATER,
    Base,
    Count,
    Flag,
    Params,
    Probability,
    Several,
    lora_arguments,
    lora_weights,
)
from .projections import head_widths, linear_weights, nearest, projections

DISTANT = ("alibi", "relative_bias", "relative_key")
"""Values of `position` that add a term to each score depending on the relative position."""


class AttentionParams(Params):
    """Params of `attention`."""

    heads: Count
    """Number of heads."""
    d_k: Count | None = None
    """Query and key width of one head; d_model / heads by default."""
    d_v: Count | None = None
    """Value width of one head; d_k by default."""
    causal: Annotated[Flag, Unwired("memory")] = False
    """Whether positions attend only to themselves and earlier ones; not with `memory`."""
    bias: Flag = True
    """Whether the four projections have biases."""
    dropout: Probability = 0.0
    """Dropout probability of the attention weights."""
    position: Annotated[
        Literal["none", "rotary", "alibi", "relative_bias", "relative_key"],
        LATER,
        Unwired("memory"),
    ] = "none"
    """`rotary`: rotate pairs (2i, 2i+1) of q and k by pos * base^(-2i/d_k); not with `memory`.
    `alibi`: subtract 2^(-8h/heads) * distance from the scores of head h, h = 1 to heads.
    `relative_bias`: add a learned bias per head and distance bucket to the scores.
    `relative_key`: add a learned vector per distance, shared by all heads, to the keys.
    With the last three, the block has no `memory` port."""
    rotary_base: Annotated[Base, LATER, Needs("position", ("rotary",)), Unwired("memory")] = (
        10_000.0
    )
    """Base of the angles of `rotary`; a larger base means slower rotation."""
    window: Annotated[Count | None, LATER, Unwired("memory")] = None
    """Largest distance in positions that is attended to; not with `memory`."""
    buckets: Annotated[Count, LATER, Needs("position", ("relative_bias",))] = 32
    """Number of distance buckets of `relative_bias`; unless `causal`, half are for later keys."""
    max_distance: Annotated[Count, LATER, Needs("position", ("relative_bias",))] = 128
    """Distance from which on all distances share the last bucket of `relative_bias`."""
    reach: Annotated[Count, LATER, Needs("position", ("relative_key",))] = 16
    """Distance at which `relative_key` clips distances, on either side."""
    scale: Annotated[Literal["sqrt", "none"], LATER] = "sqrt"
    """`sqrt`: scores are divided by sqrt(d_k); `none`: unscaled dot products."""
    head_gates: Annotated[Flag, LATER] = False
    """Whether the output of each head is multiplied by a learned scalar, initially 1; the gradient
    of the scalar measures the importance of the head."""
    key_bias: Annotated[Flag, LATER, Needs("bias", (True,))] = True
    """Whether the key projection has a bias, if `bias` is set; it shifts all scores of a query
    equally, so the softmax cancels it, except with `rotary`."""
    lora_rank: Annotated[Several, LATER] = 0
    """Rank of the low-rank matrices that are added to projections; 0 for none (LoRA)."""
    lora_alpha: Annotated[Base, LATER, Needs("lora_rank", least=1)] = 16.0
    """Scale of LoRA: their product is multiplied by lora_alpha / lora_rank."""
    lora_maps: Annotated[Literal["query_value", "all"], LATER, Needs("lora_rank", least=1)] = (
        "query_value"
    )
    """Projections with LoRA: those of queries and values, or all four."""


class GroupedQueryAttentionParams(AttentionParams):
    """Params of `grouped_query_attention`."""

    kv_heads: Count
    """Number of key and value heads, a divisor of `heads`; 1 is multi-query attention, `heads` is
    attention@1."""


def _signature(params: AttentionParams, wired: frozenset[str]) -> Signature:
    """Return the signature; without a wired `memory`, it is self-attention and s is t.

    Attention with relative positions has no `memory` port.
    """
    memory = port("memory", "f[b s d_memory]?", "the sequence that is attended to; default: x")
    read = () if params.position in DISTANT else (memory,)
    crossed = "memory" in wired and bool(read)
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "queries"),
            *read,
            port("mask", "mask[b s]?", "true at positions that may be attended to"),
            port("bias", "bias[b t s]?", "added to the scores; -inf masks a pair"),
        ),
        outputs=(port("y", "f[b t d_model]", "attention output at each position"),),
        same={} if crossed else {"s": "t", "d_memory": "d_model"},
        behavior={"s": "full"} if crossed else {"t": "causal" if params.causal else "full"},
        ordered=params.causal
        or params.position != "none"
        or params.window is not None
        or "bias" in wired,
    )


def _arguments(params: AttentionParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    d_model, heads = sizes["d_model"], params.heads
    d_k, d_v = head_widths(d_model, heads, params.d_k, params.d_v)
    if params.position == "rotary" and d_k % 2:
        msg = f"d_k is {d_k}, which is odd, but rotary positions need an even d_k"
        raise ValueError(msg, f"set d_k to an even number, such as {d_k + 1}, or change 'heads'")
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
        **lora_arguments(params, "lora_maps"),
    }


def _check_buckets(params: AttentionParams) -> None:
    """Raise if `buckets` cannot be partitioned, or if `max_distance` is too small for them."""
    parts = 2 if params.causal else 4
    if params.buckets % (parts // 2) or params.buckets < parts:
        rule = "at least 2" if params.causal else "an even number of at least 4"
        msg = f"buckets is {params.buckets}, but it must be {rule}"
        raise ValueError(msg, f"use {max(parts, params.buckets + params.buckets % 2)} buckets")
    exact = params.buckets // parts
    if params.max_distance <= exact:
        msg = f"max_distance is {params.max_distance}, but it must be above {exact}"
        raise ValueError(msg, f"use a max_distance above {exact}, or fewer buckets")


def _grouped_arguments(
    params: GroupedQueryAttentionParams, sizes: Mapping[str, Any]
) -> dict[str, Any]:
    heads, kv_heads = params.heads, params.kv_heads
    if heads % kv_heads:
        msg = f"{heads} heads are not divisible by {kv_heads} key and value heads"
        fits = (h for h in range(1, heads + 1) if heads % h == 0)
        raise ValueError(msg, f"use {nearest(kv_heads, fits)} kv_heads")
    return {**_arguments(params, sizes), "kv_heads": kv_heads}


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    a = arguments
    without = "" if a["key_bias"] else "key"
    weights = linear_weights(projections(a), bias=a["bias"], without=without)
    weights |= lora_weights(a, {f"{name}.": projections(a)[name] for name in _lora_maps(a)})
    if a["head_gates"]:
        weights["head_gate"] = (a["heads"],)
    if a["position"] == "relative_bias":
        weights["relative_bias.weight"] = (a["buckets"], a["heads"])
    if a["position"] == "relative_key":
        weights["relative_key.weight"] = (_relative_keys(a), a["d_k"])
    return weights


def _lora_maps(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the projections with LoRA."""
    maps = {"query_value": ("query", "value"), "all": ("query", "key", "value", "out")}
    return maps.get(arguments.get("lora_maps", ""), ())


def _relative_keys(arguments: Mapping[str, Any]) -> int:
    """Return the number of distances that have a learned key."""
    reach: int = arguments["reach"]
    return reach + 1 if arguments["causal"] else 2 * reach + 1


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the four projections and both products of every head, without regard to masks.

    With relative keys, also count their products with every query.
    """
    a, t, s = arguments, sizes["t"], sizes["s"]
    both = a["d_k"] + a["d_v"]
    of_queries = t * a["d_model"] * a["heads"] * both
    of_memory = s * a["d_memory"] * a["kv_heads"] * both
    if a["position"] == "relative_key":
        of_queries += t * a["heads"] * a["d_k"] * _relative_keys(a)
    lora = sum(
        (s if name in ("key", "value") else t) * a["lora_rank"] * sum(projections(a)[name])
        for name in _lora_maps(a)
    )
    work: int = 2 * sizes["b"] * (of_queries + of_memory + lora + a["heads"] * t * s * both)
    return work


def _state(
    arguments: Mapping[str, Any], sizes: Mapping[str, int], wired: frozenset[str]
) -> dict[str, StateTensor]:
    """Return keys and values of all positions, or those of the memory, and their mask."""
    a, crossed = arguments, "memory" in wired
    rows, length = sizes["b"], sizes["s"]
    kept = {
        "key": StateTensor((rows, a["kv_heads"], length, a["d_k"])),
        "value": StateTensor((rows, a["kv_heads"], length, a["d_v"])),
    }
    if "mask" in wired:
        kept["mask"] = StateTensor((rows, length) if crossed else (rows, length, 1), "bool")
    return kept


def _division(arguments: Mapping[str, Any]) -> Division | None:
    """Divide along the heads; None for learned gates, relative positions or LoRA."""
    if "lora_rank" in arguments:
        return None
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
    """Count the layers until both ends are connected: one per window."""
    window = arguments["window"]
    return max(1, -(-(sizes["t"] - 1) // window)) if window else 1


_PRUNABLE = Prunable(
    rows={"query": "heads", "key": "kv_heads", "value": "kv_heads"},
    columns=("out.weight",),
    last_axis=("head_gate", "relative_bias.weight"),
)

ATTENTION = BlockType(
    name="attention",
    title="multi-head attention",
    family="attention",
    mixes="attention",
    role="attention",
    doc="Multi-head scaled dot-product attention; softmax(q k^T / sqrt(d_k)) v for each head.",
    source="Vaswani et al. 2017, section 3.2; rotary: Su et al. 2021, section 3.4; "
    "window: Beltagy et al. 2020, section 3.1; no scale: Luong et al. 2015, section 3.1; "
    "alibi: Press et al. 2022, section 3; relative bias: Raffel et al. 2020, section 2.1; "
    "relative keys: Shaw et al. 2018, section 3.2; head gates: Michel et al. 2019, section 2.3; "
    "LoRA: Hu et al. 2022, section 4",
    params=AttentionParams,
    signature=_signature,
    arguments=_arguments,
    weights=_weights,
    flops=_flops,
    hops=_hops,
    division=_division,
    prunable=_PRUNABLE,
    module=".attention.multi_head_module:Attention",
    steps=True,
    state=_state,
    example={"heads": 2},
    example_inputs={"x": "f[B T 8]", "memory": "f[B S 6]", "mask": "mask[B S]"},
)

GROUPED_QUERY_ATTENTION = BlockType(
    name="grouped_query_attention",
    title="grouped-query attention",
    family="attention",
    mixes="attention",
    role="attention",
    doc="Multi-head attention in which groups of heads share keys and values; head i uses key and "
    "value head floor(i * kv_heads / heads).",
    source="Ainslie et al. 2023, section 2.2; kv_heads = 1: Shazeer 2019, section 3",
    params=GroupedQueryAttentionParams,
    signature=_signature,
    arguments=_grouped_arguments,
    weights=_weights,
    flops=_flops,
    hops=_hops,
    division=_division,
    prunable=_PRUNABLE,
    module=".attention.multi_head_module:Attention",
    steps=True,
    state=_state,
    example={"heads": 4, "kv_heads": 2},
    example_inputs={"x": "f[B T 8]", "memory": "f[B S 6]", "mask": "mask[B S]"},
)
