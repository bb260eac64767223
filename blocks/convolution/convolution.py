"""Convolutions over time: plain, depthwise, depthwise separable and gated."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Annotated, Any, Literal

from ...graphs.ir.block_type import (
    Behavior,
    BlockType,
    MismatchError,
    Needs,
    Port,
    Signature,
    port,
)
from ...graphs.ir.lengths import every
from ...graphs.ir.state_tensor import StateTensor
from ...graphs.ir.value_type import Axis, ValueType, added
from ..params import Count, Flag, Params, Several

DIMENSIONS = 3
"""Axes of a value: batch, time and width."""
MASK = "true where the kernel reads nothing but positions that count, and zeros around all of them"
"""Description of the mask of a shorter output."""


class DepthwiseParams(Params):
    """Params of `depthwise_convolution`."""

    kernel: Count
    """Kernel size in positions."""
    dilation: Annotated[Count, Needs("kernel", least=2)] = 1
    """Distance between neighboring kernel positions."""
    stride: Count = 1
    """Distance between the positions that have an output, beginning with the first."""
    causal: Annotated[Flag, Needs("kernel", least=2)] = False
    """Whether an output depends only on its own and earlier positions."""
    padding: Annotated[
        Literal["same", "valid"] | tuple[Several, Several],
        Needs("causal", (False,)),
        Needs("kernel", least=2),
    ] = "same"
    """Zeros around a sequence unless `causal`: `same` centers the kernel, where an even one reads
    one more position after its center than before it, as in torch; `valid` adds none, so that there
    are outputs only where the kernel fits; or the numbers of zeros before and after."""
    bias: Flag = True
    """Whether to add a bias."""

    @property
    def reach(self) -> int:
        """Distance from the first to the last position of the kernel."""
        return (self.kernel - 1) * self.dilation

    @property
    def unread(self) -> int:
        """Number of positions that have no output, before the stride."""
        if self.causal or self.padding == "same":
            return 0
        return self.reach if self.padding == "valid" else max(0, self.reach - sum(self.padding))

    @property
    def shortens(self) -> bool:
        """Whether the output may be shorter than the input."""
        return self.stride > 1 or self.unread > 0


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


def _signature(params: DepthwiseParams, wired: frozenset[str], length: Axis = "t") -> Signature:
    """Return the ports of a convolution whose output has a length."""
    width = getattr(params, "d_out", "d_in")
    outputs = [Port("y", ValueType("f", ("b", length, width)), doc="output of the convolution")]
    if params.shortens and "mask" in wired:
        outputs.append(Port("mask", ValueType("mask", ("b", length)), doc=MASK))
    behavior: Behavior = "causal" if params.causal and params.stride == 1 else "full"
    return Signature(
        inputs=(
            port("x", "f[b t d_in]", "input vectors"),
            port("mask", "mask[b t]?", "true at non-padding positions; the others read as zeros"),
        ),
        outputs=tuple(outputs),
        behavior={} if params.kernel == 1 and not params.shortens else {"t": behavior},
    )


def _typed(params: DepthwiseParams, types: Mapping[str, ValueType]) -> Signature:
    """Return the ports with the length of the output: one for every stride that the kernel fits.

    Raises:
        MismatchError: the length is no combination of axes, or the kernel fits nowhere.
    """
    axes = types["x"].axes
    length: Axis = "t"
    if params.shortens and len(axes) == DIMENSIONS:
        axis = axes[1]
        length = every(params.stride, added(axis, params.unread, -1), axis, "stride")
        if isinstance(length, int) and length < 1:
            problem = f"a kernel over {params.reach + 1} positions never fits into {axis}"
            help_ = "use a smaller 'kernel' or 'dilation', or the padding 'same'"
            raise MismatchError("T03", problem, port="x", help=help_)
    return _signature(params, frozenset(types), length)


def _arguments(params: DepthwiseParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor arguments, without those that a convolution mostly leaves out.

    Raises:
        ValueError: there is more padding than the kernel reads.
    """
    zeros = 0 if isinstance(params.padding, str) else sum(params.padding)
    if zeros > params.reach:
        msg = f"padding adds {zeros} zeros, of which at most {params.reach} are read"
        raise ValueError(msg, f"use at most {params.reach} in total")
    arguments = {**sizes, **params.model_dump(exclude={"padding", "stride"})}
    if params.stride > 1:
        arguments["stride"] = params.stride
    if params.padding != "same" and not params.causal:
        arguments["padding"] = (0, 0) if params.padding == "valid" else params.padding
    return arguments


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


def _around(arguments: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many positions the kernel reads before and after that of its output."""
    a = arguments
    reach = (a["kernel"] - 1) * a["dilation"]
    before = reach if a["causal"] else a.get("padding", (reach // 2, 0))[0]
    return before, reach - before


def _unread(arguments: Mapping[str, Any]) -> int:
    """Return the number of positions that have no output, before the stride."""
    zeros: tuple[int, int] = arguments.get("padding", _around(arguments))
    return sum(_around(arguments)) - sum(zeros)


def _outputs(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Return the number of output vectors."""
    stride = arguments.get("stride", 1)
    number: int = sizes["b"] * -(-(sizes["t"] - _unread(arguments)) // stride)
    return number


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    a = arguments
    inputs = a["d_in"] // a.get("groups", 1)
    return 2 * _outputs(a, sizes) * int(inputs * a["d_out"] * a["kernel"])


def _depthwise_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    a = arguments
    weights: dict[str, tuple[int, ...]] = {"weight": (a["d_in"], 1, a["kernel"])}
    return weights | ({"bias": (a["d_in"],)} if a["bias"] else {})


def _depthwise_flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    a = arguments
    return 2 * _outputs(a, sizes) * int(a["d_in"] * a["kernel"])


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
    return 2 * _outputs(a, sizes) * int(a["d_in"] * (a["kernel"] + a["d_out"]))


def _hops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the layers until both ends are connected; 0 if positions are skipped or lost."""
    a, farthest = arguments, sizes["t"] - 1
    before, after = _around(a)
    taps = min(before, after) or max(before, after)
    shortens = "stride" in a or _unread(a)
    if not taps or shortens or (a["dilation"] > 1 and farthest):
        return 0
    return max(1, ceil(farthest / taps))


def _state(
    arguments: Mapping[str, Any], sizes: Mapping[str, int], _: frozenset[str]
) -> dict[str, StateTensor]:
    """Return the last inputs, as many as the kernel reads before a position."""
    return {"last": StateTensor((sizes["b"], _around(arguments)[0], arguments["d_in"]))}


CONVOLUTION = BlockType(
    name="convolution",
    family="convolution",
    mixes="convolution",
    doc="Convolution over time, centered, causal or unpadded; sum_k W_k x_{stride t+k} + b.",
    source="Gehring et al. 2017, section 3.2; van den Oord et al. 2016, section 2.1; stride: "
    "Radford et al. 2023, section 2.2; without padding: Baevski et al. 2020, section 2; groups: "
    "Krizhevsky et al. 2012, section 3.5, and Xie et al. 2017, section 3",
    params=GroupedParams,
    signature=_signature,
    typed=_typed,
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
    signature=_signature,
    typed=_typed,
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
    typed=_typed,
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
    typed=_typed,
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
