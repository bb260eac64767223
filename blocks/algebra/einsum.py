"""Products of values over named axes, and permutations of axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from ...graphs.ir.block_type import Behavior, BlockType, MismatchError, Port, Signature
from ...graphs.ir.graph import Part
from ...graphs.ir.value_type import Axis, ValueType
from ...specs.findings import did_you_mean
from ..params import Count, Params
from .patterns import (
    LEAD,
    Groups,
    Names,
    Pattern,
    lower,
    parsed_pattern,
    port_type,
    split_groups,
)

PORTS = ("x", "z", "w", "v")
"""The ports, in the order of the pattern."""


class EinsumParams(Params):
    """Params of `einsum`."""

    y: str
    """The axes of the values at the ports x, z, w and v, and of the result, such as
    `b h t k, b h s k -> b h t s`: an axis that the result lacks is summed over.  One value may
    have axes that are split or merged, as in `b t (h k) -> b h t k`."""
    sizes: dict[str, Count] = Field(default_factory=dict)
    """Sizes of names in parentheses, such as `{"h": "=heads"}`; one in each group follows from the
    value."""

    @field_validator("y")
    @classmethod
    def _parses(cls, text: str) -> str:
        """Refuse a text that is not a pattern; write it with single spaces."""
        if "(" not in text and ")" not in text:
            return str(parsed_pattern(text))
        flat, before, after = split_groups(text)
        parsed_pattern(flat)
        return f"{_written_groups(before)} -> {_written_groups(after)}"

    @property
    def groups(self) -> tuple[Groups, Groups] | None:
        """The names of each axis of the value and of the result, if some are in parentheses."""
        return split_groups(self.y)[1:] if "(" in self.y else None

    @property
    def pattern(self) -> Pattern:
        """The pattern, in which names in parentheses are axes like others."""
        return parsed_pattern(self.y if self.groups is None else split_groups(self.y)[0])

    @model_validator(mode="after")
    def _splits(self) -> Self:
        """Refuse sizes without a group, groups of unknown sizes, and groups that lose an axis."""
        before, after = self.groups or ((), ())
        split = [name for group in before if len(group) > 1 for name in group]
        for name in self.sizes:
            if name not in split:
                help_ = did_you_mean(name, split)
                msg = f"'sizes' has '{name}', which no group of the value in '{self.y}' has"
                raise ValueError(f"{msg}; {help_}" if help_ else msg)
        for group in before:
            unknown = [name for name in group if name not in self.sizes]
            if len(group) > 1 and len(unknown) > 1:
                msg = f"'sizes' must have all but one of {', '.join(group)}"
                raise ValueError(msg)
        if after and {*self.pattern.values[0]} != {*self.pattern.result}:
            msg = f"'{self.y}' loses an axis; sum over it with reduce@1"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _multiplies(self) -> Self:
        """Refuse sums of a single value, and more values than ports."""
        pattern = self.pattern
        if len(pattern.values) > len(PORTS):
            msg = f"'{self.y}' has {len(pattern.values)} values; at most {len(PORTS)} are allowed"
            raise ValueError(msg)
        same = pattern.values[0] == pattern.result and len(pattern.values) == 1
        if same and (self.groups is None or self.groups[0] == self.groups[1]):
            msg = f"'{self.y}' changes nothing"
            raise ValueError(msg)
        for name in pattern.names:
            if name not in pattern.result and sum(name in axes for axes in pattern.values) == 1:
                msg = f"'{self.y}': '{name}' is an axis of one value alone, and not of the result"
                msg += "; sum over it with reduce@1"
                raise ValueError(msg)
        return self


def _signature(params: EinsumParams, _: frozenset[str]) -> Signature:
    """Return the ports for values of the kind f."""
    if params.groups is None:
        return _ports(params.pattern, {})
    return Signature(
        inputs=(Port("x", ValueType("f", ("...",))),),
        outputs=(Port("y", ValueType("f", ("...",)), doc="the value with other axes"),),
    )


def _typed(params: EinsumParams, types: Mapping[str, ValueType]) -> Signature:
    """Return the ports for the types of the wires: a single value keeps its kind."""
    if params.groups is not None:
        return _regrouped(params, types["x"])
    pattern = params.pattern
    values = [types[name] for name in PORTS[: len(pattern.values)]]
    for name, names, type_ in zip(PORTS, pattern.values, values, strict=False):
        port_type(names, type_, name)
    return _ports(pattern.with_lead(values), types if len(values) == 1 else {})


def _written_groups(groups: Groups) -> str:
    return " ".join(f"({' '.join(names)})" if len(names) > 1 else names[0] for names in groups)


def _sizes(params: EinsumParams, x: ValueType) -> dict[str, int]:
    """Return the sizes of the names of a value that stand for numbers.

    Raises:
        MismatchError: the value has other axes, or one that its group does not divide.
    """
    assert params.groups is not None  # noqa: S101 - the caller has asked
    before = params.groups[0]
    port_type(tuple(names[0] for names in before), x, "x")
    last = before[1:] if before[0] == (LEAD,) else before
    axes = x.axes[len(x.axes) - len(last) :]
    sizes: dict[str, int] = {}
    for names, axis in zip(last, axes, strict=True):
        if len(names) == 1:
            sizes |= {names[0]: axis} if isinstance(axis, int) else {}
            continue
        fixed = {name: params.sizes[name] for name in names if name in params.sizes}
        written = _written_groups((names,))
        if not isinstance(axis, int):
            msg = f"'{written}' is {axis}, which is not a number of elements that could be split"
            raise MismatchError("T03", msg, port="x", help="split an axis of a known size")
        divisor = prod(fixed.values())
        if axis % divisor or (len(fixed) == len(names) and axis != divisor):
            product = " * ".join(f"{name} = {size}" for name, size in fixed.items())
            msg = f"'{written}' is {axis}, which is not divided by {product}"
            raise MismatchError("T03", msg, port="x", help="change 'sizes', or the width of 'x'")
        sizes |= fixed | {name: axis // divisor for name in names if name not in fixed}
    return sizes


def _regrouped(params: EinsumParams, x: ValueType) -> Signature:
    """Return the ports of a value whose axes are split or merged."""
    assert params.groups is not None  # noqa: S101 - the caller has asked
    sizes = _sizes(params, x)

    def axis_of(names: Names) -> Axis:
        if len(names) == 1:
            return lower(names[0])
        lacking = [name for name in names if name not in sizes]
        if lacking:
            msg = f"'{_written_groups((names,))}' merges '{lacking[0]}', whose size is not a number"
            raise MismatchError("T03", msg, port="x", help="merge axes of known sizes")
        return prod(sizes[name] for name in names)

    split = {name for group in params.groups[0] if len(group) > 1 for name in group}
    before = tuple(map(axis_of, params.groups[0]))
    after = tuple(
        sizes[names[0]] if names[0] in split and len(names) == 1 else axis_of(names)
        for names in params.groups[1]
    )
    return Signature(
        inputs=(Port("x", ValueType(x.kind, before, x.size)),),
        outputs=(Port("y", ValueType(x.kind, after, x.size), doc="the value with other axes"),),
        factors=("x",),
    )


def _regrouping(params: EinsumParams, x: ValueType) -> list[str]:
    """Return the lines of `forward` that split, permute and merge the axes of a value."""
    assert params.groups is not None  # noqa: S101 - the caller has asked
    sizes = _sizes(params, x)
    before, after = params.groups
    value = "x"
    for index in reversed(range(len(before))):
        if len(before[index]) > 1:
            lengths = ", ".join(str(sizes[name]) for name in before[index])
            position = sum(map(len, before[index + 1 :]))
            value += f".unflatten({-1 - position}, ({lengths}))"
    pattern = params.pattern
    if pattern.values[0] != pattern.result:
        value = f'torch.einsum("{pattern.letters()}", {value})'
    for index in reversed(range(len(after))):
        if len(after[index]) > 1:
            position = len(after) - 1 - index
            value += f".flatten({-len(after[index]) - position}, {-1 - position})"
    return [f"return {value}"]


def _ports(pattern: Pattern, types: Mapping[str, ValueType]) -> Signature:
    default = ValueType("f", ())
    first = types.get(PORTS[0], default)
    summed: dict[str, Behavior] = {
        lower(name): "full" for name in pattern.names if name not in pattern.result
    }
    inputs = [
        Port(
            name,
            ValueType(first.kind, tuple(map(lower, axes)), first.size),
            doc=f"a value with the axes {' '.join(axes)}" if axes else "a number",
        )
        for name, axes in zip(PORTS, pattern.values, strict=False)
    ]
    result = ValueType(first.kind, tuple(map(lower, pattern.result)), first.size)
    return Signature(
        inputs=tuple(inputs),
        outputs=(Port("y", result, doc="the product, summed over the axes that it lacks"),),
        behavior=summed,
        factors=tuple(port.name for port in inputs),
    )


def _pairs(pattern: Pattern) -> Iterator[Pattern]:
    """Yield the products of two values one after the other, from left to right."""
    before, *later = pattern.values
    for index, names in enumerate(later):
        needed = {*pattern.result}.union(*later[index + 1 :])
        union = dict.fromkeys((*before, *names))
        last = index == len(later) - 1
        after = pattern.result if last else tuple(name for name in union if name in needed)
        yield Pattern((before, names), after)
        before = after


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the products of two values that sum over an axis; the others multiply elementwise."""
    pairs = _pairs(parsed_pattern(arguments["y"]))
    return sum(2 * _volume(pair, sizes) for pair in pairs if {*pair.names} - {*pair.result})


