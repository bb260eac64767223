"""Slices of an axis, and the split of a width into named parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from ...graphs.ir.block_type import Behavior, BlockType, MismatchError, Port, Signature, never, port
from ...graphs.ir.graph import Part
from ...graphs.ir.lengths import every
from ...graphs.ir.value_type import (
    Axis,
    Terms,
    ValueType,
    added,
    axis_of,
    free_axes,
    names_of,
    terms_of,
)
from ...specs.form import Name
from ..params import Count, Params, no_arguments
from .chosen_axis import AxisName, dimension_of, has_width

LARGEST = 1_000_000
Index = Annotated[int, Field(strict=True, ge=-LARGEST, le=LARGEST)]
"""An index from the start, or if negative, from the end."""


class SliceParams(Params):
    """Params of `slice`."""

    axis: AxisName = "time"
    """Axis that is sliced: `time`, `width`, `layer`, or an axis of the value, such as `T`."""
    index: Index | None = None
    """Index of a single element, without whose axis the output is: 0 is the first, -1 the last.
    Not with `start`, `stop` and `step`."""
    start: Index = 0
    """Index of the first element, counted from the end if negative."""
    stop: Index | None = None
    """Index after the last element, counted from the end if negative; null means up to the end."""
    step: Count = 1
    """Distance between elements."""


def _slice_signature(_: SliceParams, __: frozenset[str]) -> Signature:
    """Return the ports before the types of the wires are known."""
    doc = "a value whose positions come first in `x`: the selection begins after them"
    return Signature(
        inputs=(port("x", "f[...]", "a value of any kind"), port("before", "f[...]?", doc)),
        outputs=(port("y", "f[...]", "the selected elements, in order"),),
    )


def _slice_typed(params: SliceParams, types: Mapping[str, ValueType]) -> Signature:
    type_ = types["x"]
    dimension = dimension_of(params.axis, type_, "x")
    axis, names = type_.axes[dimension], free_axes(type_.axes)
    remaining: tuple[Axis, ...]
    if "before" in types:
        remaining = (_remaining(params, axis, types["before"]),)
    elif params.index is None:
        selected = _selected(params, axis)
        remaining = (names[dimension] if selected == axis else selected,)
    else:
        _refuse_index(params, axis)
        remaining = ()
    before: tuple[Axis, ...] = names[:dimension]
    after = names[dimension + 1 :]
    pointwise = dimension == len(names) - 1 and has_width(type_)
    if pointwise:
        before = ("...",)
    drops = "before" in types or _drops_prefix(params, axis)
    behavior: Behavior = "causal" if drops else "full"
    along = {} if pointwise or isinstance(axis, int) else {str(names[dimension]): behavior}
    inputs = [Port("x", ValueType(type_.kind, (*before, names[dimension], *after), type_.size))]
    if "before" in types:
        other = types["before"]
        others = tuple(f"m_{index}" for index in range(len(other.axes)))
        inputs.append(Port("before", ValueType(other.kind, others, other.size)))
    return Signature(
        inputs=tuple(inputs),
        outputs=(Port("y", ValueType(type_.kind, (*before, *remaining, *after), type_.size)),),
        behavior=along,
        passes_on={"y": "x"} if drops else {},
        sized=(str(names[dimension]),),
    )


def _remaining(params: SliceParams, axis: Axis, before: ValueType) -> Axis:
    """Return the length of what follows the positions of another value.

    Raises:
        MismatchError: there is also another selection, or `x` does not begin with them.
    """
    if params.index is not None or params.start or params.stop is not None or params.step > 1:
        problem = (
            "'before' says where the slice begins, and so do 'index', 'start', 'stop' or 'step'"
        )
        raise MismatchError("P02", problem, help="remove these params, or the wire of 'before'")
    first = before.axes[dimension_of(params.axis, before, "before")]
    remaining = added(axis, first, -1)
    length = terms_of(remaining)
    if not length or any(factor < 0 for name, factor in length.items() if name or len(length) == 1):
        problem = f"the axis of 'x' is {axis}, which does not begin with the {first} of 'before'"
        help_ = "wire the value that concatenate@1 put in front"
        raise MismatchError("T03", problem, port="before", help=help_)
    return remaining


def _drops_prefix(params: SliceParams, axis: Axis) -> bool:
    """Return whether a slice drops positions that precede those of all names in an axis."""
    every = params.index is None and params.stop is None and params.step == 1
    return every and 0 <= params.start <= terms_of(axis).get("", 0) and bool(names_of(axis))


def _selected(params: SliceParams, axis: Axis) -> Axis:
    """Return the length of a slice.

    Raises:
        MismatchError: it selects nothing or what does not exist, or its length is not a
            combination of axes.
    """
    size = terms_of(axis)
    low = _counted_from(params.start, size)
    high = size if params.stop is None else _counted_from(params.stop, size)
    length = {name: high.get(name, 0) - low.get(name, 0) for name in {*high, *low, ""}}
    factors = {name: factor for name, factor in length.items() if name and factor}
    text = f"{params.start or ''}:{'' if params.stop is None else params.stop}"
    _refuse_outside(params, axis, low, high, nothing=not factors and length[""] < 1)
    if any(factor < 0 for factor in factors.values()):
        problem = f"the length of {text} depends on how long {axis} is, and becomes 0"
        help_ = "count 'start' and 'stop' from the same end"
        raise MismatchError("T03", problem, help=help_)
    return every(params.step, axis_of(length), axis, "step", ", or set a 'stop'")


def _counted_from(index: int, size: Terms) -> dict[str, int]:
    """Return an index as a combination of axes, from the start."""
    if index >= 0:
        return {"": index}
    return {**size, "": size.get("", 0) + index}


def _refuse_outside(
    params: SliceParams, axis: Axis, low: Terms, high: Terms, *, nothing: bool
) -> None:
    start, stop = params.start, params.stop
    if isinstance(axis, int):
        first, last = low.get("", 0), high.get("", 0)
        if first < 0 or last > axis or first >= last:
            problem = f"the axis has {axis} elements, and none from {first} to {last - 1}"
            help_ = f"use 'start' and 'stop' from {-axis} to {axis}"
            raise MismatchError("P02", problem, help=help_)
    elif nothing:
        problem = f"start is {start} and stop is {stop}, so nothing is selected"
        raise MismatchError("P02", problem, help=f"use a stop above {start}")


def _refuse_index(params: SliceParams, axis: Axis) -> None:
    """Refuse an index with other params, or of an element that does not exist."""
    index = params.index or 0
    if params.start or params.stop is not None or params.step > 1:
        problem, help_ = "'index' excludes 'start', 'stop' and 'step'", "remove 'index' or them"
    elif isinstance(axis, int) and not -axis <= index < axis:
        problem = f"the axis has {axis} elements, and none with index {index}"
        help_ = f"use an 'index' from {-axis} to {axis - 1}"
    else:
        return
    raise MismatchError("P02", problem, help=help_)


def _slice_written(part: Part) -> list[str]:
    """Return the lines of `forward`: an index, after a length that is not known is compared."""
    params: Any = part.params
    type_ = part.inputs["x"]
    dimension = dimension_of(params.axis, type_, "x")
    if "before" in part.inputs:
        other = dimension_of(params.axis, part.inputs["before"], "before")
        return [f"return x[{', '.join([':'] * dimension)}, before.size({other}) :]"]
    axis, least = type_.axes[dimension], _least(params)
    lines = []
    if not isinstance(axis, int) and least > 1:
        message = f"f'there are {{x.size({dimension})}} positions, but at least {least} are needed'"
        lines = [f"if x.size({dimension}) < {least}:", f"    raise ValueError({message})"]
    if params.index is not None:
        selection = str(params.index)
    else:
        stop = "" if params.stop is None else str(params.stop)
        selection = f"{params.start or ''}:{stop}" + (f":{params.step}" if params.step > 1 else "")
    pointwise = dimension == len(type_.axes) - 1 and has_width(type_)
    before = ["..."] if pointwise else [":"] * dimension
    return [*lines, f"return x[{', '.join([*before, selection])}]"]


def _least(params: SliceParams) -> int:
    """Return the number of elements that a slice needs."""
    if params.index is not None:
        return params.index + 1 if params.index >= 0 else -params.index
    start, stop = params.start, params.stop
    if start < 0:
        return -start
    return stop if stop is not None and stop > 0 else start + 1 - (stop or 0)


SLICE = BlockType(
    name="slice",
    mixes="",
    doc="Select elements of an axis: positions, features or layers; y = x[start:stop:step].",
    source="first and last: Devlin et al. 2019, section 3.2; Radford et al. 2018, section 3.2; "
    "pieces of a width: Gulrajani et al. 2017; every k-th position: Dai et al. 2020, section 2",
    params=SliceParams,
    signature=_slice_signature,
    typed=_slice_typed,
    arguments=no_arguments,
    hops=never,
    written=_slice_written,
    example={"axis": "width", "start": 2, "stop": 6},
    example_inputs={"x": "f[B T 8]"},
)


class SplitParams(Params):
    """Params of `split`."""

    names: Annotated[tuple[Name, ...], Field(min_length=2, max_length=64)]
    """Names of the outputs."""
    sizes: Annotated[tuple[Count, ...], Field(min_length=2, max_length=64)]
    """Width of each output, in the same order; their sum is the width of `x`."""


def _split_signature(params: SplitParams, _: frozenset[str]) -> Signature:
    parts = dict(zip(params.names, params.sizes, strict=False))
    return Signature(
        inputs=(port("x", "f[... d_model]", "vectors"),),
        outputs=tuple(
            port(name, f"f[... {size}]", "its part of each vector") for name, size in parts.items()
        ),
    )


def _split_arguments(params: SplitParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    names, parts, width = params.names, params.sizes, sizes["d_model"]
    if len(names) != len(parts) or len({*names}) < len(names):
        msg = f"there are {len({*names})} different names and {len(parts)} sizes"
        raise ValueError(msg, "give each output a name of its own and a size")
    if sum(parts) != width:
        msg = f"the sizes add up to {sum(parts)}, but the width is {width}"
        remainder = width - sum(parts[:-1])
        fits = f"use {remainder} for the last size" if remainder > 0 else "use smaller sizes"
        raise ValueError(msg, fits)
    return {}


SPLIT = BlockType(
    name="split",
    mixes="",
    doc="Split each vector into parts with names; [y_1; y_2; ...] = x.",
    source="Dauphin et al. 2017, section 2; Chowdhery et al. 2022, section 2",
    params=SplitParams,
    signature=_split_signature,
    arguments=_split_arguments,
    written=lambda part: [f"return x.split({[*part.params.sizes]}, -1)"],
    example={"names": ["y", "gate"], "sizes": [5, 3]},
    example_inputs={"x": "f[B T 8]"},
)
