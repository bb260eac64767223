"""Feed-forward: the same two-layer map at every position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ..graphs.signature import BlockType, Signature, port
from .fields import Count, Flag, Params, Probability


class FeedForwardParams(Params):
    """Params of `feed_forward`."""

    d_ff: Count
    """Width between the two maps."""
    activation: Literal["relu", "gelu"] = "relu"
    """What stands between the two maps."""
    bias: Flag = True
    """Whether both maps have biases."""
    dropout: Probability = 0.0
    """Probability of dropping a number after the activation while training."""


def _signature(_: FeedForwardParams, __: frozenset[str]) -> Signature:
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


FEED_FORWARD = BlockType(
    name="feed_forward",
    doc="Two linear maps with an activation between; max(0, x W1 + b1) W2 + b2.",
    source="Vaswani et al. 2017, section 3.3",
    params=FeedForwardParams,
    signature=_signature,
    weights=_weights,
    module="feed_forward:FeedForward",
    example={"d_ff": 16},
    example_inputs={"x": "f[B T 8]"},
)
