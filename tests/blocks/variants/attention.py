"""Variants of attention blocks whose ports or behavior differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from weft.blocks.attention.additive import ADDITIVE_ATTENTION
from weft.blocks.attention.block_sparse import BLOCK_SPARSE_ATTENTION
from weft.blocks.attention.dot_product import DOT_ATTENTION
from weft.blocks.attention.linear import LINEAR_ATTENTION
from weft.blocks.attention.multi_head import ATTENTION
from weft.graphs.ir.block_type import BlockType

SELF = {"x": "f[B T 8]"}
MASKED = {"x": "f[B T 8]", "mask": "mask[B T]"}
CROSSED = {"x": "f[B T 8]", "memory": "f[B S 6]", "mask": "mask[B S]"}
BIASED = {"x": "f[B T 8]", "mask": "mask[B T]", "bias": "bias[B T T]"}
CROSS_BIASED = {**CROSSED, "bias": "bias[B T S]"}


def attention(inputs: Mapping[str, str], *parts: Mapping[str, Any], **params: Any) -> BlockType:
    """Return a variant of attention with these params, parts in slots and example inputs."""
    fill = {slot: use for part in parts for slot, use in part.items()}
    return replace(
        ATTENTION, example={"heads": 2, **params}, example_inputs=inputs, example_fill=fill
    )


def grouped(inputs: Mapping[str, str], *parts: Mapping[str, Any], **params: Any) -> BlockType:
    """Return a variant in which groups of heads share keys and values."""
    return attention(inputs, *parts, **{"heads": 4, "kv_heads": 2, **params})


def position(use: str, **params: Any) -> dict[str, Any]:
    """Return a part for the slot `position`."""
    return {"position": {"use": f"{use}@1", "params": params}}


def mask(use: str, **params: Any) -> dict[str, Any]:
    """Return a part for the slot `mask`."""
    return {"mask": {"use": f"{use}@1", "params": params}}


def sparse(inputs: Mapping[str, str], **params: Any) -> BlockType:
    """Return a variant of block-sparse attention with these params and example inputs."""
    example = {"heads": 2, "block": 2, **params}
    return replace(BLOCK_SPARSE_ATTENTION, example=example, example_inputs=inputs)


ROTARY = position("rotary", base=100.0)
FEW = {"buckets": 4, "max_distance": 3}
GATES = {"output": {"use": "head_gates@1"}}
TALKING = {"score": {"use": "talking_heads@1"}, "after_softmax": {"use": "talking_heads@1"}}
CAP = {"score": {"use": "elementwise@1", "params": {"y": "2 * tanh(x / 2)"}}}
NORMS = {slot: {"use": "rms_norm@1"} for slot in ("after_query", "after_key", "output")}
EITHER = {
    "first": {"use": "window@1", "params": {"distance": 2}},
    "second": {"use": "chunked@1", "params": {"size": 1}},
}
BOTH = {
    "mask": {
        "use": "all@1",
        "fill": {
            "first": {"use": "window@1", "params": {"distance": 3}},
            "second": {"use": "any@1", "fill": EITHER},
        },
    }
}

VARIANTS: dict[str, BlockType] = {
    "attention, LoRA": replace(
        ATTENTION, example={"heads": 2, "lora": {"rank": 3, "maps": ["query", "value"]}}
    ),
    "attention, LoRA of all": attention(SELF, causal=True, lora={"rank": 2, "alpha": 0.5}),
    "attention, itself": attention(MASKED),
    "attention, free widths": attention(SELF, heads=3, d_k=5, d_v=2, causal=True, bias=False),
    "attention, causal and masked": attention(MASKED, causal=True),
    "attention, no key bias": attention(CROSSED, key_bias=False),
    "attention, a bias of two": attention(SELF, bias=False, query_bias=True, out_bias=True),
    "attention, rotary": attention(SELF, position("rotary")),
    "attention, rotary and causal": attention(MASKED, position("rotary"), causal=True, d_k=6),
    "attention, half rotary": attention(
        SELF, position("rotary", fraction=0.5, pairs="halves"), causal=True
    ),
    "attention, linear rotary": attention(
        SELF, position("rotary", scaling="linear", factor=4.0), causal=True
    ),
    "attention, dynamic rotary": attention(
        SELF, position("rotary", scaling="dynamic", factor=4.0, original_length=3), causal=True
    ),
    "attention, yarn": attention(
        SELF, position("rotary", scaling="yarn", factor=4.0, original_length=64), causal=True
    ),
    "attention, llama 3": attention(
        SELF,
        position("rotary", scaling="llama3", factor=8.0, original_length=16, fast_turns=4.0),
        causal=True,
    ),
    "attention, transformer xl": attention(MASKED, position("transformer_xl_position")),
    "attention, transformer xl and causal": attention(
        SELF, position("transformer_xl_position", d_position=6), causal=True
    ),
    "attention, disentangled": attention(
        MASKED, position("disentangled_position", buckets=4, max_distance=9, norm="layer_norm")
    ),
    "attention, disentangled and causal": attention(
        SELF, position("disentangled_position", buckets=2, d_position=6), causal=True
    ),
    "attention, window": attention(MASKED, mask("window", distance=2)),
    "attention, window and causal": attention(SELF, mask("window", distance=2), causal=True),
    "attention, window of one and causal": attention(SELF, mask("window", distance=1), causal=True),
    "attention, chunks": attention(MASKED, mask("chunked", size=4)),
    "attention, chunks and causal": attention(MASKED, mask("chunked", size=2), causal=True),
    "attention, blocks": attention(MASKED, mask("block_sparse", block=2)),
    "attention, blocks and causal": attention(
        MASKED, mask("block_sparse", block=2, window_blocks=0, global_tokens=1), causal=True
    ),
    "attention, prefix": attention({**MASKED, "prefix": "mask[B T]"}, mask("prefix")),
    "attention, documents": attention(
        {**MASKED, "document": "ids:2[B T]"}, mask("document"), causal=True
    ),
    "attention, all masks": attention(MASKED, BOTH, causal=True),
    "attention, no scale": attention(MASKED, causal=True, scale="none"),
    "attention, a scale": attention(MASKED, causal=True, scale=0.3),
    "attention, a memory and no scale": attention(CROSSED, scale="none"),
    "attention, another width": attention(MASKED, d_out=5),
    "attention, sinks": attention(MASKED, causal=True, sinks=True),
    "attention, sinks and groups": grouped(SELF, sinks=True),
    "attention, sinks and a memory": attention(CROSSED, sinks=True),
    "attention, softmax1": attention(MASKED, causal=True, softmax="softmax1"),
    "attention, squared relu": attention(CROSS_BIASED, softmax="squared_relu"),
    "attention, sigmoid": grouped(MASKED, causal=True, softmax="sigmoid"),
    "attention, no softmax": attention(MASKED, CAP, causal=True, softmax="none"),
    "attention, alibi": attention(MASKED, position("alibi")),
    "attention, alibi and causal": attention(MASKED, position("alibi"), causal=True, scale="none"),
    "attention, alibi and window": attention(
        SELF, position("alibi"), mask("window", distance=2), causal=True
    ),
    "attention, relative bias": attention(MASKED, position("relative_bias", **FEW)),
    "attention, relative bias and causal": attention(
        MASKED,
        position("relative_bias", causal=True, **FEW),
        mask("window", distance=3),
        causal=True,
    ),
    "attention, relative bias of 32": attention(SELF, position("relative_bias"), bias=False),
    "attention, relative keys": attention(MASKED, position("relative_keys", reach=2)),
    "attention, relative keys and causal": attention(
        MASKED,
        position("relative_keys", reach=1, causal=True),
        mask("window", distance=3),
        causal=True,
        scale="none",
    ),
    "attention, relative keys of 16": attention(SELF, position("relative_keys"), d_k=3, d_v=5),
    "attention, bias": attention(BIASED),
    "attention, bias and causal": attention(
        BIASED, position("alibi"), mask("window", distance=2), causal=True
    ),
    "attention, a memory and bias": attention(CROSS_BIASED, scale="none"),
    "attention, head gates": attention(MASKED, GATES, causal=True),
    "attention, talking heads": attention(MASKED, TALKING, causal=True),
    "attention, a memory and talking heads": attention(CROSSED, TALKING),
    "attention, soft cap": attention(BIASED, CAP, position("alibi"), causal=True),
    "attention, norms": attention(MASKED, NORMS, ROTARY, causal=True),
    "attention, a memory and norms": attention(CROSSED, NORMS, GATES),
    "attention, all": attention(MASKED, ROTARY, mask("window", distance=2), causal=True),
    "grouped, itself": grouped(MASKED),
    "grouped, a memory": grouped(CROSSED),
    "grouped, causal": grouped(SELF, causal=True),
    "grouped, causal and masked": grouped(MASKED, causal=True, d_k=3, d_v=5, bias=False),
    "grouped, multi-query": grouped(MASKED, kv_heads=1, causal=True),
    "grouped, window": grouped(SELF, mask("window", distance=2)),
    "grouped, no scale": grouped(SELF, causal=True, scale="none"),
    "grouped, alibi": grouped(MASKED, position("alibi")),
    "grouped, alibi, window and causal": grouped(
        MASKED, position("alibi"), mask("window", distance=2), causal=True
    ),
    "grouped, relative bias": grouped(SELF, position("relative_bias", **FEW)),
    "grouped, relative bias and causal": grouped(
        MASKED, position("relative_bias", causal=True, **FEW), kv_heads=1, causal=True
    ),
    "grouped, relative keys": grouped(SELF, position("relative_keys", reach=2)),
    "grouped, relative keys and causal": grouped(
        MASKED, position("relative_keys", reach=2, causal=True), kv_heads=1, causal=True
    ),
    "grouped, transformer xl": grouped(MASKED, position("transformer_xl_position"), causal=True),
    "grouped, talking heads": grouped(MASKED, TALKING, CAP, causal=True),
    "grouped, documents": grouped(
        {**MASKED, "document": "ids:2[B T]"}, mask("document"), causal=True
    ),
    "grouped, bias": grouped(BIASED, causal=True),
    "grouped, a memory, bias and gates": grouped(CROSS_BIASED, GATES),
    "grouped, all": grouped(MASKED, ROTARY, mask("window", distance=2), causal=True),
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
    "dot, keys as values": replace(
        DOT_ATTENTION,
        example={"heads": 4, "kv_heads": 1, "causal": True, "scale": 0.3},
        example_inputs={"query": "f[B T 12]", "key": "f[B T 3]"},
    ),
    "dot, narrow values of grouped heads": replace(
        DOT_ATTENTION,
        example={"heads": 4, "kv_heads": 2},
        example_inputs={"query": "f[B T 12]", "key": "f[B S 6]", "value": "f[B S 4]"},
    ),
    "dot, grouped and causal": replace(
        DOT_ATTENTION,
        example={"heads": 4, "kv_heads": 2, "causal": True, "scale": "sqrt"},
        example_inputs={
            "query": "f[B T 8]",
            "key": "f[B T 4]",
            "value": "f[B T 4]",
            "mask": "mask[B T]",
        },
    ),
}
