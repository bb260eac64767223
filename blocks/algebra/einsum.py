"""Products of values over named axes, and permutations of axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, Self

from pydantic import model_validator

from ...graphs.ir.block_type import Behavior, BlockType, Port, Signature
from ...graphs.ir.graph import Part
from ...graphs.ir.value_type import ValueType
from ..params import Params
from .patterns import LEAD, Pattern, PatternText, lower, parsed_pattern, port_type

PORTS = ("x", "z", "w", "v")
"""The ports, in the order of the pattern."""


class EinsumParams(Params):
    """Params of `einsum`."""

    y: PatternText
    """The axes of the values at the ports x, z, w and v, and of the result, such as
    `b h t k, b h s k -> b h t s`: an axis that the result lacks is summed over."""

    @model_validator(mode="after")
    def _multiplies(self) -> Self:
        """Refuse sums of a single value, and more values than ports."""
        pattern = parsed_pattern(self.y)
        if len(pattern.values) > len(PORTS):
            msg = f"'{self.y}' has {len(pattern.values)} values; at most {len(PORTS)} are allowed"
            raise ValueError(msg)
        if pattern.values[0] == pattern.result and len(pattern.values) == 1:
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
    return _ports(parsed_pattern(params.y), {})


def _typed(params: EinsumParams, types: Mapping[str, ValueType]) -> Signature:
    """Return the ports for the types of the wires: a single value keeps its kind."""
    pattern = parsed_pattern(params.y)
    values = [types[name] for name in PORTS[: len(pattern.values)]]
    for name, names, type_ in zip(PORTS, pattern.values, values, strict=False):
        port_type(names, type_, name)
    return _ports(pattern.with_lead(values), types if len(values) == 1 else {})


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
    types = [part.inputs[name] for name in PORTS if name in part.inputs]
    pattern = parsed_pattern(params.y).with_lead(types).letters()
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
    doc="Multiply values over named axes and sum over the axes that the result lacks, or permute "
    "the axes of one value.",
    source="numpy: einsum; named axes: Chiang, Rush and Barak 2021",
    params=EinsumParams,
    signature=_signature,
    typed=_typed,
    arguments=lambda params, _: {"y": params.y},
    flops=_flops,
    written=_written,
    merges=_merges,
    example={"y": "b t k, b s k -> b t s"},
    example_inputs={"x": "f[B T 8]", "z": "f[B S 8]"},
)
