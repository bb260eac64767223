"""Variants of convolutions whose ports or behavior differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
EVERY_OTHER = {"x": "f[B 2*S 8]", "mask": "mask[B 2*S]"}
SHORTER: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "even": ({"kernel": 4}, MASKED),
    "strided": ({"kernel": 3, "stride": 2}, EVERY_OTHER),
    "strided, causal": ({"kernel": 4, "stride": 2, "causal": True}, EVERY_OTHER),
    "of three": ({"kernel": 5, "stride": 3, "bias": False}, {"x": "f[B 3*S 8]"}),
    "unpadded": ({"kernel": 3, "padding": "valid"}, {"x": "f[B S 8]", "mask": "mask[B S]"}),
    "unpadded, strided": ({"kernel": 3, "stride": 2, "padding": "valid"}, EVERY_OTHER),
    "unpadded, dilated": (
        {"kernel": 2, "dilation": 2, "stride": 3, "padding": "valid"},
        {"x": "f[B 3*S+1 8]", "mask": "mask[B 3*S+1]"},
    ),
    "padded in front": ({"kernel": 4, "padding": (2, 1)}, MASKED),
    "padded a little": ({"kernel": 4, "stride": 2, "padding": (1, 0)}, EVERY_OTHER),
    "of one, strided": ({"kernel": 1, "stride": 2}, EVERY_OTHER),
}
for _block in (CONVOLUTION, DEPTHWISE_CONVOLUTION, SEPARABLE_CONVOLUTION, GATED_CONVOLUTION):
    _width = {} if _block is DEPTHWISE_CONVOLUTION else {"d_out": 6}
    VARIANTS |= {
        f"{_block.name}, {_name}": replace(
            _block, example={**_width, **_params}, example_inputs=_inputs
        )
        for _name, (_params, _inputs) in SHORTER.items()
    }
