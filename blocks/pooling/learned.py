"""Learned vectors for each row of a batch, and learned weights of layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Count, Flag, Params


class LearnedArrayParams(Params):
    """Params of `learned_array`."""

    count: Count
    """Number of learned vectors."""
    d_out: Count
    """Width of each."""


def _array_signature(params: LearnedArrayParams, _: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("x", "f[b s d_in]", "a value that gives the number of rows, and no more"),),
        outputs=(
            port("y", f"f[b {params.count} {params.d_out}]", "the learned vectors, in every row"),
        ),
    )


def _array_arguments(params: LearnedArrayParams, _: Mapping[str, Any]) -> dict[str, Any]:
    return params.model_dump()


LEARNED_ARRAY = BlockType(
    name="learned_array",
    mixes="",
    doc="Learned vectors that do not depend on the input, such as latents, queries or prompts; "
    "y = w.",
    source="Jaegle et al. 2021, section 3.1 (latents); Carion et al. 2020, section 3.2 (queries); "
    "Lester et al. 2021, section 2 (prompts)",
    params=LearnedArrayParams,
    signature=_array_signature,
    arguments=_array_arguments,
    weights=lambda arguments: {"weight": (arguments["count"], arguments["d_out"])},
    module=".pooling.learned_module:LearnedArray",
    example={"count": 3, "d_out": 5},
    example_inputs={"x": "f[B S 8]"},
)


class WeightedSumParams(Params):
    """Params of `weighted_sum`."""

    layers: Count
    """Number of stacked values, as many as the repeat that collects them has copies."""
    gain: Flag = True
    """Whether the sum is multiplied by a learned scalar that starts at 1."""


def _sum_signature(params: WeightedSumParams, _: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("x", f"f[{params.layers} b t d_model]", "stacked values, one per layer"),),
        outputs=(port("y", "f[b t d_model]", "the weighted sum of the layers"),),
    )


def _sum_arguments(params: WeightedSumParams, _: Mapping[str, Any]) -> dict[str, Any]:
    return params.model_dump()


def _sum_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    weights: dict[str, tuple[int, ...]] = {"weight": (arguments["layers"],)}
    return weights | ({"gain": (1,)} if arguments["gain"] else {})


WEIGHTED_SUM = BlockType(
    name="weighted_sum",
    mixes="",
    doc="Weighted sum of the outputs of all layers, with learned weights; "
    "gain * sum_l softmax(w)_l x_l.",
    source="Peters et al. 2018, section 3.2",
    params=WeightedSumParams,
    signature=_sum_signature,
    arguments=_sum_arguments,
    weights=_sum_weights,
    module=".pooling.learned_module:WeightedSum",
    example={"layers": 3},
    example_inputs={"x": "f[3 B S 8]"},
)
