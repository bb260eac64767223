"""Norm: keep the numbers of each vector in range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..graphs.signature import BlockType, Signature, port
from .fields import Epsilon, Params

LAYER_NORM_EPS = 1e-6
"""Added to the variance, as in the released code of the paper."""


class LayerNormParams(Params):
    """Params of `layer_norm`."""

    eps: Epsilon = LAYER_NORM_EPS
    """Added to the variance."""


def _signature(_: LayerNormParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("x", "f[... d_model]", "vectors"),),
        outputs=(port("y", "f[... d_model]", "each with mean 0 and variance 1, then scaled"),),
    )


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {"weight": (arguments["d_model"],), "bias": (arguments["d_model"],)}


LAYER_NORM = BlockType(
    name="layer_norm",
    doc="Normalise each vector; weight * (x - mean) / sqrt(variance + eps) + bias.",
    source="Ba et al. 2016, section 3",
    params=LayerNormParams,
    signature=_signature,
    weights=_weights,
    module="norm:LayerNorm",
    example={},
    example_inputs={"x": "f[B T 8]"},
)
