"""Upsampling: every position of a sequence several times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from ...graphs.ir.block_type import BlockType, Port, Signature, never, port
from ...graphs.ir.graph import Part
from ...graphs.ir.value_type import ValueType, added, free_axes
from ..params import Params, no_arguments
from .chosen_axis import AxisName, dimension_of


class UpsampleParams(Params):
    """Params of `upsample`."""

    times: Annotated[int, Field(strict=True, ge=2, le=1_000_000)]
    """How often each position is repeated."""
    axis: AxisName = "time"
    """The axis: `time`, `width`, `layer`, or an axis of the value, such as `T`."""


def _signature(_: UpsampleParams, __: frozenset[str]) -> Signature:
    """Return the ports before the type of the wire is known."""
    return Signature(
        inputs=(port("x", "f[...]", "a value of any kind"),),
        outputs=(port("y", "f[...]", "the same, each position several times in a row"),),
    )


def _typed(params: UpsampleParams, types: Mapping[str, ValueType]) -> Signature:
    type_ = types["x"]
    dimension, names = dimension_of(params.axis, type_, "x"), free_axes(type_.axes)
    longer = added(0, type_.axes[dimension], params.times)
    axes = (*names[:dimension], longer, *names[dimension + 1 :])
    return Signature(
        inputs=(Port("x", ValueType(type_.kind, names, type_.size)),),
        outputs=(Port("y", ValueType(type_.kind, axes, type_.size)),),
        behavior={str(names[dimension]): "causal"},
    )


def _written(part: Part) -> list[str]:
    params: Any = part.params
    dimension = dimension_of(params.axis, part.inputs["x"], "x")
    return [f"return x.repeat_interleave({params.times}, {dimension})"]


UPSAMPLE = BlockType(
    name="upsample",
    mixes="",
    doc="Repeat every position several times; y_t = x_floor(t / times).",
    source="Dai et al. 2020, section 2.3",
    params=UpsampleParams,
    signature=_signature,
    typed=_typed,
    arguments=no_arguments,
    hops=never,
    written=_written,
    example={"times": 2},
    example_inputs={"x": "f[B S 8]"},
)
