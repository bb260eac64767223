"""Variants of state space and retention blocks whose ports or behavior differ."""

from __future__ import annotations

from dataclasses import replace

from weft.blocks.recurrent.delta_rule import DELTA_RULE
from weft.blocks.recurrent.gated_linear_attention import GATED_LINEAR_ATTENTION
from weft.blocks.recurrent.linear_recurrence import LINEAR_RECURRENCE
from weft.blocks.recurrent.retention import RETENTION
from weft.blocks.recurrent.state_space import MAMBA2
from weft.graphs.ir.block_type import BlockType

VARIANTS: dict[str, BlockType] = {
    "mamba2, groups and no mask": replace(
        MAMBA2,
        example={"heads": 6, "groups": 2, "d_state": 5, "expand": 3, "kernel": 2, "chunk": 3},
        example_inputs={"x": "f[B T 8]"},
    ),
    "retention, no phase and no mask": replace(
        RETENTION,
        example={"heads": 4, "d_k": 3, "d_v": 5, "position": "none", "chunk": 3},
        example_inputs={"x": "f[B T 8]"},
    ),
    "retention, one chunk": replace(RETENTION, example={"heads": 2, "eps": 0.01}),
    "gated linear attention, no mask": replace(
        GATED_LINEAR_ATTENTION,
        example={"heads": 4, "d_k": 3, "d_v": 5, "rank": 2, "temperature": 2.0, "chunk": 3},
        example_inputs={"x": "f[B T 8]"},
    ),
    "gated linear attention, one chunk": replace(GATED_LINEAR_ATTENTION, example={"heads": 2}),
    "mamba2, one chunk and no convolution": replace(
        MAMBA2, example={"heads": 2, "d_state": 4, "kernel": 1}
    ),
    "delta_rule, decay and two groups of chunks": replace(
        DELTA_RULE,
        example={"heads": 1, "chunk": 1, "normalize": False},
        example_inputs={
            "query": "f[B T 4]",
            "key": "f[B T 4]",
            "value": "f[B T 5]",
            "beta": "f[B T 1]",
            "log_alpha": "f[B T 1]",
        },
    ),
    "delta_rule, one chunk and no mask": replace(
        DELTA_RULE,
        example={"heads": 2},
        example_inputs={
            "query": "f[B T 8]",
            "key": "f[B T 8]",
            "value": "f[B T 6]",
            "beta": "f[B T 2]",
        },
    ),
    "linear_recurrence, from a start": replace(
        LINEAR_RECURRENCE,
        example_inputs={"x": "f[B T 8]", "a": "f[B T 8]", "start": "f[B 8]"},
    ),
}

FREE = {"linear_recurrence", "scan"}
