"""Layer normalization and RMS normalization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Epsilon, Flag, Params

LAYER_NORM_EPS = 1e-6
"""Default value added to the variance, as in the released code of the paper."""


class LayerNormParams(Params):
    """Params of `layer_norm`."""

    eps: Epsilon = LAYER_NORM_EPS
    """Added to the variance."""
    bias: Flag = True
    """Whether the vectors are shifted by a learned bias."""


class RmsNormParams(Params):
    """Params of `rms_norm`."""

    eps: Epsilon = LAYER_NORM_EPS
    """Added to the mean square."""


def _signature(_: LayerNormParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("x", "f[... d_model]", "input vectors"),),
        outputs=(port("y", "f[... d_model]", "normalized, scaled and shifted vectors"),),
        scale="normalized",
    )


def _rms_signature(_: RmsNormParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("x", "f[... d_model]", "input vectors"),),
        outputs=(port("y", "f[... d_model]", "normalized and scaled vectors"),),
        scale="normalized",
    )


def _rms_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {"weight": (arguments["d_model"],)}


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    shape = (arguments["d_model"],)
    return {"weight": shape, "bias": shape} if arguments.get("bias", True) else {"weight": shape}


LAYER_NORM = BlockType(
    name="layer_norm",
    family="norm",
    role="layer_norm",
    doc="Layer normalization of each vector; weight * (x - mean) / sqrt(variance + eps) + bias.",
    source="Ba et al. 2016, section 3",
    params=LayerNormParams,
    signature=_signature,
    weights=_weights,
    module=".residual.norm_module:LayerNorm",
    example={},
    example_inputs={"x": "f[B T 8]"},
)

RMS_NORM = BlockType(
    name="rms_norm",
    title="RMS norm",
    family="norm",
    role="rms_norm",
    doc="RMS normalization of each vector; weight * x / sqrt(mean(x^2) + eps).",
    source="Zhang and Sennrich 2019, section 4",
    params=RmsNormParams,
    signature=_rms_signature,
    weights=_rms_weights,
    module=".residual.norm_module:RMSNorm",
    example={},
    example_inputs={"x": "f[B T 8]"},
)
