"""Attention: every position of one sequence reads from another sequence, or its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..graphs.signature import BlockType, Signature, port
from .fields import Count, Flag, Params, Probability


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


def _signature(params: AttentionParams, wired: frozenset[str]) -> Signature:
    """Self-attention when `memory` is not wired: then s is t."""
    crossed = "memory" in wired
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "what reads"),
            port("memory", "f[b s d_memory]?", "what is read; x itself when not wired"),
            port("keep", "keep[b s]?", "which positions may be read"),
        ),
        outputs=(port("y", "f[b t d_model]", "what each position read"),),
        same={} if crossed else {"s": "t", "d_memory": "d_model"},
        behavior={"s": "full"} if crossed else {"t": "causal" if params.causal else "full"},
    )


def _arguments(params: AttentionParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    d_model, heads = sizes["d_model"], params.heads
    if params.d_k is None and d_model % heads:
        msg = f"width {d_model} does not divide among {heads} heads"
        fits = [h for h in range(1, min(d_model, 64) + 1) if d_model % h == 0]
        near = min(fits, key=lambda h: abs(h - heads))
        raise ValueError(msg, f"use {near} heads, or give d_k")
    d_k = params.d_k or d_model // heads
    return {
        "d_model": d_model,
        "d_memory": sizes["d_memory"],
        "heads": heads,
        "d_k": d_k,
        "d_v": params.d_v or d_k,
        "causal": params.causal,
        "bias": params.bias,
        "dropout": params.dropout,
    }


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    a = arguments
    shapes = {
        "query": (a["heads"] * a["d_k"], a["d_model"]),
        "key": (a["heads"] * a["d_k"], a["d_memory"]),
        "value": (a["heads"] * a["d_v"], a["d_memory"]),
        "out": (a["d_model"], a["heads"] * a["d_v"]),
    }
    weights: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        weights[f"{name}.weight"] = shape
        if a["bias"]:
            weights[f"{name}.bias"] = shape[:1]
    return weights


ATTENTION = BlockType(
    name="attention",
    doc="Multi-head scaled dot-product attention; softmax(q k^T / sqrt(d_k)) v in each head.",
    source="Vaswani et al. 2017, section 3.2",
    params=AttentionParams,
    signature=_signature,
    arguments=_arguments,
    weights=_weights,
    module="attention:Attention",
    steps=True,
    example={"heads": 2},
    example_inputs={"x": "f[B T 8]", "memory": "f[B S 6]", "keep": "keep[B S]"},
)
