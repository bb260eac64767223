"""Slices of an axis, and the split of a width into named parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from ...graphs.ir.block_type import Behavior, BlockType, Signature, never, port
from ...specs.form import Name
from ..params import Count, Params, Several

LARGEST = 1_000_000
Index = Annotated[int, Field(strict=True, ge=-LARGEST, le=LARGEST)]
"""An index from the start, or if negative, from the end."""


class SliceParams(Params):
    """Params of `slice`."""

    axis: Literal["time", "width", "layer"] = "time"
    """Axis that is sliced: `time` is the second axis of three, `width` the last axis, and `layer`
    the first axis of four, along which a repeat stacks the values that it collects."""
    index: Index | None = None
    """Index of a single element, without whose axis the output is: 0 is the first, -1 the last.
    Not with `start`, `stop` and `step`, and not for `width`."""
    start: Several = 0
    """Index of the first element."""
    stop: Index | None = None
    """Index after the last element, counted from the end if negative; null means up to the end."""
    step: Count = 1
    """Distance between elements.  Above 1, without `stop`, the length of the axis must be a
    multiple of it, and `start` smaller."""


def _signature(params: SliceParams, _: frozenset[str]) -> Signature:
    long, short = _lengths(params)
    axis, drops_axis = params.axis, params.index is not None
    before, after = {"time": ("b ", " d_model"), "width": ("... ", "")}.get(
        axis, ("", " b t d_model")
    )
    remaining = f"{before}{after}".replace("  ", " ") if drops_axis else f"{before}{short}{after}"
    reads: dict[str, Behavior] = {"s": "full"} if axis == "time" else {}
    return Signature(
        inputs=(port("x", f"f[{before}{long}{after}]", "the value that is sliced"),),
        outputs=(port("y", f"f[{remaining.strip()}]", "the selected elements, in order"),),
        behavior=reads,
        sized=("s",),
    )


def _lengths(params: SliceParams) -> tuple[str, str]:
    """Return the lengths of the axis before and after, as axis expressions of `s`."""
    start, stop, step = params.start, params.stop, params.step
    if params.index is not None:
        return "s", ""
    if stop is not None and stop > 0:
        return "s", str(max(1, -(-(stop - start) // step)))
    if step > 1:
        return f"{step}*s", "s"
    dropped = start - (stop or 0)
    return "s", f"s-{dropped}" if dropped else "s"


def _arguments(params: SliceParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    start, stop, step = params.start, params.stop, params.step
    if params.index is not None:
        if params.axis == "width":
            msg = "'index' removes the axis, but 'width' must stay"
            raise ValueError(msg, "use 'start' and 'stop' instead")
        if start or stop is not None or step > 1:
            msg = "'index' excludes 'start', 'stop' and 'step'"
            raise ValueError(msg, "remove 'index' or the others")
    elif stop is not None and (stop == 0 or 0 < stop <= start):
        msg = f"start is {start} and stop is {stop}, so nothing is selected"
        raise ValueError(msg, f"use a stop above {start}")
    elif step > 1 and (stop is None or stop < 0):
        if stop is not None:
            msg = f"stop is {stop}, counted from the end, with a step of {step}"
            raise ValueError(msg, "remove 'stop', or count it from the start")
        if start >= step:
            msg = f"start is {start}, but without 'stop' it must be below the step of {step}"
            raise ValueError(msg, f"use a start of 0 to {step - 1}, or add a 'stop'")
    if params.axis == "width" or "s" in sizes:
        _refuse_outside(params, sizes["s"])
    return params.model_dump()


def _refuse_outside(params: SliceParams, length: int) -> None:
    """Raise if a slice of an axis selects nothing, or elements that do not exist."""
    index, stop = params.index, params.stop
    if index is not None:
        if not -length <= index < length:
            msg = f"the axis has {length} elements, and none with index {index}"
            raise ValueError(msg, f"use an 'index' from {-length} to {length - 1}")
        return
    if params.step > 1 and stop is None:
        return  # the length is `step` times a size of 1 or more
    last = length if stop is None else stop if stop > 0 else length + stop
    if last > length or params.start >= last:
        what = "width is" if params.axis == "width" else "length of the axis is"
        msg = f"the {what} {length}, so it has no elements {params.start} to {last - 1}"
        raise ValueError(msg, f"use 'start' and 'stop' from 0 to {length}")


SLICE = BlockType(
    name="slice",
    mixes="",
    doc="Select elements of an axis: positions, features or layers; y = x[start:stop:step].",
    source="first and last: Devlin et al. 2019, section 3.2; Radford et al. 2018, section 3.2; "
    "pieces of a width: Gulrajani et al. 2017; every k-th position: Dai et al. 2020, section 2",
    params=SliceParams,
    signature=_signature,
    arguments=_arguments,
    hops=never,
    module=".pooling.slice_module:Slice",
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
    return {"sizes": parts}


SPLIT = BlockType(
    name="split",
    mixes="",
    doc="Split each vector into parts with names; [y_1; y_2; ...] = x.",
    source="Dauphin et al. 2017, section 2; Chowdhery et al. 2022, section 2",
    params=SplitParams,
    signature=_split_signature,
    arguments=_split_arguments,
    module=".pooling.slice_module:Split",
    example={"names": ["y", "gate"], "sizes": [5, 3]},
    example_inputs={"x": "f[B T 8]"},
)
