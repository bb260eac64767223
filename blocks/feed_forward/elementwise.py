"""Elementwise blocks: activations, scaling by a constant and gating."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Activation, Number, Params


class ActivationParams(Params):
    """Params of `activation`."""

    activation: Activation = "relu"
    """Activation function; `gelu_tanh` is the tanh approximation of gelu, `quick_gelu` is
    x * sigmoid(1.702 x), `squared_relu` is max(0, x)^2."""


class ScaleParams(Params):
    """Params of `scale`."""

    by: Number
    """Constant factor."""


class GateParams(Params):
    """Params of `gate`."""

    start: Number = -1.0
    """Initial bias of the gate; below 0, the output is initially closer to `x` than to `z`."""


def _arguments(params: Params, _: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor arguments: only the params, since the width does not matter."""
    return params.model_dump()


def _activation_signature(_: ActivationParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("x", "f[...]", "values of any shape"),),
        outputs=(port("y", "f[...]", "the activation of each value"),),
    )


ACTIVATION = BlockType(
    name="activation",
    doc="Apply an activation function elementwise; relu(x) = max(0, x).",
    source="relu: Nair and Hinton 2010, section 2; gelu and gelu_tanh: Hendrycks and Gimpel 2016, "
    "section 2; silu: Ramachandran et al. 2017, section 4; squared_relu: So et al. 2021, "
    "section 4; quick_gelu: Hendrycks and Gimpel 2016, section 2; elu: Clevert et al. 2016, "
    "section 3; leaky_relu: Maas et al. 2013, section 2; softplus: Dugas et al. 2001; "
    "mish: Misra 2020; hard_swish: Howard et al. 2019, section 5.2",
    params=ActivationParams,
    signature=_activation_signature,
    arguments=_arguments,
    module=".feed_forward.elementwise_module:Activation",
    example={"activation": "gelu"},
    example_inputs={"x": "f[B T 8]"},
)


def _scale_signature(_: ScaleParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("x", "f[...]", "values of any shape"),),
        outputs=(port("y", "f[...]", "each value times the constant"),),
    )


SCALE = BlockType(
    name="scale",
    role="scale",
    doc="Multiply by a constant; y = by * x.",
    source="Vaswani et al. 2017, section 3.4; Raffel et al. 2020, section 2.1",
    params=ScaleParams,
    signature=_scale_signature,
    arguments=_arguments,
    module=".feed_forward.elementwise_module:Scale",
    example={"by": 0.5},
    example_inputs={"x": "f[B T 8]"},
)


def _gate_signature(_: GateParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[... d_model]", "carried vectors; the gate is computed from them"),
            port("z", "f[... d_model]", "transformed vectors"),
        ),
        outputs=(port("y", "f[... d_model]", "gated mean of both, feature by feature"),),
    )


def _gate_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    d_model = arguments["d_model"]
    return {"weight": (d_model, d_model), "bias": (d_model,)}


def _gate_flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    work: int = 2 * sizes["..."] * arguments["d_model"] ** 2
    return work


GATE = BlockType(
    name="gate",
    doc="Highway gate between two values; y = g z + (1 - g) x, g = sigmoid(x W^T + b).",
    source="Srivastava et al. 2015, section 2",
    params=GateParams,
    signature=_gate_signature,
    weights=_gate_weights,
    flops=_gate_flops,
    module=".feed_forward.elementwise_module:Gate",
    example={},
    example_inputs={"x": "f[B T 8]", "z": "f[B T 8]"},
)
