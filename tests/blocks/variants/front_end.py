"""Variants of audio and image blocks whose ports or behavior differ."""

from __future__ import annotations

from dataclasses import replace

from weft.blocks.frontend.audio import LOG_MEL
from weft.blocks.frontend.image import PATCH_EMBEDDING
from weft.graphs.ir.block_type import BlockType

VARIANTS: dict[str, BlockType] = {
    "patch_embedding, one channel": replace(
        PATCH_EMBEDDING,
        example={"d_model": 4, "patch": 3, "height": 6, "width": 3, "channels": 1, "bias": False},
        example_inputs={"image": "f[B 1 6 3]"},
    ),
    "log_mel, other frames": replace(
        LOG_MEL,
        example={"mels": 20, "rate": 8000, "window": 255, "hop": 100},
        example_inputs={"x": "f[B 100*T]"},
    ),
    "log_mel, masked": replace(
        LOG_MEL, example_inputs={"x": "f[B 160*T]", "mask": "mask[B 160*T]"}
    ),
}
