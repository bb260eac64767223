"""Additive attention: a small network says how well a query and a memory's position match."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Count, Params


class AdditiveAttentionParams(Params):
    """Params of `additive_attention`."""

    d_attention: Count
    """Width at which a query and a position of the memory are compared."""


def _signature(_: AdditiveAttentionParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "what reads"),
            port("memory", "f[b s d_memory]", "what is read"),
            port("mask", "mask[b s]?", "which positions may be read"),
        ),
        outputs=(port("y", "f[b t d_memory]", "the weighted sum of the memory"),),
        behavior={"s": "full"},
    )


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    a = arguments
    return {
        "query.weight": (a["d_attention"], a["d_model"]),
        "key.weight": (a["d_attention"], a["d_memory"]),
        "score.weight": (1, a["d_attention"]),
    }


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the two projections, the scores of every pair, and the weighted sums."""
    a, reads, is_read = arguments, sizes["t"], sizes["s"]
    projections = a["d_attention"] * (reads * a["d_model"] + is_read * a["d_memory"])
    pairs = reads * is_read * (a["d_attention"] + a["d_memory"])
    work: int = 2 * sizes["b"] * (projections + pairs)
    return work


ADDITIVE_ATTENTION = BlockType(
    name="additive_attention",
    doc="Attention by a network of one hidden layer; softmax_j(v tanh(W q + U h_j)) weighs h_j.",
    source="Bahdanau et al. 2015, section 3.1 and appendix A.1.2",
    params=AdditiveAttentionParams,
    signature=_signature,
    weights=_weights,
    flops=_flops,
    module=".attention.additive_module:AdditiveAttention",
    steps=True,
    example={"d_attention": 5},
    example_inputs={"x": "f[B T 8]", "memory": "f[B S 6]", "mask": "mask[B S]"},
)
