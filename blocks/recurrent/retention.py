"""Multi-scale retention (RetNet)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from ...graphs.ir.block_type import BlockType, Needs, Signature, port
from ...graphs.ir.state_tensor import StateTensor
from ..params import Base, Count, Epsilon, Params


class RetentionParams(Params):
    """Params of `retention`."""

    heads: Count
    """Number of heads; head h decays by 1 - 2^(-4-h) per position, h = 1 to heads."""
    d_k: Count | None = None
    """Query and key width of one head; d_model / heads by default."""
    d_v: Count | None = None
    """Value width of one head; 2 * d_k by default."""
    position: Literal["rotary", "none"] = "rotary"
    """`rotary`: rotate pairs (2i, 2i+1) of q and k by pos * base^(-2i/d_k), the phase of the
    paper; `none`: only the decay depends on the distance."""
    rotary_base: Annotated[Base, Needs("position", ("rotary",))] = 10_000.0
    """Base of the angles of `rotary`."""
    chunk: Count = 64
    """Chunk size in positions for the parallel computation; it does not affect the result."""
    eps: Epsilon = 1e-6
    """Added to the variance in the norm of each head."""


def _signature(_: RetentionParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "input vectors"),
            port("mask", "mask[b t]?", "true at positions that update the state"),
        ),
        outputs=(port("y", "f[b t d_model]", "output at each position"),),
        behavior={"t": "causal"},
    )


def _arguments(params: RetentionParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    d_model, heads = sizes["d_model"], params.heads
    if params.d_k is None and d_model % heads:
        msg = f"width {d_model} is not divisible by {heads} heads"
        fits = [h for h in range(1, min(d_model, 64) + 1) if d_model % h == 0]
        raise ValueError(msg, f"use {min(fits, key=lambda h: abs(h - heads))} heads, or set d_k")
    d_k = params.d_k or d_model // heads
    if params.position == "rotary" and d_k % 2:
        msg = f"d_k is {d_k}, which is odd, but rotary positions need an even d_k"
        raise ValueError(msg, f"set d_k to an even number, such as {d_k + 1}, or change 'heads'")
    widths = {"d_k": d_k, "d_v": params.d_v or 2 * d_k}
    return {"d_model": d_model, **params.model_dump(), **widths}


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    a = arguments
    keys, values = a["heads"] * a["d_k"], a["heads"] * a["d_v"]
    return {
        "query.weight": (keys, a["d_model"]),
        "key.weight": (keys, a["d_model"]),
        "value.weight": (values, a["d_model"]),
        "gate.weight": (values, a["d_model"]),
        "outer.weight": (a["d_model"], values),
    }


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the five maps and the products of all chunks, padding included.

    Per chunk and head: the scores of all pairs of positions, their products with the values, the
    state update and the state read-out.  Then the products between all pairs of chunks.
    """
    a, length = arguments, sizes["t"]
    d_k, d_v, heads = a["d_k"], a["d_v"], a["heads"]
    maps = length * a["d_model"] * heads * (2 * d_k + 3 * d_v)
    chunks, long = -(-length // a["chunk"]), a["chunk"]
    within = long**2 * (d_k + d_v) + 2 * long * d_k * d_v
    work: int = 2 * sizes["b"] * (maps + heads * (chunks * within + chunks**2 * d_k * d_v))
    return work


def _state(
    arguments: Mapping[str, Any], sizes: Mapping[str, int], _: frozenset[str]
) -> dict[str, StateTensor]:
    """Return the decayed sum of k v^T of each head."""
    a = arguments
    return {"state": StateTensor((sizes["b"], a["heads"], a["d_k"], a["d_v"]), "float32")}


RETENTION = BlockType(
    name="retention",
    mixes="retention",
    doc="Multi-scale retention: each head keeps a sum of k v^T that decays at a fixed rate, then a "
    "norm per head, a gate and a linear map; S_n = gamma S_{n-1} + k_n v_n^T, o_n = q_n S_n.",
    source="Sun et al. 2023, sections 2.1 and 2.2; without its third scaling of the scores, which "
    "the norm cancels",
    params=RetentionParams,
    signature=_signature,
    arguments=_arguments,
    weights=_weights,
    flops=_flops,
    module=".recurrent.retention_module:Retention",
    steps=True,
    state=_state,
    example={"heads": 4, "chunk": 4},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
)
