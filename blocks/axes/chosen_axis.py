"""The axis of a value that a param names, and names for all axes of ports."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ...graphs.ir.block_type import MismatchError
from ...graphs.ir.value_type import Axis, AxisError, ValueType, axis_of, names_of, terms_of

AxisName = (
    Literal["time", "width", "layer"]
    | Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_+*-]+$")]
)
"""`time`, the axis after that of the batch; `width`, the last axis, of features; `layer`, the first
axis, along which a repeat stacks the values that it collects; or an axis as its type has it, such
as `T` or `2*S`."""


def dimension_of(name: str, type_: ValueType, port: str) -> int:
    """Return the index of the axis of a value that a param names.

    Args:
        name: as `AxisName`.
        type_: type of the value.
        port: the port that reads it.

    Raises:
        MismatchError: the value has no such axis, or several.
    """
    axes, last = type_.axes, len(type_.axes) - 1
    if name == "layer" and axes:
        return 0
    if name == "width" and has_width(type_):
        return last
    if name == "time":
        first = next((index for index, axis in enumerate(axes) if names_of(axis)), last)
        if first + 1 < last or (first + 1 == last and not has_width(type_)):
            return first + 1
    places = [index for index, axis in enumerate(axes) if axis == _normal(name)]
    if len(places) == 1:
        return places[0]
    what = {"time": "time axis after that of the batch", "width": "width"}.get(name, f"axis {name}")
    problem = f"'{port}' is {type_}, which has {'no' if not places else 'more than one'} {what}"
    choices = [f"'{axis}'" for axis in axes if axes.count(axis) == 1]
    help_ = f"set 'axis' to one of its axes: {', '.join(choices)}" if choices else ""
    raise MismatchError("T04", problem, port=port, help=help_ or "wire a value with that axis")


def _normal(name: str) -> Axis:
    """Return an axis as types write it, such as `S+T` for `T+S`."""
    try:
        return axis_of(terms_of(name))
    except AxisError:
        return name


def has_width(type_: ValueType) -> bool:
    """Return whether the last axis of a value is one of features."""
    numbers = type_.kind in ("f", "logits", "logp", "score")
    return numbers and bool(type_.axes) and isinstance(type_.axes[-1], int)
