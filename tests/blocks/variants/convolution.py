"""Convolution: uses whose ports or behaviour differ from the examples'."""

from __future__ import annotations

from dataclasses import replace

from weft.blocks.convolution import CONVOLUTION
from weft.graphs.signature import BlockType

VARIANTS: dict[str, BlockType] = {
    "convolution, centred": replace(CONVOLUTION, example={"d_out": 6, "kernel": 3, "bias": False}),
    "convolution, dilated": replace(
        CONVOLUTION, example={"d_out": 8, "kernel": 2, "dilation": 2, "causal": True}
    ),
    "convolution, of one": replace(CONVOLUTION, example={"d_out": 4, "kernel": 1, "causal": True}),
}
