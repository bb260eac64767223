"""Adapter: a bottleneck with a residual path, for fine-tuning few parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Activation, Count, Params


class AdapterParams(Params):
    """Params of `adapter`."""

    d_hidden: Count
    """Width of the bottleneck."""
    activation: Activation = "gelu"
    """Activation of the bottleneck."""


def _signature(_: AdapterParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("x", "f[... d_model]", "input vectors"),),
        outputs=(port("y", "f[... d_model]", "adapted vectors; initially almost equal to `x`"),),
    )


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    d_model, d_hidden = arguments["d_model"], arguments["d_hidden"]
    return {
        "inner.weight": (d_hidden, d_model),
        "inner.bias": (d_hidden,),
        "outer.weight": (d_model, d_hidden),
        "outer.bias": (d_model,),
    }


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count two linear maps."""
    work: int = 4 * sizes["..."] * arguments["d_model"] * arguments["d_hidden"]
    return work


ADAPTER = BlockType(
    name="adapter",
    family="feed_forward",
    mixes="",
    doc="Bottleneck adapter with a residual path, initially almost the identity; "
    "x + gelu(x W1 + b1) W2 + b2.",
    source="Houlsby et al. 2019, section 2.1",
    params=AdapterParams,
    signature=_signature,
    weights=_weights,
    flops=_flops,
    module=".feed_forward.adapter_module:Adapter",
    example={"d_hidden": 3},
    example_inputs={"x": "f[B T 8]"},
)
