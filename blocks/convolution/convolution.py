"""Convolutions over time: plain, depthwise, depthwise separable and gated."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Annotated, Any

from ...graphs.ir.block_type import Behavior, BlockType, Needs, Signature, port
from ...graphs.ir.state_tensor import StateTensor
from ..params import Count, Flag, Params


class DepthwiseParams(Params):
    """Params of `depthwise_convolution`."""

    kernel: Count
    """Kernel size in positions; odd unless `causal`."""
    dilation: Annotated[Count, Needs("kernel", least=2)] = 1
    """Distance between neighboring kernel positions."""
    causal: Annotated[Flag, Needs("kernel", least=2)] = False
    """Whether an output depends only on its own and earlier positions; otherwise the kernel is
    centered."""
    bias: Flag = True
    """Whether to add a bias."""


class WidthParams(Params):
    """The param of the other convolutions that comes before the others."""

    d_out: Count
    """Width of the output."""


class ConvolutionParams(DepthwiseParams, WidthParams):
    """Params of `separable_convolution` and `gated_convolution`."""


class GroupedParams(ConvolutionParams):
    """Params of `convolution`."""

    groups: Count = 1
    """Number of groups, a divisor of both widths: each group of outputs reads the inputs of its
    group alone."""


def _signature(params: ConvolutionParams, _: frozenset[str]) -> Signature:
    return _of_width(params, str(params.d_out))


def _of_width(params: DepthwiseParams, d_out: str) -> Signature:
    """Return the signature of a convolution whose output has a given width."""
    reads: Behavior = "causal" if params.causal else "full"
    return Signature(
        inputs=(
            port("x", "f[b t d_in]", "input vectors"),
            port("mask", "mask[b t]?", "true at non-padding positions; the others read as zeros"),
        ),
        outputs=(port("y", f"f[b t {d_out}]", "output of the convolution"),),
        behavior={} if params.kernel == 1 else {"t": reads},
    )


def _arguments(params: DepthwiseParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    if not params.causal and params.kernel % 2 == 0:
        msg = f"kernel is {params.kernel}, but it must be odd unless 'causal' is set"
        raise ValueError(msg, f"use {params.kernel + 1}, or set 'causal': true")
    return {**sizes, **params.model_dump()}


def _grouped_arguments(params: GroupedParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    arguments = _arguments(params, sizes)
    if params.groups == 1:
        return {name: value for name, value in arguments.items() if name != "groups"}
    for name in ("d_in", "d_out"):
        if arguments[name] % params.groups:
            msg = f"{name} is {arguments[name]}, which {params.groups} groups do not divide"
            raise ValueError(msg, "use a number of groups that divides both widths")
    return arguments


def _weights(arguments: Mapping[str, Any], copies: int = 1) -> dict[str, tuple[int, ...]]:
    """Return the weight shapes of a convolution with `copies` * d_out output channels."""
    a, width = arguments, copies * arguments["d_out"]
    weight = {"weight": (width, a["d_in"] // a.get("groups", 1), a["kernel"])}
    return weight | ({"bias": (width,)} if a["bias"] else {})


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    a = arguments
    inputs = a["d_in"] // a.get("groups", 1)
    return 2 * sizes["b"] * sizes["t"] * int(inputs * a["d_out"] * a["kernel"])


def _depthwise_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    a = arguments
    weights: dict[str, tuple[int, ...]] = {"weight": (a["d_in"], 1, a["kernel"])}
    return weights | ({"bias": (a["d_in"],)} if a["bias"] else {})


def _depthwise_flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    a = arguments
    return 2 * sizes["b"] * sizes["t"] * int(a["d_in"] * a["kernel"])


def _separable_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    a = arguments
    weights: dict[str, tuple[int, ...]] = {
        "depthwise": (a["d_in"], 1, a["kernel"]),
        "pointwise.weight": (a["d_out"], a["d_in"]),
    }
    return weights | ({"pointwise.bias": (a["d_out"],)} if a["bias"] else {})


def _separable_flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the depthwise convolution and the pointwise linear map."""
    a = arguments
    return 2 * sizes["b"] * sizes["t"] * int(a["d_in"] * (a["kernel"] + a["d_out"]))


