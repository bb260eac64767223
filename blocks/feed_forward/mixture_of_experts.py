"""Mixture of experts: many feed-forward maps, of which each position passes through a few."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Count, Flag, Params, Probability


class MixtureOfExpertsParams(Params):
    """Params of `mixture_of_experts`."""

    experts: Count
    """Number of feed-forward maps."""
    d_ff: Count
    """Width between the two linear maps of each expert."""
    top_k: Count = 2
    """Experts that each position passes through: those that the router finds likeliest."""
    capacity: Annotated[float, Field(gt=0.0, le=1e6)] = 1.25
    """Positions that an expert takes while training, counted in fair shares (top_k / experts of
    all); it gives zeros for those past that.  In evaluation it takes all."""
    activation: Literal["relu", "gelu", "silu"] = "relu"
    """What stands between the two maps."""
    bias: Flag = True
    """Whether both maps have biases; the router has none."""
    dropout: Probability = 0.0
    """Probability of dropping a number after the activation while training."""


def _signature(_: MixtureOfExpertsParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "vectors"),
            port("mask", "mask[b t]?", "which positions count; the others give zeros"),
        ),
        outputs=(
            port("y", "f[b t d_model]", "what the experts of each position gave, weighed"),
            port("balance", "loss[]", "1 where all experts are used alike, more where not"),
        ),
    )


def _arguments(params: MixtureOfExpertsParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    if params.top_k > params.experts:
        msg = f"top_k is {params.top_k}, but there are {params.experts} experts"
        raise ValueError(msg, f"use a top_k of at most {params.experts}")
    return {**sizes, **params.model_dump()}


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    experts, d_model, d_ff = (arguments[name] for name in ("experts", "d_model", "d_ff"))
    weights: dict[str, tuple[int, ...]] = {
        "router.weight": (experts, d_model),
        "inner": (experts, d_model, d_ff),
        "outer": (experts, d_ff, d_model),
    }
    if arguments["bias"]:
        weights |= {"inner_bias": (experts, d_ff), "outer_bias": (experts, d_model)}
    return weights


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the router, and the two maps of the experts that each position passes through."""
    a = arguments
    each: int = a["d_model"] * (a["experts"] + 2 * a["top_k"] * a["d_ff"])
    return 2 * sizes["b"] * sizes["t"] * each


MIXTURE_OF_EXPERTS = BlockType(
    name="mixture_of_experts",
    doc="Feed-forward maps among which a router chooses for each position; y = sum over its top_k "
    "of p_e(x) E_e(x), p the router's softmax, its top_k summing to 1 where they are several; "
    "balance = experts * sum_e share_e * mean p_e.",
    source="Shazeer et al. 2017, section 2; balance, capacity and top_k = 1: Fedus et al. 2021, "
    "section 2.2; weights of several: Lepikhin et al. 2020, section 2.2",
    params=MixtureOfExpertsParams,
    signature=_signature,
    arguments=_arguments,
    weights=_weights,
    flops=_flops,
    module=".feed_forward.mixture_of_experts_module:MixtureOfExperts",
    example={"experts": 4, "d_ff": 16},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
)
