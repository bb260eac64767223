"""Variants of state space blocks whose ports or behavior differ."""

from __future__ import annotations

from dataclasses import replace

from weft.blocks.recurrent.state_space import MAMBA2
from weft.graphs.ir.block_type import BlockType

VARIANTS: dict[str, BlockType] = {
    "mamba2, groups and no mask": replace(
        MAMBA2,
        example={"heads": 6, "groups": 2, "d_state": 5, "expand": 3, "kernel": 2, "chunk": 3},
        example_inputs={"x": "f[B T 8]"},
    ),
    "mamba2, one chunk and no convolution": replace(
        MAMBA2, example={"heads": 2, "d_state": 4, "kernel": 1}
    ),
}
