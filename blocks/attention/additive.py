"""Additive attention: scores from a feed-forward network with one hidden layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, Signature, port
from ...graphs.ir.state_tensor import StateTensor
from ..params import Count, Params


class AdditiveAttentionParams(Params):
    """Params of `additive_attention`."""

    d_attention: Count
    """Width of the hidden layer that computes the scores."""


def _signature(_: AdditiveAttentionParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "queries"),
            port("memory", "f[b s d_memory]", "the sequence that is attended to"),
            port("mask", "mask[b s]?", "true at memory positions that may be attended to"),
        ),
        outputs=(port("y", "f[b t d_memory]", "weighted sum of the memory for each query"),),
        behavior={"s": "full"},
        ordered=False,
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
    a, t, s = arguments, sizes["t"], sizes["s"]
    projections = a["d_attention"] * (t * a["d_model"] + s * a["d_memory"])
    pairs = t * s * (a["d_attention"] + a["d_memory"])
    work: int = 2 * sizes["b"] * (projections + pairs)
    return work


def _state(
    arguments: Mapping[str, Any], sizes: Mapping[str, int], wired: frozenset[str]
) -> dict[str, StateTensor]:
    """Return the memory, its keys and its mask."""
    rows, length = sizes["b"], sizes["s"]
    state = {
        "memory": StateTensor((rows, length, arguments["d_memory"])),
        "key": StateTensor((rows, length, arguments["d_attention"])),
    }
    return state | ({"mask": StateTensor((rows, length), "bool")} if "mask" in wired else {})


ADDITIVE_ATTENTION = BlockType(
    name="additive_attention",
    family="attention",
    doc="Additive attention, scored by a network with one hidden layer; "
    "sum_j softmax_j(v tanh(W q + U h_j)) h_j.",
    source="Bahdanau et al. 2015, section 3.1 and appendix A.1.2",
    params=AdditiveAttentionParams,
    signature=_signature,
    weights=_weights,
    flops=_flops,
    module=".attention.additive_module:AdditiveAttention",
    steps=True,
    state=_state,
    example={"d_attention": 5},
    example_inputs={"x": "f[B T 8]", "memory": "f[B S 6]", "mask": "mask[B S]"},
)
