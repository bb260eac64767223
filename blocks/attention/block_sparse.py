"""Block-sparse attention: each block attends to a window, global tokens and random blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from ...graphs.ir.block_type import BlockType, Needs, Signature, port
from ..params import Count, Flag, Params, Probability, Several
from .multi_head import head_widths, linear_weights, projections


class BlockSparseAttentionParams(Params):
    """Params of `block_sparse_attention`."""

    heads: Count
    """Number of heads."""
    d_k: Count | None = None
    """Query and key width of one head; d_model / heads by default."""
    d_v: Count | None = None
    """Value width of one head; d_k by default."""
    bias: Flag = True
    """Whether the projections have biases."""
    dropout: Probability = 0.0
    """Dropout probability of the attention weights."""
    block: Count = 64
    """Block size in positions; sequences are padded internally to a multiple of it."""
    window_blocks: Several = 1
    """Number of neighboring blocks that a block attends to on either side."""
    window: Count | None = None
    """Largest distance in positions that is attended to within these blocks; default: no limit."""
    global_tokens: Several = 0
    """Number of first positions that attend to all positions and that all positions attend to."""
    global_maps: Flag = False
    """Whether the global tokens have query, key and value projections of their own."""
    random_blocks: Several = 0
    """Number of random blocks outside the window that each head of each block attends to."""
    seed: Annotated[Several, Needs("random_blocks", least=1)] = 0
    """Seed of the random blocks; they also depend on the head and the number of blocks."""


def _signature(_: BlockSparseAttentionParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "queries, and the sequence that is attended to"),
            port("mask", "mask[b t]?", "true at positions that may be attended to"),
        ),
        outputs=(port("y", "f[b t d_model]", "attention output at each position"),),
        behavior={"t": "full"},
    )


def _arguments(params: BlockSparseAttentionParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    d_model, heads = sizes["d_model"], params.heads
    d_k, d_v = head_widths(d_model, heads, params.d_k, params.d_v)
    far = params.window_blocks * params.block
    if params.window is not None and params.window > far:
        blocks = params.window_blocks
        msg = f"window is {params.window}, but window_blocks {blocks} covers only {far} positions"
        needed = -(-params.window // params.block)
        raise ValueError(msg, f"use {needed} window_blocks, or a window of at most {far}")
    if params.global_maps and not params.global_tokens:
        msg = "global_maps is set, but global_tokens is 0"
        raise ValueError(msg, "set global_tokens to at least 1")
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
    """Count the projections, the products of each block with its keys, and the global rows."""
    a, length = arguments, sizes["t"]
    d_kv, heads, block = a["d_k"] + a["d_v"], a["heads"], a["block"]
    padded = -(-length // block) * block
    keys = (2 * a["window_blocks"] + 1 + a["random_blocks"]) * block + a["global_tokens"]
    work = 2 * length * a["d_model"] * heads * d_kv + padded * heads * keys * d_kv
    work += a["global_tokens"] * heads * length * d_kv
    if a["global_maps"]:
        work += a["global_tokens"] * a["d_model"] * heads * a["d_k"]
        work += length * a["d_model"] * heads * d_kv
    total: int = 2 * sizes["b"] * work
    return total


def _hops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the layers until both ends are connected; a global token needs two at most.

    Random blocks do not count, unless every block is drawn.
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
    # Without a window, blocks reach one another only through the global tokens.
    return min(hops, 2) if around else 2


BLOCK_SPARSE_ATTENTION = BlockType(
    name="block_sparse_attention",
    family="attention",
    mixes="block sparse attention",
    stands_in="attention@1",
    doc="Sparse attention in blocks of positions; the softmax covers neighboring blocks, global "
    "tokens and random blocks.",
    source="Zaheer et al. 2020, section 2 and appendix D; window and global positions: Beltagy "
    "et al. 2020, section 3.1",
    params=BlockSparseAttentionParams,
    signature=_signature,
    arguments=_arguments,
    weights=_weights,
    flops=_flops,
    hops=_hops,
    module=".attention.block_sparse_module:BlockSparseAttention",
    dropout=("dropout",),
    example={"heads": 2, "block": 4, "global_tokens": 1, "random_blocks": 1},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
)
