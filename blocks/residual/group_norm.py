"""Group normalization of a sequence: over its positions, and over the features of a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Count, Epsilon, Params


class GroupNormParams(Params):
    """Params of `group_norm`."""

    groups: Count
    """Number of groups of neighboring features, a divisor of the width; the width itself normalizes
    each feature over time, as an instance norm does."""
    eps: Epsilon = 1e-5
    """Added to the variance."""


def _signature(_: GroupNormParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "input vectors"),
            port("mask", "mask[b t]?", "true at non-padding positions; the others do not count"),
        ),
        outputs=(port("y", "f[b t d_model]", "normalized, scaled and shifted vectors"),),
        behavior={"t": "full"},
        ordered=False,
        scale="normalized",
    )


def _arguments(params: GroupNormParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    if sizes["d_model"] % params.groups:
        msg = f"the width is {sizes['d_model']}, which {params.groups} groups do not divide"
        raise ValueError(msg, "use a number of groups that divides the width")
    return {**sizes, **params.model_dump()}


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(("weight", "bias"), (arguments["d_model"],))


GROUP_NORM = BlockType(
    name="group_norm",
    family="norm",
    doc="Normalization of each sequence over its non-padding positions and the features of each "
    "group; weight * (x - mean) / sqrt(variance + eps) + bias.",
    source="Wu and He 2018, section 3; over time: Baevski et al. 2020, section 2",
    params=GroupNormParams,
    signature=_signature,
    arguments=_arguments,
    weights=_weights,
    module=".residual.group_norm_module:GroupNorm",
    example={"groups": 2},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
)
