"""Convolution: every position reads its neighbours with the same weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..graphs.signature import Behavior, BlockType, Signature, port
from .fields import Count, Flag, Params


class ConvolutionParams(Params):
    """Params of `convolution`."""

    d_out: Count
    """Width of the result."""
    kernel: Count
    """Positions that one result reads."""
    dilation: Count = 1
    """Distance between neighbouring positions that are read."""
    causal: Flag = False
    """Whether a position reads none later than itself; otherwise those on both sides."""
    bias: Flag = True
    """Whether a bias is added."""


def _signature(params: ConvolutionParams, _: frozenset[str]) -> Signature:
    reads: Behavior = "causal" if params.causal else "full"
    return Signature(
        inputs=(port("x", "f[b t d_in]", "vectors"),),
        outputs=(port("y", f"f[b t {params.d_out}]", "what each neighbourhood gave"),),
        behavior={} if params.kernel == 1 else {"t": reads},
    )


def _arguments(params: ConvolutionParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    if not params.causal and params.kernel % 2 == 0:
        msg = f"a kernel of {params.kernel} has no middle"
        raise ValueError(msg, f"use {params.kernel + 1}, or 'causal': true")
    return {**sizes, **params.model_dump()}


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    a = arguments
    weight = {"weight": (a["d_out"], a["d_in"], a["kernel"])}
    return weight | ({"bias": (a["d_out"],)} if a["bias"] else {})


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    a = arguments
    return 2 * sizes["b"] * sizes["t"] * int(a["d_in"] * a["d_out"] * a["kernel"])


CONVOLUTION = BlockType(
    name="convolution",
    doc="Convolution over time, centred or causal, as long as its input; sum_k W_k x_{t+k} + b.",
    source="Gehring et al. 2017, section 3.2; van den Oord et al. 2016, section 2.1",
    params=ConvolutionParams,
    signature=_signature,
    arguments=_arguments,
    weights=_weights,
    flops=_flops,
    module="convolution:Convolution",
    steps=True,
    example={"d_out": 6, "kernel": 3, "causal": True},
    example_inputs={"x": "f[B T 8]"},
)
