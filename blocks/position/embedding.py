"""Token embedding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Count, Flag, Params


class EmbeddingParams(Params):
    """Params of `embedding`."""

    d_model: Count
    """Width of the vectors."""
    scale: Literal["none", "sqrt"] = "none"
    """`sqrt`: multiply every vector by sqrt(d_model)."""
    frozen: Flag = False
    """Whether to freeze the table in training, including for weights tied to it."""


def _signature(params: EmbeddingParams, _: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("ids", "ids:vocab[...]", "token ids"),),
        outputs=(port("y", f"f[... {params.d_model}]", "one vector per id"),),
    )


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {"weight": (arguments["vocab"], arguments["d_model"])}


EMBEDDING = BlockType(
    name="embedding",
    family="embedding",
    adapts=("ids", "f"),
    role="embedding",
    doc="Look up a learned vector for each id; y = scale * weight[ids].",
    source="Vaswani et al. 2017, section 3.4",
    params=EmbeddingParams,
    signature=_signature,
    weights=_weights,
    module=".position.embedding_module:Embedding",
    example={"d_model": 8, "scale": "sqrt"},
    example_inputs={"ids": "ids:11[B T]"},
)
