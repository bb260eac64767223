"""Reductions over named axes: sums, means, extremes and log-sums of exponentials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import model_validator

from ...graphs.ir.block_type import BlockType, MismatchError, Port, Signature, port
from ...graphs.ir.graph import Part
from ...graphs.ir.value_type import ValueType
from ..params import Params, no_arguments
from .masking import (
    MASK,
    expanded,
    mask_port,
    names_of_mask,
    refuse_idle_names,
    refuse_other_kinds,
    refuse_unknown_names,
)
from .patterns import (
    Pattern,
    PatternText,
    aligned,
    lower,
    parsed_pattern,
    port_type,
    refuse_permuted,
)

_METHODS = {"max": "amax", "min": "amin"}
"""Reduction to its method of a tensor, where that has another name."""
_NOTHING = {
    "sum": "0.0",
    "mean": "0.0",
    "max": "torch.finfo(x.dtype).min",
    "min": "torch.finfo(x.dtype).max",
    "logsumexp": "-torch.inf",
}
"""Reduction to the value that masked elements have in it."""


class ReduceParams(Params):
    """Params of `reduce`."""

    y: PatternText
    """The axes of the value and of the result, such as `b t d -> b d`."""
    by: Literal["sum", "mean", "max", "min", "logsumexp"]
    """What becomes of the elements along the axes that the result lacks."""
    mask: str = ""
    """The axes of the mask, such as `b t`; needed only where the value has one of them twice."""
    kind: Literal["f", "score", "loss"] | None = None
    """Kind of the result; by default, that of the value.  A `loss` with a mask counts as many items
    as it has true elements."""

    @model_validator(mode="after")
    def _reduces(self) -> Self:
        """Refuse patterns that do not reduce one value, and unknown axes of the mask."""
        pattern = parsed_pattern(self.y)
        if len(pattern.values) > 1:
            msg = f"'{self.y}' has {len(pattern.values)} values; multiply them with einsum@1"
            raise ValueError(msg)
        (names,) = pattern.values
        if names == pattern.result:
            msg = f"'{self.y}' reduces no axis"
            raise ValueError(msg)
        refuse_permuted(pattern)
        if self.kind == "loss" and pattern.result:
            msg = f"'{self.y}' leaves axes, but a loss is a single number"
            raise ValueError(msg)
        refuse_unknown_names(self.mask, names, "'mask'")
        return self


def _signature(params: ReduceParams, _: frozenset[str]) -> Signature:
    """Return the ports before the types of the wires are known."""
    result = ValueType(params.kind or "f", ("...",))
    return Signature(
        inputs=(port("x", "f[...]", "the value that is reduced"), MASK),
        outputs=(Port("y", result, doc="the reduced value"),),
    )


def _typed(params: ReduceParams, types: Mapping[str, ValueType]) -> Signature:
    """Return the ports for the types of the wires."""
    refuse_other_kinds(types["x"], "reduce@1")
    pattern = reduction_pattern(params.y, params.mask, types)
    names, result = pattern.values[0], pattern.result
    x = ValueType(types["x"].kind, tuple(map(lower, names)))
    inputs = [Port("x", x, doc="the value that is reduced")]
    inputs += [mask_port(of_mask) for of_mask in pattern.values[1:]]
    output = ValueType(params.kind or x.kind, tuple(map(lower, result)))
    return Signature(
        inputs=tuple(inputs) if len(inputs) > 1 else (*inputs, MASK),
        outputs=(Port("y", output, doc="the reduced value; 0 where the mask excludes all of it"),),
        behavior={lower(name): "full" for name in names if name not in result},
        ordered=False,
        factors=("x",) if _keeps_zeros(params, types["x"]) else (),
    )


def _keeps_zeros(params: ReduceParams, x: ValueType) -> bool:
    """Return whether zeros stay zeros: in a sum, or along axes of known sizes."""
    written = parsed_pattern(params.y)
    names = expanded(written.values[0], x)
    result = _expanded_result(written, x)
    sizes = (axis for name, axis in zip(names, x.axes, strict=True) if name not in result)
    numbers = all(isinstance(size, int) for size in sizes)
    return params.by == "sum" or (numbers and params.by != "logsumexp")


def reduction_pattern(text: str, of_mask: str, types: Mapping[str, ValueType]) -> Pattern:
    """Return the names of the axes of the value, of its mask if it is wired, and of the result.

    Args:
        text: the pattern as written.
        of_mask: the names of the axes of the mask as written; may be empty.
        types: types of the value `x` and of the `mask`, if it is wired.

    Raises:
        MismatchError: the pattern or the mask does not fit the value.
    """
    written = parsed_pattern(text)
    refuse_idle_names(of_mask, types)
    port_type(written.values[0], types["x"], "x")
    names, result = expanded(written.values[0], types["x"]), _expanded_result(written, types["x"])
    values = [names]
    if "mask" in types:
        values.append(names_of_mask(of_mask, names, types["x"], types["mask"]))
        if {*values[1]} <= {*result}:
            msg = "the mask has none of the axes that are reduced"
            help_ = "wire a mask with one of them, or choose elements with where(mask, x, 0)"
            raise MismatchError("T04", msg, port="mask", help=help_)
    ordered = [types[name] for name in ("x", "mask") if name in types]
    return Pattern(tuple(values), result).with_lead(ordered)


def _expanded_result(pattern: Pattern, x: ValueType) -> tuple[str, ...]:
    """Return the names of the axes of the result, also of those that `...` stands for."""
    names = expanded(pattern.values[0], x)
    dropped = {*pattern.values[0]} - {*pattern.result}
    return tuple(name for name in names if name not in dropped)


def _written(part: Part) -> list[str]:
    """Return the lines of `forward`."""
    params: Any = part.params
    pattern = reduction_pattern(params.y, params.mask, part.inputs)
    names = pattern.values[0]
    places = [index - len(names) for index, name in enumerate(names) if name not in pattern.result]
    dim = str(places[0] if len(places) == 1 else tuple(places))
    if len(pattern.values) == 1:
        return [f"return {_reduction(params.by, 'x', dim)}"]
    lines = [f"mask = mask{aligned(names, pattern.values[1])}.expand_as(x)"]
    masked = f"x.masked_fill(~mask, {_NOTHING[params.by]})"
    if params.by == "mean":
        return [*lines, f"return {masked}.sum({dim}) / mask.sum({dim}).clamp(min=1)"]
    result = _reduction(params.by, masked, dim)
    if params.by in ("max", "min"):
        result += f".masked_fill(~mask.any({dim}), 0.0)"
    return [*lines, f"return {result}"]


def _reduction(by: str, x: str, dim: str) -> str:
    """Return the expression of a reduction without a mask."""
    if by == "logsumexp":
        return f"torch.logsumexp({x}, {dim})"
    return f"{x}.{_METHODS.get(by, by)}({dim})"


REDUCE = BlockType(
    name="reduce",
    title="{by} of {y}",
    mixes="",
    doc="Reduce named axes of a value to their sum, mean, maximum, minimum or log-sum of "
    "exponentials, over the elements that a mask leaves.",
    source="numpy: sum, mean, amax, amin; logsumexp: Blanchard, Higham and Higham 2021",
    params=ReduceParams,
    signature=_signature,
    typed=_typed,
    arguments=no_arguments,
    written=_written,
    weighs=("mask",),
    example={"y": "b t d -> b d", "by": "mean"},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
)
