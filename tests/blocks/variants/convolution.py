"""Variants of convolutions whose ports or behavior differ."""

from __future__ import annotations

from dataclasses import replace

from weft.blocks.convolution.convolution import (
    CONVOLUTION,
    DEPTHWISE_CONVOLUTION,
    GATED_CONVOLUTION,
    SEPARABLE_CONVOLUTION,
)
from weft.graphs.ir.block_type import BlockType

MASKED = {"x": "f[B T 8]", "mask": "mask[B T]"}

VARIANTS: dict[str, BlockType] = {
    "convolution, dilated": replace(
        CONVOLUTION, example={"d_out": 8, "kernel": 2, "dilation": 2, "causal": True}
    ),
    "convolution, grouped": replace(
        CONVOLUTION, example={"d_out": 12, "kernel": 3, "groups": 4, "causal": True}
    ),
    "convolution, of one": replace(CONVOLUTION, example={"d_out": 4, "kernel": 1, "causal": True}),
}
for _name, _params in (
    ("dilated", {"kernel": 2, "dilation": 2, "causal": True}),
    ("of one", {"kernel": 1, "causal": True}),
    ("centered", {"kernel": 5, "dilation": 2, "bias": False}),
):
    VARIANTS[f"depthwise, {_name}"] = replace(
        DEPTHWISE_CONVOLUTION, example=_params, example_inputs=MASKED
    )
for _block in (CONVOLUTION, SEPARABLE_CONVOLUTION, GATED_CONVOLUTION):
    VARIANTS |= {
        f"{_block.name}, centered": replace(
            _block, example={"d_out": 6, "kernel": 3, "bias": False}
        ),
        f"{_block.name}, causal and masked": replace(_block, example_inputs=MASKED),
        f"{_block.name}, centered and masked": replace(
            _block, example={"d_out": 6, "kernel": 5, "dilation": 2}, example_inputs=MASKED
        ),
    }
