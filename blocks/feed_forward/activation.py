"""Activation functions, chosen by a param."""

from __future__ import annotations

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Activation, Params, only_params


class ActivationParams(Params):
    """Params of `activation`."""

    activation: Activation = "relu"
    """Activation function; `gelu_tanh` is the tanh approximation of gelu, `quick_gelu` is
    x * sigmoid(1.702 x), `squared_relu` is max(0, x)^2."""


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
    arguments=only_params,
    module=".feed_forward.activation_module:Activation",
    example={"activation": "gelu"},
    example_inputs={"x": "f[B T 8]"},
)
