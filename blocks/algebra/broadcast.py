"""Broadcasting by named axes: how the axes of several values are matched.

Axes match by name, not by position: in `f[B T]` and `f[B T 512]`, the axes `B` and `T` are the
same.  The result has every axis once, in the order that all values agree on.  Among values with the
same number of axes, an axis of size 1 fits any other in its place, as in torch.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import CycleError

from ...graphs.ir.block_type import MismatchError
from ...graphs.ir.graph import ordered
from ...graphs.ir.value_type import Axis, ValueType
from .patterns import Names, aligned


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Values whose axes have been matched."""

    names: Mapping[str, Names]
    """For each value, the names of its axes."""
    result: Names
    """The names of the axes of the result."""
    axes: Mapping[str, Axis]
    """Name of each axis of the result to the axis."""
    lead: int
    """Number of first axes of the result that each value has, as its first axes, or lacks."""

    def has_lead(self, value: str) -> bool:
        """Return whether a value has the leading axes."""
        return self.lead > 0 and self.names[value][: self.lead] == self.result[: self.lead]

    def index(self, value: str) -> str:
        """Return the index that aligns a value with the result; empty if it is not needed.

        >>> broadcast({"x": ValueType("f", ("B", "T", 8), None),
        ...            "gate": ValueType("f", ("B", "T"), None)}).index("gate")
        '[..., None]'
        """
        return aligned(self.result, self.names[value])


def broadcast(
    types: Mapping[str, ValueType], patterns: Mapping[str, str] | None = None
) -> Broadcast:
    """Return how the axes of values match.

    Args:
        types: the values, in the order in which a formula reads them.
        patterns: names for the axes of values, such as `{"x": "b t d"}`, by which they match
            instead of by the axes themselves.

    Raises:
        MismatchError: an axis occurs several times, sizes differ, or orders contradict each other.
    """
    names = {value: tuple(map(str, type_.axes)) for value, type_ in types.items()}
    for value, pattern in (patterns or {}).items():
        names[value] = tuple(pattern.split())
        if len(names[value]) != len(types[value].axes):
            msg = f"'{pattern}' names {len(names[value])} axes of '{value}', which has"
            msg += f" {len(types[value].axes)}"
            raise MismatchError("T04", msg, port=value, help="name every axis once")
    rank = max(map(len, names.values()), default=0)
    if not patterns:
        names = _without_ones(names, rank)
        _refuse_other_widths(types, names)
    _refuse_repeated(types, names)
    axes = _sizes(types, names)
    result = _merged(types, names)
    return Broadcast(names, result, axes, _lead(types, names, axes, result))


def _without_ones(names: Mapping[str, Names], rank: int) -> dict[str, Names]:
    """Return the names, where an axis of size 1 has that of the axis in its place."""
    full = [value for value in names if len(names[value]) == rank]
    columns = list(zip(*(names[value] for value in full), strict=True)) if full else []
    replaced = dict(names)
    for value in full:
        replaced[value] = tuple(
            next((other for other in column if other != "1"), "1") if name == "1" else name
            for name, column in zip(names[value], columns, strict=True)
        )
    result = {name for value in full for name in replaced[value]}
    for value in names:
        if value not in full and "1" in names[value] and "1" not in result:
            msg = f"an axis of size 1 of '{value}' fits no axis of the other values"
            help_ = "remove it, or name the axes of every value with 'axes'"
            raise MismatchError("T04", msg, port=value, help=help_)
    return replaced


def _refuse_other_widths(types: Mapping[str, ValueType], names: Mapping[str, Names]) -> None:
    """Refuse two widths that no value has both: they were most likely meant to be equal."""
    widths = {name: value for value in names for name in names[value] if name.isdigit()}
    for first, second in itertools.combinations(widths, 2):
        if not any({first, second} <= {*axes} for axes in names.values()):
            value, other = widths[second], widths[first]
            msg = f"an axis of '{value}' is {second}, but one of '{other}' is {first}"
            pair = f'{{"{other}": "{_pattern(types[other])}", ...}}'
            help_ = f"wire values of one width, or name all axes for every pair of both: {pair}"
            raise MismatchError("T03", msg, port=value, help=help_)


def _pattern(type_: ValueType) -> str:
    """Return a name for each axis of a type, as an example."""
    return " ".join("abcdefgh"[: len(type_.axes)])


def _refuse_repeated(types: Mapping[str, ValueType], names: Mapping[str, Names]) -> None:
    """Refuse an axis that occurs twice, unless all values but single numbers have the same axes."""
    if len({*names.values()} - {()}) <= 1:
        return
    for value, axes in names.items():
        axis, count = Counter(axes).most_common(1)[0] if axes else ("", 0)
        if count > 1:
            msg = f"'{value}' is {types[value]}, in which {axis} occurs {count} times,"
            msg += " so it is not clear which of them the other values have"
            example = _pattern(types[value])
            help_ = f'name the axes of every value, such as "axes": {{"{value}": "{example}"}}'
            raise MismatchError("T03", msg, port=value, help=help_)


def _sizes(types: Mapping[str, ValueType], names: Mapping[str, Names]) -> dict[str, Axis]:
    """Return what each name stands for; an axis of size 1 gives way to any other."""
    axes: dict[str, Axis] = {}
    origin: dict[str, str] = {}
    for value, type_ in types.items():
        for name, axis in zip(names[value], type_.axes, strict=True):
            before = axes.get(name, 1)
            if axis == 1 and name in axes:
                continue
            if before not in (1, axis):
                msg = f"axis '{name}' is {before} in '{origin[name]}' but {axis} in '{value}'"
                raise MismatchError("T03", msg, port=value, help="wire values of equal axes")
            axes[name], origin[name] = axis, value
    return axes


def _merged(types: Mapping[str, ValueType], names: Mapping[str, Names]) -> Names:
    """Return all names in the order that the values agree on."""
    distinct = {*names.values()} - {()}
    if len(distinct) <= 1:
        return next(iter(distinct), ())
    appearance = list(dict.fromkeys(name for axes in names.values() for name in axes))
    key = {name: f"{number:03}" for number, name in enumerate(appearance)}
    before: dict[str, set[str]] = {key[name]: set() for name in appearance}
    for axes in names.values():
        for first, second in itertools.pairwise(axes):
            before[key[second]].add(key[first])
    try:
        return tuple(appearance[int(number)] for number in ordered(before))
    except CycleError:
        pairs = ", ".join(f"{value} {type_}" for value, type_ in types.items())
        msg = f"the axes have contradictory orders: {pairs}"
        help_ = "permute one of them with einsum@1"
        raise MismatchError("T03", msg, port=[*names][-1], help=help_) from None


def _lead(
    types: Mapping[str, ValueType],
    names: Mapping[str, Names],
    axes: Mapping[str, Axis],
    result: Names,
) -> int:
    """Return how many first axes of the result each value has in front, or lacks altogether."""

    def fits(value: str, count: int) -> bool:
        if not {*names[value]} & {*result[:count]}:
            return True
        same = names[value][:count] == result[:count]
        return same and types[value].axes[:count] == tuple(axes[name] for name in result[:count])

    counts = range(1, len(result) + 1)
    return max((n for n in counts if all(fits(value, n) for value in names)), default=0)
