"""Shifts along a time axis, to the right or to the left, with a fill at the open end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import Behavior, BlockType, MismatchError, Port, Signature, port
from ...graphs.ir.state_tensor import StateTensor
from ...graphs.ir.value_type import DTYPES, Axis, ValueType, dtype_of
from ..params import BEGIN, PAD, Flag, Number, Params, no_arguments
from .chosen_axis import AxisName, dimension_of
from .slice import Index


class ShiftParams(Params):
    """Params of `shift`."""

    by: Index = 1
    """Number of positions: to the right, so that a position reads earlier ones, or to the left if
    negative."""
    fill: int | Number | Flag | None = None
    """What the positions at the open end get.  By default, the beginning token for ids shifted to
    the right and padding for ids shifted to the left, -1 (padding) for labels and positions, false
    for masks, and 0 for all other values."""
    axis: AxisName = "time"
    """The time axis: `time`, or an axis of the value, such as `T`."""


def _signature(params: ShiftParams, _: frozenset[str]) -> Signature:
    """Return the ports before the types of the wires are known."""
    inputs = [port("x", "f[...]", "a sequence of any kind")]
    if params.by < 0:
        doc = "true at non-padding positions; the fill takes the place of the others"
        inputs.append(port("mask", "mask[...]?", doc))
    return Signature(
        inputs=tuple(inputs), outputs=(port("y", "f[...]", "the shifted sequence, as long"),)
    )


def _typed(params: ShiftParams, types: Mapping[str, ValueType]) -> Signature:
    type_ = types["x"]
    dimension = dimension_of(params.axis, type_, "x")
    if params.by == 0:
        raise MismatchError("P02", "by is 0, so nothing is shifted", help="use 1, or remove it")
    names: list[Axis] = [f"n_{index}" for index in range(len(type_.axes))]
    names[0], names[dimension] = "b", "t"
    shape = type_.axes[2:]
    steps = dimension == 1 and all(isinstance(axis, int) for axis in shape)
    behavior: Behavior = "causal" if params.by > 0 and steps else "full"
    arguments: dict[str, Any] = {
        "by": params.by,
        "fill": _fill(params, type_),
        "dtype": DTYPES[dtype_of(type_.kind)],
    }
    if shape and steps:
        arguments["shape"] = shape
    if dimension != 1:
        arguments["dimension"] = dimension
    shifted = ValueType(type_.kind, tuple(names), type_.size)
    inputs = [Port("x", shifted)]
    if "mask" in types:
        inputs.append(
            Port("mask", ValueType("mask", tuple(names[max(0, dimension - 1) : dimension + 1])))
        )
    return Signature(
        inputs=tuple(inputs),
        outputs=(Port("y", shifted),),
        behavior={"t": behavior},
        arguments=arguments,
    )


def _fill(params: ShiftParams, type_: ValueType) -> float | int | bool:
    """Return the fill for values of a type.

    Raises:
        MismatchError: it is not a value of that type.
    """
    kind, fill = type_.kind, params.fill
    if kind == "mask":
        if fill not in (None, 0, 1):
            problem = f"the fill of a mask is true or false, not {fill}"
            raise MismatchError("P02", problem, help='write "fill": true, or leave it out')
        return bool(fill)
    if dtype_of(kind) == "float":
        return 0.0 if fill is None else float(fill)
    if fill is None:
        fill = (BEGIN if params.by > 0 else PAD) if kind == "ids" else 0 if kind == "len" else -1
    if not isinstance(fill, int) or isinstance(fill, bool):
        raise MismatchError("P02", f"the fill of {kind} is an integer, not {fill}", help="write 0")
    least = 0 if kind in ("ids", "len") else -1
    if fill < least or (isinstance(type_.size, int) and fill >= type_.size):
        problem = f"fill is {fill}, but {kind} are from {least} to {_last(type_)}"
        raise MismatchError("P02", problem, help=f"use a fill from {least} to {_last(type_)}")
    return fill


def _last(type_: ValueType) -> str:
    return str(type_.size - 1) if isinstance(type_.size, int) else "any length"


def _hops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Return the applications after which each position has reached all; gaps are never closed."""
    return max(1, sizes["t"] - 1) if abs(arguments["by"]) == 1 else 0


SHIFT = BlockType(
    name="shift",
    mixes="",
    doc="Shift a sequence along time, so that a model predicts each position from earlier ones, or "
    "reads later ones; y_t = x_(t - by), with a fill where there is none.",
    source="to the right: Vaswani et al. 2017, section 3.1; token shift: Peng et al. 2023 (RWKV), "
    "section 3.1.1; to the left: Gloeckle et al. 2024, section 2",
    params=ShiftParams,
    signature=_signature,
    typed=_typed,
    arguments=no_arguments,
    hops=_hops,
    steps=True,
    state=lambda arguments, sizes, _: {
        "last": StateTensor(
            (sizes["b"], arguments["by"], *arguments.get("shape", ())), arguments["dtype"]
        )
    },
    carries=lambda _: "",
    counts="shifted",
    module=".axes.shift_module:Shift",
    example={},
    example_inputs={"x": "ids:11[B T]"},
)
