"""Block-sparse attention: blocks of positions read near, global and random ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Count, Flag, Params, Probability, Several
from .projections import head_widths, linear_weights, projections


class BlockSparseAttentionParams(Params):
    """Params of `block_sparse_attention`."""

    heads: Count
    """Number of heads."""
    d_k: Count | None = None
    """Width of one head's queries and keys; d_model / heads when left out."""
    d_v: Count | None = None
    """Width of one head's values; d_k when left out."""
    bias: Flag = True
    """Whether the projections have biases."""
    dropout: Probability = 0.0
    """Probability of dropping an attention weight while training."""
    block: Count = 64
    """Positions of a block; any length is filled up to whole blocks inside."""
    window_blocks: Several = 1
    """Blocks that are read to either side of the reader's own."""
    window: Count | None = None
    """Farthest position of these that is read, counted from the reader; all when left out."""
    global_tokens: Several = 0
    """How many first positions read all and are read by all."""
    global_maps: Flag = False
    """Whether the global positions read through queries, keys and values of their own."""
    random_blocks: Several = 0
    """Blocks beyond the window that each head of each block reads, drawn by `seed`."""
    seed: Several = 0
    """Decides, together with the head and the number of blocks, which are drawn."""


def _signature(_: BlockSparseAttentionParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "what reads, and is read"),
            port("mask", "mask[b t]?", "which positions may be read"),
        ),
        outputs=(port("y", "f[b t d_model]", "what each position read"),),
        behavior={"t": "full"},
    )


def _arguments(params: BlockSparseAttentionParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    d_model, heads = sizes["d_model"], params.heads
    d_k, d_v = head_widths(d_model, heads, params.d_k, params.d_v)
    far = params.window_blocks * params.block
    if params.window is not None and params.window > far:
        msg = f"window is {params.window}, but {params.window_blocks} blocks reach {far} for sure"
        needed = -(-params.window // params.block)
        raise ValueError(msg, f"use {needed} window_blocks, or a window of at most {far}")
    if params.global_maps and not params.global_tokens:
        msg = "global_maps are of global positions, and there are none"
        raise ValueError(msg, "give global_tokens, such as 1")
    return {
        **params.model_dump(),
        "d_model": d_model,
        "d_k": d_k,
        "d_v": d_v,
    }


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    shapes = projections(arguments)
    if arguments["global_maps"]:
        shapes |= {f"global_maps.{name}": shapes[name] for name in ("query", "key", "value")}
    return linear_weights(shapes, bias=arguments["bias"])


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count projections, the products of each block with what it reads, and the global rows."""
    a, length = arguments, sizes["t"]
    both, heads, block = a["d_k"] + a["d_v"], a["heads"], a["block"]
    filled = -(-length // block) * block
    is_read = (2 * a["window_blocks"] + 1 + a["random_blocks"]) * block + a["global_tokens"]
    work = 2 * length * a["d_model"] * heads * both + filled * heads * is_read * both
    work += a["global_tokens"] * heads * length * both
    if a["global_maps"]:
        work += a["global_tokens"] * a["d_model"] * heads * a["d_k"]
        work += length * a["d_model"] * heads * both
    total: int = 2 * sizes["b"] * work
    return total


def _hops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the windows from one end to the other, or two hops by way of a global position.

    Random blocks are not relied on, unless all are drawn.
    """
    a, length = arguments, sizes["t"]
    others, around = -(-length // a["block"]) - 1, a["window_blocks"]
    near = a["window"] or length
    if a["global_tokens"] >= length:
        return 1
    if near >= length - 1 and a["random_blocks"] >= others - around:
        return 1
    if near < length - 1:
        hops = -(-(length - 1) // int(near))
    else:
        hops = -(-others // int(around)) if around else 1
    if not a["global_tokens"]:
        return hops
    # Without a window, the others are out of reach but for the global positions.
    return min(hops, 2) if around else 2


BLOCK_SPARSE_ATTENTION = BlockType(
    name="block_sparse_attention",
    doc="Attention of blocks of positions to near, global and random ones; softmax over those.",
    source="Zaheer et al. 2020, section 2 and appendix D; window and global positions: Beltagy "
    "et al. 2020, section 3.1",
    params=BlockSparseAttentionParams,
    signature=_signature,
    arguments=_arguments,
    weights=_weights,
    flops=_flops,
    hops=_hops,
    module=".attention.block_sparse_module:BlockSparseAttention",
    example={"heads": 2, "block": 4, "global_tokens": 1, "random_blocks": 1},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
)
