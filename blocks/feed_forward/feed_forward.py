"""Feed-forward: the same two-layer map at every position, plain or gated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ...graphs.ir.block_type import BlockType, Division, Signature, port
from ..params import Count, Flag, Params, Probability


class FeedForwardParams(Params):
    """Params of `feed_forward`."""

    d_ff: Count
    """Width between the two maps."""
    activation: Literal["relu", "gelu", "silu", "gelu_tanh"] = "relu"
    """What stands between the two maps; `gelu_tanh` is gelu with tanh for the error function."""
    bias: Flag = True
    """Whether both maps have biases."""
    dropout: Probability = 0.0
    """Probability of dropping a number after the activation while training."""


class GatedFeedForwardParams(Params):
    """Params of `gated_feed_forward`."""

    d_ff: Count
    """Width between the maps; 2/3 of a plain feed-forward's has as many weights."""
    activation: Literal["silu", "gelu", "relu", "sigmoid", "gelu_tanh"] = "silu"
    """What the gate passes through: SwiGLU, GEGLU, ReGLU, GLU; `gelu_tanh` approximates `gelu`."""
    bias: Flag = True
    """Whether the three maps have biases."""
    dropout: Probability = 0.0
    """Probability of dropping a number of the product while training."""


def _signature(_: FeedForwardParams | GatedFeedForwardParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("x", "f[... d_model]", "vectors"),),
        outputs=(port("y", "f[... d_model]", "each mapped by itself"),),
    )


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    d_model, d_ff = arguments["d_model"], arguments["d_ff"]
    weights: dict[str, tuple[int, ...]] = {
        "inner.weight": (d_ff, d_model),
        "outer.weight": (d_model, d_ff),
    }
    if arguments["bias"]:
        weights |= {"inner.bias": (d_ff,), "outer.bias": (d_model,)}
    return weights


def _gated_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    d_model, d_ff = arguments["d_model"], arguments["d_ff"]
    gate: dict[str, tuple[int, ...]] = {"gate.weight": (d_ff, d_model)}
    if arguments["bias"]:
        gate["gate.bias"] = (d_ff,)
    return gate | _weights(arguments)


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count two maps."""
    work: int = 4 * sizes["..."] * arguments["d_model"] * arguments["d_ff"]
    return work


def _gated_flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count three maps."""
    return 3 * _flops(arguments, sizes) // 2


def _division(arguments: Mapping[str, Any]) -> Division:
    """Divide by the width between the two maps."""
    return Division(parts={"d_ff": arguments["d_ff"]}, enter=("inner",), leave=("outer",))


def _gated_division(arguments: Mapping[str, Any]) -> Division:
    """Divide by the width of the gate, which is that of what it lets through."""
    width = {"d_ff": arguments["d_ff"]}
    return Division(parts=width, enter=("gate", "inner"), leave=("outer",))


FEED_FORWARD = BlockType(
    name="feed_forward",
    doc="Two linear maps with an activation between; max(0, x W1 + b1) W2 + b2.",
    source="Vaswani et al. 2017, section 3.3",
    params=FeedForwardParams,
    signature=_signature,
    weights=_weights,
    flops=_flops,
    division=_division,
    module=".feed_forward.feed_forward_module:FeedForward",
    example={"d_ff": 16},
    example_inputs={"x": "f[B T 8]"},
)

GATED_FEED_FORWARD = BlockType(
    name="gated_feed_forward",
    doc="Two maps side by side, one the other's gate, and a map back; (silu(x Wg) * x W1) W2.",
    source="Shazeer 2020, section 2",
    params=GatedFeedForwardParams,
    signature=_signature,
    weights=_gated_weights,
    flops=_gated_flops,
    division=_gated_division,
    module=".feed_forward.feed_forward_module:GatedFeedForward",
    example={"d_ff": 16},
    example_inputs={"x": "f[B T 8]"},
)
