"""Mixture of experts: a router sends each position to a few of many feed-forward networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Activation, Count, Flag, Params, Probability
from .inside import mixture_of_experts


class MixtureOfExpertsParams(Params):
    """Params of `mixture_of_experts`."""

    experts: Count
    """Number of experts, which are feed-forward networks."""
    d_ff: Count
    """Width of the hidden layer of each expert."""
    top_k: Count = 2
    """Experts per position: those with the highest router probabilities."""
    capacity: Annotated[float, Field(gt=0.0, le=1e6)] = 1.25
    """Capacity factor: in training, an expert processes at most this multiple of its even share,
    top_k / experts of all positions; its output is zero for the rest.  No limit in evaluation."""
    activation: Activation = "relu"
    """Activation between the two linear maps of an expert."""
    bias: Flag = True
    """Whether the linear maps have biases; the router has none."""
    gated: Flag = False
    """Whether the hidden layer is multiplied by an activated second linear map, the gate, as in
    `gated_feed_forward`; the hidden layer itself then has no activation."""
    dropout: Probability = 0.0
    """Dropout probability after the activation."""


def _signature(_: MixtureOfExpertsParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "input vectors"),
            port("mask", "mask[b t]?", "true at non-padding positions; outputs are zero elsewhere"),
        ),
        outputs=(
            port("y", "f[b t d_model]", "weighted sum of the outputs of each position's experts"),
            port("balance", "loss[]", "load-balancing loss; 1 if all experts are used evenly"),
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
    if arguments["gated"]:
        weights["gate"] = weights["inner"]
    if arguments["bias"]:
        weights |= {"inner_bias": (experts, d_ff), "outer_bias": (experts, d_model)}
        if arguments["gated"]:
            weights["gate_bias"] = weights["inner_bias"]
    return weights


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the router and the linear maps of each of the top_k experts per position."""
    a = arguments
    per_position: int = a["d_model"] * (a["experts"] + (2 + a["gated"]) * a["top_k"] * a["d_ff"])
    return 2 * sizes["b"] * sizes["t"] * per_position


MIXTURE_OF_EXPERTS = BlockType(
    name="mixture_of_experts",
    family="feed_forward",
    inside=mixture_of_experts,
    mixes="mixture of experts",
    onnx_form="_run_experts=.feed_forward.mixture_of_experts_onnx:experts_in_turn",
    doc="Feed-forward experts of which a router selects top_k per position; y = sum over the top_k "
    "of p_e(x) E_e(x), where p is the softmax of the router, renormalized over the top_k if "
    "top_k > 1; balance = experts * sum_e share_e * mean p_e.",
    source="Shazeer et al. 2017, section 2; balance, capacity and top_k = 1: Fedus et al. 2021, "
    "section 2.2; weights for top_k > 1: Lepikhin et al. 2020, section 2.2; gated: Jiang et al. "
    "2024, section 2.1",
    params=MixtureOfExpertsParams,
    signature=_signature,
    arguments=_arguments,
    weights=_weights,
    flops=_flops,
    module=".feed_forward.mixture_of_experts_module:MixtureOfExperts",
    dropout=("dropout",),
    example={"experts": 4, "d_ff": 16},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
)
