"""Variants of embedding, position and residual blocks whose ports or behavior differ."""

from __future__ import annotations

from dataclasses import replace

from weft.blocks.pooling.pool import POOL
from weft.blocks.position.position import EMBEDDING, SINUSOIDAL_POSITION
from weft.blocks.residual.batch_norm import BATCH_NORM
from weft.blocks.residual.group_norm import GROUP_NORM
from weft.blocks.residual.sublayer import (
    LAYER_NORM,
    LINEAR,
    PARALLEL_SUBLAYER,
    RMS_NORM,
    SUBLAYER,
)
from weft.graphs.ir.block_type import BlockType

MASKED = {"x": "f[B T 8]", "mask": "mask[B T]"}
CROSSED = {"x": "f[B T 8]", "memory": "f[B S 6]", "mask": "mask[B S]"}
CROSS = {"f": {"use": "attention@1", "params": {"heads": 2}}}
PAST = {"f": {"use": "attention@1", "params": {"heads": 2, "causal": True}}}
FEED = {"f": {"use": "feed_forward@1", "params": {"d_ff": 16}}}
LOCAL = {
    "position": {"use": "rotary@1", "params": {"base": 100.0}},
    "mask": {"use": "window@1", "params": {"distance": 2}},
}


VARIANTS: dict[str, BlockType] = {
    "batch_norm, no mask": replace(BATCH_NORM, example_inputs={"x": "f[B T 8]"}),
    "group_norm, no mask": replace(
        GROUP_NORM, example={"groups": 8}, example_inputs={"x": "f[B T 8]"}
    ),
    "pool, first": replace(POOL, example={"kind": "first"}),
    "pool, last": replace(POOL, example={"kind": "last"}),
    "pool, max": replace(POOL, example={"kind": "max"}),
    "pool, neighbors": replace(
        POOL,
        example={"kind": "max", "every": 2},
        example_inputs={"x": "f[B 2*S 8]", "mask": "mask[B 2*S]"},
    ),
    "pool, neighbors without a mask": replace(
        POOL, example={"every": 3}, example_inputs={"x": "f[B 3*S 8]"}
    ),
    "pool, no mask": replace(POOL, example_inputs={"x": "f[B T 8]"}),
    "embedding, frozen": replace(EMBEDDING, example={"d_model": 8, "frozen": True}),
    "linear, LoRA": replace(LINEAR, example={"d_out": 6, "lora": {"rank": 2, "alpha": 4.0}}),
    "linear, no bias": replace(LINEAR, example={"d_out": 6, "bias": False}),
    "sinusoidal, halves": replace(SINUSOIDAL_POSITION, example={"form": "halves"}),
    "sinusoidal, concatenated": replace(SINUSOIDAL_POSITION, example={"form": "concatenated"}),
    "sublayer, pre": replace(SUBLAYER, example={"order": "pre"}),
    "sublayer, rms_norm": replace(SUBLAYER, example={"order": "pre", "norm": "rms_norm"}),
    "sublayer, post rms_norm": replace(SUBLAYER, example={"norm": "rms_norm"}),
    "sublayer, grouped": replace(
        SUBLAYER,
        example_inputs=MASKED,
        example_fill={
            "f": {
                "use": "attention@1",
                "params": {"heads": 4, "kv_heads": 2, "causal": True},
                "fill": LOCAL,
            }
        },
    ),
    "sublayer, sandwich": replace(SUBLAYER, example={"order": "sandwich"}),
    "sublayer, sandwich rms_norm": replace(
        SUBLAYER, example={"order": "sandwich", "norm": "rms_norm", "residual": "rezero"}
    ),
    "sublayer, no norm bias": replace(SUBLAYER, example={"norm_bias": False}),
    "layer_norm, no bias": replace(LAYER_NORM, example={"bias": False}),
    "layer_norm, no weight": replace(LAYER_NORM, example={"weight": False}),
    "rms_norm, no weight": replace(RMS_NORM, example={"weight": False}),
    "sublayer, rezero": replace(SUBLAYER, example={"norm": "none", "residual": "rezero"}),
    "sublayer, layer_scale": replace(
        SUBLAYER, example={"order": "pre", "residual": "layer_scale", "drop_path": 0.5}
    ),
    "parallel_sublayer, masked": replace(PARALLEL_SUBLAYER, example_inputs=MASKED),
    "parallel_sublayer, crossed": replace(
        PARALLEL_SUBLAYER,
        example={"norm": "rms_norm", "residual": "layer_scale"},
        example_inputs=CROSSED,
        example_fill={**CROSS, "g": {"use": "sublayer@1", "fill": FEED}},
    ),
    "parallel_sublayer, two that remember": replace(
        PARALLEL_SUBLAYER,
        example_inputs=MASKED,
        example_fill={**PAST, "g": {"use": "gru@1", "params": {"d_hidden": 8}}},
    ),
    "sublayer, crossed": replace(SUBLAYER, example_inputs=CROSSED, example_fill=CROSS),
    "sublayer, feed_forward": replace(
        SUBLAYER, example_fill={"f": {"use": "feed_forward@1", "params": {"d_ff": 16}}}
    ),
}
