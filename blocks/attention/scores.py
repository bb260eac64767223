"""Parts for scores, attention weights and outputs of heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, NoParams, Prunable, Signature, port
from ..params import Number, Params


class HeadGatesParams(Params):
    """Params of `head_gates`."""

    start: Number = 1.0
    """Initial value of the scalars."""


def _gates_signature(_: HeadGatesParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("x", "f[b heads t d]", "one matrix for each head"),),
        outputs=(port("y", "f[b heads t d]", "the matrices, each multiplied by a scalar"),),
        sized=("heads",),
        factors=("x",),
    )


def _gates_arguments(params: HeadGatesParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    return {"heads": sizes["heads"], **params.model_dump()}


HEAD_GATES = BlockType(
    name="head_gates",
    title="head gates",
    mixes="",
    doc="Multiply each head by a learned scalar: its output, whose gradient then measures the "
    "importance of the head, or its scores, as a learned temperature; y_h = w_h x_h.",
    source="Michel et al. 2019, section 2.3; scores: Henry et al. 2020, section 2.2",
    params=HeadGatesParams,
    signature=_gates_signature,
    arguments=_gates_arguments,
    weights=lambda arguments: {"weight": (arguments["heads"],)},
    prunable=Prunable(rows={}, last_axis=("weight",)),
    module=".attention.scores_module:HeadGates",
    example={},
    example_inputs={"x": "f[B 2 S 4]"},
)


def _talking_signature(_: NoParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("x", "f[b heads t s]", "scores or attention weights of each head"),),
        outputs=(port("y", "f[b heads t s]", "linear combinations over the heads"),),
        sized=("heads",),
        factors=("x",),
    )


def _talking_arguments(_: NoParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    return {"heads": sizes["heads"]}


def _talking_flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the product of the map and the scores of every pair."""
    work: int = 2 * arguments["heads"] ** 2 * sizes["b"] * sizes["t"] * sizes["s"]
    return work


TALKING_HEADS = BlockType(
    name="talking_heads",
    title="talking heads",
    mixes="",
    doc="Linear map over the heads, of scores or of attention weights; y_g = sum_h w_gh x_h.",
    source="Shazeer et al. 2020, section 2",
    signature=_talking_signature,
    arguments=_talking_arguments,
    weights=lambda arguments: {"weight": (arguments["heads"], arguments["heads"])},
    flops=_talking_flops,
    module=".attention.scores_module:TalkingHeads",
    example_inputs={"x": "f[B 2 S S]"},
)
