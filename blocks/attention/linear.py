"""Linear attention: cost grows linearly with the length of the sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from ...graphs.ir.block_type import BlockType, Needs, Signature, Unwired, port
from ...graphs.ir.state_tensor import StateTensor
from ..params import Count, Epsilon, Flag, Params
from .multi_head import head_widths, linear_weights, projections


class LinearAttentionParams(Params):
    """Params of `linear_attention`."""

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
    chunk: Annotated[Count, Needs("causal", (True,)), Unwired("memory")] = 64
    """Chunk size in positions if causal: pairs within a chunk are compared directly, earlier
    chunks enter as one sum.  It affects time and memory, not the result."""
    eps: Epsilon = 1e-6
    """Added to the sum of the weights, by which the output is divided."""


def _signature(params: LinearAttentionParams, wired: frozenset[str]) -> Signature:
    """Return the signature; without a wired `memory`, it is self-attention and s is t."""
    crossed = "memory" in wired
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "queries"),
            port("memory", "f[b s d_memory]?", "the sequence that is attended to; default: x"),
            port("mask", "mask[b s]?", "true at positions that may be attended to"),
        ),
        outputs=(port("y", "f[b t d_model]", "attention output at each position"),),
        same={} if crossed else {"s": "t", "d_memory": "d_model"},
        behavior={"s": "full"} if crossed else {"t": "causal" if params.causal else "full"},
        ordered=params.causal,
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
    """Count the four projections, the sums of k v^T, and their products with the queries.

    If causal, also count the scores within each chunk; the last chunk is padded.
    """
    a, t, s = arguments, sizes["t"], sizes["s"]
    heads, d_k, d_v = a["heads"], a["d_k"], a["d_v"]
    of_queries = t * a["d_model"] * heads * (d_k + d_v)
    of_memory = s * a["d_memory"] * heads * (d_k + d_v)
    # d_v + 1: the values have an extra column of ones, which yields the sums of the weights.
    if a["causal"]:
        chunk: int = a["chunk"]
        padded = -(-t // chunk) * chunk
        inner = padded * heads * (2 * d_k * (d_v + 1) + chunk * (d_k + d_v + 1))
    else:
        inner = (t + s) * heads * d_k * (d_v + 1)
    work: int = 2 * sizes["b"] * (of_queries + of_memory + inner)
    return work


def _state(
    arguments: Mapping[str, Any], sizes: Mapping[str, int], wired: frozenset[str]
) -> dict[str, StateTensor]:
    """Return the sums of k v^T, and of k, in each head; over a memory, they do not change."""
    a = arguments
    shape = (sizes["b"], a["heads"], a["d_k"], a["d_v"] + 1)
    return {"sum": StateTensor(shape, "float" if "memory" in wired else "float32")}


LINEAR_ATTENTION = BlockType(
    name="linear_attention",
    family="attention",
    stands_in="attention@1 --set heads={heads}",
    doc="Linear attention, whose weights are products of feature maps; "
    "phi(q) (sum phi(k) v^T) / (phi(q) sum phi(k)), phi(z) = elu(z) + 1.",
    source="Katharopoulos et al. 2020, section 3",
    params=LinearAttentionParams,
    signature=_signature,
    arguments=_arguments,
    weights=_weights,
    flops=_flops,
    module=".attention.linear_module:LinearAttention",
    steps=True,
    state=_state,
    example={"heads": 2, "causal": True, "chunk": 2},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
)
