"""Linear attention: what is read is a sum that is made once, or carried along, for all readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Count, Epsilon, Flag, Params
from .projections import head_widths, linear_weights, projections


class LinearAttentionParams(Params):
    """Params of `linear_attention`."""

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
    chunk: Count = 64
    """Positions that are read one by one inside a chunk when causal; what stands before it is one
    sum.  It changes the work and the memory, not the result."""
    eps: Epsilon = 1e-6
    """Added to the sum of weights by which what is read is divided."""


def _signature(params: LinearAttentionParams, wired: frozenset[str]) -> Signature:
    """Self-attention when `memory` is not wired, then s is t."""
    crossed = "memory" in wired
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "what reads"),
            port("memory", "f[b s d_memory]?", "what is read; x itself when not wired"),
            port("mask", "mask[b s]?", "which positions may be read"),
        ),
        outputs=(port("y", "f[b t d_model]", "what each position read"),),
        same={} if crossed else {"s": "t", "d_memory": "d_model"},
        behavior={"s": "full"} if crossed else {"t": "causal" if params.causal else "full"},
    )


def _arguments(params: LinearAttentionParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    d_model, heads = sizes["d_model"], params.heads
    d_k, d_v = head_widths(d_model, heads, params.d_k, params.d_v)
    return {
        "d_model": d_model,
        "d_memory": sizes.get("d_memory", d_model),
        "heads": heads,
        "d_k": d_k,
        "d_v": d_v,
        "causal": params.causal,
        "bias": params.bias,
        "chunk": params.chunk,
        "eps": params.eps,
    }


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return linear_weights(projections(arguments), bias=arguments["bias"])


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the four projections, sums of k v^T, and what is read of them.

    Causal ones also compare the positions inside each chunk, the last one filled up.
    """
    a, reads, is_read = arguments, sizes["t"], sizes["s"]
    heads, d_k, d_v = a["heads"], a["d_k"], a["d_v"]
    ours = reads * a["d_model"] * heads * (d_k + d_v)
    theirs = is_read * a["d_memory"] * heads * (d_k + d_v)
    # The weights' sums are a column of ones beside the values.
    if a["causal"]:
        chunk: int = a["chunk"]
        filled = -(-reads // chunk) * chunk
        inner = filled * heads * (2 * d_k * (d_v + 1) + chunk * (d_k + d_v + 1))
    else:
        inner = (reads + is_read) * heads * d_k * (d_v + 1)
    work: int = 2 * sizes["b"] * (ours + theirs + inner)
    return work


LINEAR_ATTENTION = BlockType(
    name="linear_attention",
    doc="Attention whose weights are products, so that sums over positions come first; "
    "phi(q) (sum phi(k) v^T) / (phi(q) sum phi(k)), phi(z) = elu(z) + 1.",
    source="Katharopoulos et al. 2020, section 3",
    params=LinearAttentionParams,
    signature=_signature,
    arguments=_arguments,
    weights=_weights,
    flops=_flops,
    module=".attention.linear_module:LinearAttention",
    steps=True,
    example={"heads": 2, "causal": True, "chunk": 2},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
)
