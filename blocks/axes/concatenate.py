"""Concatenation of values of one kind along an axis."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, field_validator

from ...graphs.ir.block_type import Behavior, BlockType, MismatchError, Port, Signature, never, port
from ...graphs.ir.graph import Part
from ...graphs.ir.python_names import argument
from ...graphs.ir.value_type import Axis, ValueType, added, free_axes
from ...specs.form import Name
from ..params import Params, no_arguments
from .chosen_axis import AxisName, dimension_of, has_width

WORDS = frozenset({"time", "width", "layer"})


class ConcatenateParams(Params):
    """Params of `concatenate`."""

    names: Annotated[tuple[Name, ...], Field(min_length=2, max_length=64)] = ("x", "z")
    """Names of the ports, in the order of the result."""
    axis: AxisName = "width"
    """The axis along which the values are joined: `width`, `time`, `layer`, or an axis that one of
    them has, such as `S`; all other axes are equal."""

    @field_validator("names")
    @classmethod
    def _differ(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse two ports of one name."""
        if len({*names}) < len(names):
            msg = "a name occurs twice; give each port a name of its own"
            raise ValueError(msg)
        return names


def _signature(params: ConcatenateParams, _: frozenset[str]) -> Signature:
    """Return the ports before the types of the wires are known."""
    return Signature(
        inputs=tuple(port(name, "f[...]", "a value of any kind") for name in params.names),
        outputs=(port("y", "f[...]", "the values, one after the other"),),
    )


def _typed(params: ConcatenateParams, types: Mapping[str, ValueType]) -> Signature:
    first = _reference(params, types)
    type_, dimension = types[first], _dimension(params, types, first)
    _refuse_different(params, types, first, dimension)
    lengths = [types[name].axes[dimension - _lacks(types, name, first)] for name in params.names]
    sizes = [types[name].size for name in params.names]
    numbers = [size for size in sizes if isinstance(size, int)]
    size: Axis | None = max(numbers) if len(numbers) == len(sizes) else sizes[0]
    features = dimension == len(type_.axes) - 1 and has_width(type_)
    pointwise = features and not any(_lacks(types, name, first) for name in params.names)
    before: tuple[Axis, ...] = ("...",) if pointwise else free_axes(type_.axes)[:dimension]
    after = free_axes(type_.axes)[dimension + 1 :]
    inputs, behavior = [], dict[str, Behavior]()
    for index, (name, length) in enumerate(zip(params.names, lengths, strict=True)):
        letter = f"s_{index}"
        lead = before[_lacks(types, name, first) :]
        inputs.append(Port(name, ValueType(type_.kind, (*lead, letter, *after), types[name].size)))
        if not pointwise and not isinstance(length, int):
            behavior[letter] = "causal" if name == params.names[-1] else "full"
    output = ValueType(type_.kind, (*before, functools.reduce(added, lengths), *after), size)
    return Signature(
        inputs=tuple(inputs),
        outputs=(Port("y", output),),
        behavior=behavior,
        passes_on={"y": params.names[-1]} if behavior else {},
    )


def _reference(params: ConcatenateParams, types: Mapping[str, ValueType]) -> str:
    """Return the first port whose value has all axes."""
    return max(params.names, key=lambda name: len(types[name].axes))


def _lacks(types: Mapping[str, ValueType], name: str, first: str) -> int:
    """Return the number of first axes that a value lacks: it is the same in every row."""
    return len(types[first].axes) - len(types[name].axes)


def _dimension(params: ConcatenateParams, types: Mapping[str, ValueType], first: str) -> int:
    """Return the index of the joined axis in the value with all axes.

    Raises:
        MismatchError: no value has it.
    """
    errors = []
    for name in [first] if params.axis in WORDS else [first, *params.names]:
        try:
            return dimension_of(params.axis, types[name], name) + _lacks(types, name, first)
        except MismatchError as error:
            errors.append(error)
    raise errors[0]


def _refuse_different(
    params: ConcatenateParams, types: Mapping[str, ValueType], first: str, dimension: int
) -> None:
    """Refuse values of other kinds, or whose other axes differ."""
    type_ = types[first]
    others = [axis for index, axis in enumerate(type_.axes) if index != dimension]
    for name in params.names:
        other, lacking = types[name], _lacks(types, name, first)
        if other.kind != type_.kind:
            problem = f"'{name}' is of kind {other.kind}, but '{first}' of kind {type_.kind}"
            raise MismatchError("T02", problem, port=name, help="wire values of one kind")
        if lacking > min(1, dimension):
            problem = f"'{name}' has {len(other.axes)} axes, but '{first}' has {len(type_.axes)}"
            raise MismatchError("T04", problem, port=name, help="wire values with the same axes")
        joined = dimension - lacking
        axes = [axis for index, axis in enumerate(other.axes) if index != joined]
        for axis, expected in zip(axes, others[lacking:], strict=True):
            if axis != expected:
                problem = f"'{name}' has {axis} where '{first}' has {expected}"
                along = type_.axes[dimension]
                help_ = f"only {along} may differ along '{params.axis}'; set 'axis' to join another"
                raise MismatchError("T03", problem, port=name, help=help_)


def _written(part: Part) -> list[str]:
    """Return the lines of `forward`: a value without rows is repeated for each of them."""
    params: Any = part.params
    first = _reference(params, part.inputs)
    type_ = part.inputs[first]
    dimension = _dimension(params, part.inputs, first)
    index = -1 if dimension == len(type_.axes) - 1 else dimension
    values = []
    for name in params.names:
        rows = ", ".join([f"{argument(first)}.size(0)", *["-1"] * len(part.inputs[name].axes)])
        lacks = _lacks(part.inputs, name, first)
        values.append(f"{argument(name)}.expand({rows})" if lacks else argument(name))
    return [f"return torch.cat([{', '.join(values)}], {index})"]


CONCATENATE = BlockType(
    name="concatenate",
    mixes="",
    doc="Concatenate values along an axis: features, or positions; y = [x; z].",
    source="features: Bahdanau et al. 2015, section 3.2; positions: Raffel et al. 2020, "
    "section 3.2.1",
    params=ConcatenateParams,
    signature=_signature,
    typed=_typed,
    arguments=no_arguments,
    hops=never,
    written=_written,
    example={},
    example_inputs={"x": "f[B T 8]", "z": "f[B T 8]"},
)