def _volume(pair: Pattern, sizes: Mapping[str, int]) -> int:
    """Return the product of the lengths of all axes; those of the lead have one length."""
    names = {lower(name) for name in pair.names}
    return prod(sizes[name] for name in names & sizes.keys()) * (
        sizes[LEAD] if names - sizes.keys() else 1
    )


def _written(part: Part) -> list[str]:
    """Return the lines of `forward`, with one product in each."""
    params: Any = part.params
    if params.groups is not None:
        return _regrouping(params, part.inputs["x"])
    types = [part.inputs[name] for name in PORTS if name in part.inputs]
    pattern = params.pattern.with_lead(types).letters()
    if len(pattern.values) == 1:
        return [f'return torch.einsum("{pattern}", x)']
    lines = [
        f'{{}} torch.einsum("{pair}", {"x" if number == 0 else "y"}, {PORTS[number + 1]})'
        for number, pair in enumerate(_pairs(pattern))
    ]
    return [*(line.format("y =") for line in lines[:-1]), lines[-1].format("return")]


def _merges(node: Any, scope: Any, axis: str | None) -> Any:
    """Return what computes attention whose sum over the keys is a node of this block."""
    from .attention import merged_attention  # noqa: PLC0415 - checking a spec does not need it

    return merged_attention(node, scope, axis)


EINSUM = BlockType(
    name="einsum",
    title="{y}",
    mixes="",
    doc="Multiply values over named axes and sum over the axes that the result lacks, or permute, "
    "split and merge the axes of one value.",
    source="numpy: einsum; named axes: Chiang, Rush and Barak 2021; groups: Rogozhnikov 2022",
    params=EinsumParams,
    signature=_signature,
    typed=_typed,
    arguments=lambda params, _: {"y": str(params.pattern)},
    flops=_flops,
    written=_written,
    merges=_merges,
    example={"y": "b t k, b s k -> b t s"},
    example_inputs={"x": "f[B T 8]", "z": "f[B S 8]"},
)
