"""Variants of the chart loss whose ports differ."""

from __future__ import annotations

from dataclasses import replace

from weft.blocks.losses.tree_crf import CHART_CROSS_ENTROPY
from weft.graphs.ir.block_type import BlockType

REQUIRED = {
    name: type_
    for name, type_ in CHART_CROSS_ENTROPY.example_inputs.items()
    if name not in ("mask", "symbols")
}

VARIANTS: dict[str, BlockType] = {
    "chart_cross_entropy, no mask": replace(CHART_CROSS_ENTROPY, example_inputs=REQUIRED)
}
