"""Variants of attention blocks whose ports or behavior differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from weft.blocks.attention.additive import ADDITIVE_ATTENTION
from weft.blocks.attention.block_sparse import BLOCK_SPARSE_ATTENTION
from weft.blocks.attention.dot_product import DOT_ATTENTION
from weft.blocks.attention.linear import LINEAR_ATTENTION
from weft.blocks.attention.multi_head import ATTENTION, GROUPED_QUERY_ATTENTION
from weft.graphs.ir.block_type import BlockType

SELF = {"x": "f[B T 8]"}
MASKED = {"x": "f[B T 8]", "mask": "mask[B T]"}
CROSSED = {"x": "f[B T 8]", "memory": "f[B S 6]", "mask": "mask[B S]"}
BIASED = {"x": "f[B T 8]", "mask": "mask[B T]", "bias": "bias[B T T]"}
CROSS_BIASED = {**CROSSED, "bias": "bias[B T S]"}
FEW = {"buckets": 4, "max_distance": 3}
LOCAL = {"position": "rotary", "rotary_base": 100.0, "window": 2}


def attention(inputs: Mapping[str, str], **params: Any) -> BlockType:
    """Return a variant of attention with these params and example inputs."""
    return replace(ATTENTION, example={"heads": 2, **params}, example_inputs=inputs)


def grouped(inputs: Mapping[str, str], **params: Any) -> BlockType:
    """Return a variant of grouped-query attention with these params and example inputs."""
    example = {"heads": 4, "kv_heads": 2, **params}
    return replace(GROUPED_QUERY_ATTENTION, example=example, example_inputs=inputs)


def sparse(inputs: Mapping[str, str], **params: Any) -> BlockType:
    """Return a variant of block-sparse attention with these params and example inputs."""
    example = {"heads": 2, "block": 2, **params}
    return replace(BLOCK_SPARSE_ATTENTION, example=example, example_inputs=inputs)


VARIANTS: dict[str, BlockType] = {
    "attention, LoRA": replace(ATTENTION, example={"heads": 2, "lora_rank": 3, "lora_alpha": 1.0}),
    "attention, LoRA of all": replace(
        ATTENTION,
        example={
            "heads": 2,
            "causal": True,
            "lora_rank": 2,
            "lora_alpha": 0.5,
            "lora_maps": "all",
        },
        example_inputs={"x": "f[B T 8]"},
    ),
    "attention, itself": attention(MASKED),
    "attention, free widths": attention(SELF, heads=3, d_k=5, d_v=2, causal=True, bias=False),
    "attention, causal and masked": attention(MASKED, causal=True),
    "attention, no key bias": attention(CROSSED, key_bias=False),
    "attention, rotary": attention(SELF, position="rotary"),
    "attention, rotary and causal": attention(MASKED, position="rotary", causal=True, d_k=6),
    "attention, window": attention(MASKED, window=2),
    "attention, window and causal": attention(SELF, window=2, causal=True),
    "attention, window of one and causal": attention(SELF, window=1, causal=True),
    "attention, no scale": attention(MASKED, causal=True, scale="none"),
    "attention, a memory and no scale": attention(CROSSED, scale="none"),
    "attention, alibi": attention(MASKED, position="alibi"),
    "attention, alibi and causal": attention(MASKED, position="alibi", causal=True, scale="none"),
    "attention, alibi and window": attention(SELF, position="alibi", causal=True, window=2),
    "attention, relative bias": attention(MASKED, position="relative_bias", **FEW),
    "attention, relative bias and causal": attention(
        MASKED, position="relative_bias", causal=True, window=3, **FEW
    ),
    "attention, relative bias of 32": attention(SELF, position="relative_bias", bias=False),
    "attention, relative key": attention(MASKED, position="relative_key", reach=2),
    "attention, relative key and causal": attention(
        MASKED, position="relative_key", reach=1, causal=True, window=3, scale="none"
    ),
    "attention, relative key of 16": attention(SELF, position="relative_key", d_k=3, d_v=5),
    "attention, bias": attention(BIASED),
    "attention, bias and causal": attention(BIASED, causal=True, window=2, position="alibi"),
    "attention, a memory and bias": attention(CROSS_BIASED, scale="none"),
    "attention, head gates": attention(MASKED, head_gates=True, causal=True),
    "attention, all": attention(MASKED, causal=True, **LOCAL),
    "attention, a memory and all": attention(CROSSED, causal=True, **LOCAL),
    "grouped, itself": grouped(MASKED),
    "grouped, causal": grouped(SELF, causal=True),
    "grouped, causal and masked": grouped(MASKED, causal=True, d_k=3, d_v=5, bias=False),
    "grouped, multi-query": grouped(MASKED, kv_heads=1, causal=True),
    "grouped, window": grouped(SELF, window=2),
    "grouped, no scale": grouped(SELF, causal=True, scale="none"),
    "grouped, alibi": grouped(MASKED, position="alibi"),
    "grouped, alibi, window and causal": grouped(MASKED, position="alibi", causal=True, window=2),
    "grouped, relative bias": grouped(SELF, position="relative_bias", **FEW),
    "grouped, relative bias and causal": grouped(
        MASKED, position="relative_bias", kv_heads=1, causal=True, **FEW
    ),
    "grouped, relative key": grouped(SELF, position="relative_key", reach=2),
    "grouped, relative key and causal": grouped(
        MASKED, position="relative_key", reach=2, kv_heads=1, causal=True
    ),
    "grouped, bias": grouped(BIASED, causal=True),
    "grouped, a memory, bias and gates": grouped(CROSS_BIASED, head_gates=True),
    "grouped, all": grouped(MASKED, causal=True, **LOCAL),
    "grouped, a memory and all": grouped(CROSSED, causal=True, **LOCAL),
    "linear, full": replace(LINEAR_ATTENTION, example={"heads": 2, "d_k": 3, "bias": False}),
    "linear, causal in one chunk": replace(
        LINEAR_ATTENTION, example={"heads": 2, "causal": True}, example_inputs=SELF
    ),
    "linear, a memory": replace(
        LINEAR_ATTENTION, example={"heads": 2, "d_k": 3, "d_v": 5}, example_inputs=CROSSED
    ),
    "sparse, a window alone": sparse(SELF, d_k=3, d_v=5, bias=False),
    "sparse, a window of three": sparse(MASKED, window_blocks=2, window=3, global_tokens=2),
    "sparse, global maps": sparse(MASKED, global_tokens=3, global_maps=True, block=3),
    "sparse, random": sparse(MASKED, window_blocks=0, random_blocks=2, seed=3, global_tokens=1),
    "sparse, one block": sparse(MASKED, block=64, random_blocks=3, global_tokens=30),
    "additive, no mask": replace(
        ADDITIVE_ATTENTION, example_inputs={"x": "f[B T 8]", "memory": "f[B S 6]"}
    ),
    "dot, no mask": replace(
        DOT_ATTENTION,
        example={"scale": "sqrt"},
        example_inputs={"query": "f[B T 8]", "key": "f[B S 8]", "value": "f[B S 6]"},
    ),
    "dot, no gain": replace(DOT_ATTENTION, example={}),
}
