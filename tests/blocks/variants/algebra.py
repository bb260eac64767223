"""Variants of the blocks of arithmetic."""

from __future__ import annotations

from dataclasses import replace

from weft.blocks.algebra.einsum import EINSUM
from weft.blocks.algebra.parameter import PARAMETER
from weft.blocks.algebra.reduce import REDUCE
from weft.blocks.algebra.softmax import SOFTMAX
from weft.graphs.ir.block_type import BlockType

VARIANTS: dict[str, BlockType] = {
    "einsum, of three": replace(
        EINSUM,
        example={"y": "b s i, b s j, b t j -> b t i"},
        example_inputs={"x": "f[B S 3]", "z": "f[B S 4]", "w": "f[B T 4]"},
    ),
    "parameter, constant": replace(
        PARAMETER,
        example={"shape": [2, 5, 5], "init": "identity", "learned": False, "rows": True},
    ),
    "reduce, features": replace(
        REDUCE,
        example={"y": "b t h d -> b t d", "by": "logsumexp"},
        example_inputs={"x": "f[B T 2 4]"},
    ),
    "reduce, masked": replace(
        REDUCE,
        example={"y": "b t d -> b d", "by": "max"},
        example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
    ),
    "softmax, features": replace(SOFTMAX, example={}, example_inputs={"x": "f[B T 8]"}),
}
for _kind in ("log_softmax", "softmax1", "squared_relu", "sparsemax"):
    VARIANTS[f"softmax, {_kind}"] = replace(
        SOFTMAX, example={"y": "b t s", "kind": _kind}, example_inputs={"x": "f[B T S]"}
    )
