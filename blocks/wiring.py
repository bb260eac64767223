"""Wiring: what stands around and between the blocks that do the work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from ..graphs.shapes import parse_type
from ..graphs.signature import BlockType, Port, Signature, Slot, port
from .fields import LATER, Count, Epsilon, Flag, Params, Probability
from .norm import LAYER_NORM, LAYER_NORM_EPS, RMS_NORM


class SublayerParams(Params):
    """Params of `sublayer`."""

    order: Literal["post", "pre"] = "post"
    """`post`: norm(x + dropout(f(x))), the paper's. `pre`: x + dropout(f(norm(x)))."""
    dropout: Probability = 0.0
    """Probability of dropping a number of the sub-layer's output while training."""
    eps: Epsilon = LAYER_NORM_EPS
    """Added by the norm to what it takes the root of."""
    norm: Annotated[Literal["layer_norm", "rms_norm"], LATER] = "layer_norm"
    """Which norm."""


class LinearParams(Params):
    """Params of `linear`."""

    d_out: Count
    """Width of the result."""
    bias: Flag = True
    """Whether a bias is added."""


class DropoutParams(Params):
    """Params of `dropout`."""

    dropout: Probability
    """Probability of dropping a number while training."""


def _sublayer_signature(_: SublayerParams, __: frozenset[str]) -> Signature:
    vectors, _optional = parse_type("f[... d_model]", {})
    return Signature(
        inputs=(port("x", "f[... d_model]", "vectors"),),
        outputs=(port("y", "f[... d_model]", "the same with what `f` adds"),),
        slots=(
            Slot(
                "f", Port("x", vectors), Port("y", vectors), "the sub-layer; it takes other wires"
            ),
        ),
    )


def _sublayer_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    norm = RMS_NORM if arguments["norm"] == "rms_norm" else LAYER_NORM
    return {f"norm.{name}": shape for name, shape in norm.weights(arguments).items()}


SUBLAYER = BlockType(
    name="sublayer",
    doc="Residual path, dropout and a norm around a sub-layer; norm(x + dropout(f(x))).",
    source="Vaswani et al. 2017, section 3.1; pre order: Xiong et al. 2020",
    params=SublayerParams,
    signature=_sublayer_signature,
    weights=_sublayer_weights,
    module="wiring:Sublayer",
    example={"order": "post"},
    example_inputs={"x": "f[B T 8]"},
    example_fill={"f": {"use": "attention@1", "params": {"heads": 2, "causal": True}}},
)


def _linear_signature(params: LinearParams, _: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("x", "f[... d_in]", "vectors"),),
        outputs=(port("y", f"f[... {params.d_out}]", "vectors of another width"),),
    )


def _linear_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    weight = {"weight": (arguments["d_out"], arguments["d_in"])}
    return weight | ({"bias": (arguments["d_out"],)} if arguments["bias"] else {})


def _linear_flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    work: int = 2 * sizes["..."] * arguments["d_in"] * arguments["d_out"]
    return work


LINEAR = BlockType(
    name="linear",
    doc="Linear map; x W^T + b.",
    source="Vaswani et al. 2017, section 3.4",
    params=LinearParams,
    signature=_linear_signature,
    weights=_linear_weights,
    flops=_linear_flops,
    module="wiring:Linear",
    example={"d_out": 6},
    example_inputs={"x": "f[B T 8]"},
)


def _dropout_signature(_: DropoutParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("x", "f[...]", "vectors"),),
        outputs=(port("y", "f[...]", "the same, some numbers dropped while training"),),
    )


def _dropout_arguments(params: DropoutParams, _: Mapping[str, Any]) -> dict[str, Any]:
    return params.model_dump()


DROPOUT = BlockType(
    name="dropout",
    doc="Drop numbers with a probability while training, and scale up the rest.",
    source="Srivastava et al. 2014; Vaswani et al. 2017, section 5.4",
    params=DropoutParams,
    signature=_dropout_signature,
    arguments=_dropout_arguments,
    module="dropout:Dropout",
    example={"dropout": 0.1},
    example_inputs={"x": "f[B T 8]"},
)