def _hops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the layers until both ends are connected; 0 if dilation skips positions."""
    a, farthest = arguments, sizes["t"] - 1
    taps: int = a["kernel"] - 1 if a["causal"] else a["kernel"] // 2
    if not taps or (a["dilation"] > 1 and farthest):
        return 0
    return max(1, ceil(farthest / taps))


def _state(
    arguments: Mapping[str, Any], sizes: Mapping[str, int], _: frozenset[str]
) -> dict[str, StateTensor]:
    """Return the last inputs, as many as the kernel reads before a position."""
    a = arguments
    reach = (a["kernel"] - 1) * a["dilation"]
    before = reach if a["causal"] else reach // 2
    return {"last": StateTensor((sizes["b"], before, a["d_in"]))}


CONVOLUTION = BlockType(
    name="convolution",
    family="convolution",
    mixes="convolution",
    doc="Convolution over time, centered or causal, with an output as long as its input; "
    "sum_k W_k x_{t+k} + b.",
    source="Gehring et al. 2017, section 3.2; van den Oord et al. 2016, section 2.1; groups: "
    "Krizhevsky et al. 2012, section 3.5, and Xie et al. 2017, section 3",
    params=GroupedParams,
    signature=_signature,
    arguments=_grouped_arguments,
    weights=_weights,
    flops=_flops,
    hops=_hops,
    module=".convolution.convolution_module:Convolution",
    steps=True,
    state=_state,
    example={"d_out": 6, "kernel": 3, "causal": True},
    example_inputs={"x": "f[B T 8]"},
)

DEPTHWISE_CONVOLUTION = BlockType(
    name="depthwise_convolution",
    family="convolution",
    mixes="convolution",
    doc="Depthwise convolution over time: each feature has a kernel of its own; "
    "sum_k w_k * x_{t+k} + b.",
    source="Chollet 2017, section 1.2; in attention: So et al. 2021, section 4; in Conformer: "
    "Gulati et al. 2020, section 2.2",
    params=DepthwiseParams,
    signature=lambda params, _: _of_width(params, "d_in"),
    arguments=_arguments,
    weights=_depthwise_weights,
    flops=_depthwise_flops,
    hops=_hops,
    module=".convolution.convolution_module:DepthwiseConvolution",
    steps=True,
    state=_state,
    example={"kernel": 3, "causal": True},
    example_inputs={"x": "f[B T 8]"},
)

SEPARABLE_CONVOLUTION = BlockType(
    name="separable_convolution",
    family="convolution",
    mixes="convolution",
    doc="Depthwise convolution over time, then a pointwise linear map; "
    "W (sum_k v_k * x_{t+k}) + b.",
    source="Chollet 2017, section 1.2; over time: Kaiser et al. 2017, section 2",
    params=ConvolutionParams,
    signature=_signature,
    arguments=_arguments,
    weights=_separable_weights,
    flops=_separable_flops,
    hops=_hops,
    module=".convolution.convolution_module:SeparableConvolution",
    steps=True,
    state=_state,
    example={"d_out": 6, "kernel": 3, "causal": True},
    example_inputs={"x": "f[B T 8]"},
)

GATED_CONVOLUTION = BlockType(
    name="gated_convolution",
    family="convolution",
    mixes="convolution",
    doc="Two convolutions over time, the second gating the first; (sum_k W_k x_{t+k} + b) * "
    "sigmoid(sum_k V_k x_{t+k} + c).",
    source="Dauphin et al. 2017, section 2; Gehring et al. 2017, section 3.2",
    params=ConvolutionParams,
    signature=_signature,
    arguments=_arguments,
    weights=lambda arguments: _weights(arguments, 2),
    flops=lambda arguments, sizes: 2 * _flops(arguments, sizes),
    hops=_hops,
    module=".convolution.convolution_module:GatedConvolution",
    steps=True,
    state=_state,
    example={"d_out": 6, "kernel": 3, "causal": True},
    example_inputs={"x": "f[B T 8]"},
)
