"""Variants of feed-forward blocks whose ports or behavior differ."""

from __future__ import annotations

from dataclasses import replace

from weft.blocks.feed_forward.feed_forward import FEED_FORWARD, GATED_FEED_FORWARD
from weft.graphs.ir.block_type import BlockType

VARIANTS: dict[str, BlockType] = {
    "feed_forward, gelu": replace(
        FEED_FORWARD, example={"d_ff": 16, "activation": "gelu", "bias": False}
    ),
    "feed_forward, gelu_tanh": replace(
        FEED_FORWARD, example={"d_ff": 16, "activation": "gelu_tanh"}
    ),
    "feed_forward, silu": replace(FEED_FORWARD, example={"d_ff": 16, "activation": "silu"}),
    "feed_forward, LoRA": replace(FEED_FORWARD, example={"d_ff": 16, "lora": {"rank": 2}}),
    "gated, LoRA": replace(GATED_FEED_FORWARD, example={"d_ff": 16, "lora": {"rank": 2}}),
    "gated, gelu": replace(
        GATED_FEED_FORWARD, example={"d_ff": 16, "activation": "gelu", "bias": False}
    ),
    "gated, bounded": replace(
        GATED_FEED_FORWARD, example={"d_ff": 16, "limit": 0.5, "offset": 1.0}
    ),
    "gated, relu": replace(GATED_FEED_FORWARD, example={"d_ff": 16, "activation": "relu"}),
    "gated, sigmoid": replace(GATED_FEED_FORWARD, example={"d_ff": 16, "activation": "sigmoid"}),
}
