"""Mixture of experts: a router sends each position to a few of many feed-forward networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from ...graphs.ir.block_type import BlockType, Needs, Signature, port
from ..params import Activation, Base, Count, Flag, Number, Params, Probability, without_usual
from .feed_forward import GATE, mixture_of_experts


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
    scores: Literal["softmax", "sigmoid"] = "softmax"
    """What the router makes of its logits: probabilities of all experts, or one for each."""
    renormalize: Flag | None = None
    """Whether the scores of the chosen experts are divided by their sum; by default, if `top_k` is
    more than 1."""
    scaling: Number = 1.0
    """Factor of the weights of the chosen experts."""
    router_bias: Flag = False
    """Whether the router has a bias."""
    choice_bias: Flag = False
    """Whether a number for each expert is added to its score for the choice alone, and not for its
    weight.  It is zero at first, and training does not change it."""
    groups: Count = 1
    """Number of groups of consecutive experts, a divisor of `experts`."""
    top_groups: Annotated[Count, Needs("groups", least=2)] = 1
    """Groups per position: the experts are chosen from those with the highest group scores."""
    group_score: Annotated[Literal["max", "two"], Needs("groups", least=2)] = "two"
    """Score of a group: its highest score, or the sum of its two highest ones."""
    activation: Activation = "relu"
    """Activation between the two linear maps of an expert."""
    bias: Flag = True
    """Whether the linear maps of the experts have biases."""
    gated: Flag = False
    """Whether the hidden layer is multiplied by an activated second linear map, the gate, as in
    `gated_feed_forward`; the hidden layer itself then has no activation."""
    limit: Annotated[Base | None, Needs("gated", (True,))] = None
    """Largest absolute value of the hidden layer, and largest value of the gate before its
    activation; any value by default."""
    offset: Annotated[Number, Needs("gated", (True,))] = 0.0
    """What is added to the hidden layer before it is multiplied by the gate."""
    dropout: Probability = 0.0
    """Dropout probability after the activation."""


ROUTING = frozenset(
    {
        "scores",
        "renormalize",
        "scaling",
        "router_bias",
        "choice_bias",
        "groups",
        "top_groups",
        "group_score",
    }
)
"""Params of the router."""


def _signature(params: MixtureOfExpertsParams, _: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "input vectors"),
            port("mask", "mask[b t]?", "true at non-padding positions; outputs are zero elsewhere"),
        ),
        outputs=(
            port("y", "f[b t d_model]", "weighted sum of the outputs of each position's experts"),
            port("balance", "loss[]", "load-balancing loss; 1 if all experts are used evenly"),
            port("logits", f"f[b t {params.experts}]", "output of the router"),
            port("chosen", f"mask[b t {params.experts}]", "true for the experts of each position"),
        ),
    )


def _arguments(params: MixtureOfExpertsParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    if params.top_k > params.experts:
        msg = f"top_k is {params.top_k}, but there are {params.experts} experts"
        raise ValueError(msg, f"use a top_k of at most {params.experts}")
    if params.experts % params.groups:
        msg = f"{params.experts} experts are not divisible into {params.groups} groups"
        fits = [n for n in range(1, params.experts + 1) if params.experts % n == 0]
        raise ValueError(msg, f"use {', '.join(map(str, fits))} groups")
    _refuse_groups(params)
    return {**sizes, **without_usual(params, ROUTING | GATE)}


def _refuse_groups(params: MixtureOfExpertsParams) -> None:
    """Refuse groups of which a position cannot choose `top_k` experts."""
    size = params.experts // params.groups
    if params.groups == 1:
        return
    if params.top_groups > params.groups:
        msg = f"top_groups is {params.top_groups}, but there are {params.groups} groups"
        raise ValueError(msg, f"use a top_groups of at most {params.groups}")
    if params.top_k > params.top_groups * size:
        msg = f"top_k is {params.top_k}, but {params.top_groups} groups have"
        msg += f" {params.top_groups * size} experts"
        raise ValueError(msg, "raise top_groups, or lower top_k")
    if params.group_score == "two" and size == 1:
        msg = "group_score is 'two', but each group has one expert"
        raise ValueError(msg, "set group_score to 'max'")


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    experts, d_model, d_ff = (arguments[name] for name in ("experts", "d_model", "d_ff"))
    weights: dict[str, tuple[int, ...]] = {
        "router.weight": (experts, d_model),
        "inner": (experts, d_model, d_ff),
        "outer": (experts, d_ff, d_model),
    }
    if arguments.get("router_bias"):
        weights["router.bias"] = (experts,)
    if arguments.get("choice_bias"):
        weights["choice_bias"] = (experts,)
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
    "top_k > 1; balance = experts * sum_e share_e * mean p_e.  Experts of every position are a "
    "feed-forward node beside it, and other losses are formulas of the logits.",
    source="Shazeer et al. 2017, section 2; balance, capacity and top_k = 1: Fedus et al. 2021, "
    "section 2.2; weights for top_k > 1: Lepikhin et al. 2020, section 2.2; gated: Jiang et al. "
    "2024, section 2.1; limit and offset: OpenAI 2025, gpt-oss, section 2.2; sigmoid scores, "
    "scaling, choice_bias and groups: DeepSeek-AI 2024, DeepSeek-V3, section 2.1.2",
    params=MixtureOfExpertsParams,
    signature=_signature,
    arguments=_arguments,
    weights=_weights,
    fans={
        **dict.fromkeys(("inner", "outer", "gate"), "each in out"),
        **dict.fromkeys(("inner_bias", "outer_bias", "gate_bias"), "each out"),
    },
    flops=_flops,
    module=".feed_forward.mixture_of_experts_module:MixtureOfExperts",
    dropout=("dropout",),
    example={"experts": 4, "d_ff": 16},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
)
