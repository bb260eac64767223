"""Progressions: consecutive copies of a repeat that differ only in numbers that follow a formula.

They are drawn once, with the formula in place of the numbers: `dilation = 2**i`, where `i` is the
number of the copy from 0 on.  The formula is found from the numbers, so that a spec and its
expanded form have one picture.  Many copies whose numbers follow none are drawn once too, with the
first numbers and the last one.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..ir.graph import BlockNode, Filling, Node, Part, RepeatNode, Scope, TemplatePart
from ..ir.traverse import model_of
from ..ir.value_type import ValueType
from .labels import Formula, number

LEAST = 3
"""Least number of copies from which a formula is read."""
_SHOWN = 4
"""Largest number of values that are listed in full."""
_NUMBERED = re.compile(r"_\d+$")

Number = int | float


@dataclass(frozen=True, slots=True)
class Progression:
    """The values of one number in consecutive copies."""

    first: Number
    step: Number
    """What is added from copy to copy, or by what it is multiplied."""
    multiplies: bool = False

    def holds(self, copy: int, value: Number) -> bool:
        """Return whether a value is that of a copy, counted from the first one."""
        try:
            expected = self.first * self.step**copy if self.multiplies else self._added(copy)
        except OverflowError:
            return False
        return math.isclose(value, expected, rel_tol=1e-9, abs_tol=1e-12)

    def _added(self, copy: int) -> Number:
        return self.first + self.step * copy

    def formula(self, start: int) -> str:
        """Return its formula in the number of the copy, of which the first one is `start`."""
        if self.multiplies:
            factor = self.first / self.step**start
            power = f"{number(_rounded(self.step))}**i"
            return power if math.isclose(factor, 1) else f"{number(_rounded(factor))}*{power}"
        offset = _rounded(self.first - self.step * start)
        product = "i" if self.step in (1, -1) else f"{number(_rounded(abs(self.step)))}*i"
        if self.step > 0:
            sign = "-" if offset < 0 else "+"
            return f"{product} {sign} {number(abs(offset))}" if offset else product
        return f"{number(offset)} - {product}" if offset else f"-{product}"


def _rounded(value: Number) -> Number:
    return value if isinstance(value, int) else float(f"{value:.9g}")


def progression(values: Sequence[Number]) -> Progression | None:
    """Return the formula that the first three of some numbers follow, if there is one.

    >>> progression([1, 2, 4]).formula(0), progression([1, 3, 5]).formula(0)
    ('2**i', '2*i + 1')
    """
    first, second, third = values[:LEAST]
    added = Progression(first, second - first)
    if added.holds(2, third):
        return added
    ratio = second / first if first else 0.0
    ratio = int(ratio) if ratio.is_integer() else ratio
    multiplied = Progression(first, ratio, multiplies=True)
    return multiplied if ratio > 0 and multiplied.holds(2, third) else None


def runs(bodies: Sequence[Scope]) -> Iterator[tuple[int, int]]:
    """Yield the first copy and the number of copies of each run of at least three that differ."""
    by_body = {id(body): _described(body) for body in bodies}
    described = [by_body[id(body)] for body in bodies]
    start = 0
    while start + LEAST <= len(bodies):
        length = _length(described, start)
        if length >= LEAST:
            yield start, length
        start += max(1, length)


def alike(bodies: Sequence[Scope]) -> Iterator[tuple[int, int]]:
    """Yield the first copy and the number of copies of each run that differs only in numbers."""
    by_body = {id(body): _described(body) for body in bodies}
    start = 0
    for _, run in itertools.groupby(bodies, key=lambda body: repr(by_body[id(body)][0])):
        count = len([*run])
        if count >= LEAST:
            yield start, count
        start += count


def structures(bodies: Sequence[Scope]) -> list[str]:
    """Return a key of each body; those that compute the same have the same one."""
    by_body = {id(body): repr(_described(body)) for body in bodies}
    return [by_body[id(body)] for body in bodies]


def merged(bodies: Sequence[Scope], start: int) -> Scope:
    """Return the inside of the copies of a run, with formulas in place of the numbers."""
    columns = zip(*(_described(body)[1] for body in bodies), strict=True)
    return _Merger(iter([_text(values, start) for values in columns])).scope(bodies[0])


def _text(values: Sequence[Number], start: int) -> Number | Formula:
    """Return what stands for a number of several copies: itself, its formula, or some values."""
    if len({*values}) == 1:
        return values[0]
    rule = progression(values)
    if rule is not None and rule.step and all(map(rule.holds, range(len(values)), values)):
        return Formula(rule.formula(start))
    shown = [number(value) for value in values]
    return Formula(", ".join(shown if len(shown) <= _SHOWN else [*shown[:2], "..", shown[-1]]))


_Description = tuple[Any, list[Number]]
"""What copies have in common, and their numbers in order."""


def _length(described: Sequence[_Description], start: int) -> int:
    """Return how many copies from one on differ and follow one formula for each number."""
    (common, _), first = described[start], described[start : start + LEAST]
    if any(other != common for other, _ in first) or first[0][1] == first[1][1]:
        return 1
    rules = [progression(values) for values in zip(*(n for _, n in first), strict=True)]
    for copy in range(len(described) - start):
        other, numbers = described[start + copy]
        if other != common or not all(
            rule is not None and rule.holds(copy, value)
            for rule, value in zip(rules, numbers, strict=True)
        ):
            return copy if copy >= LEAST else 1
    return len(described) - start


def _described(scope: Scope) -> _Description:
    reader = _Reader([])
    return reader.scope(scope), reader.numbers


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads what a scope has in common with others, and collects its numbers."""

    numbers: list[Number]

    def value(self, value: Any) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool):
            self.numbers.append(value)
            return ...
        if isinstance(value, dict):
            return [(name, self.value(inner)) for name, inner in value.items()]
        return repr(value)

    def types(self, types: Any) -> Any:
        return [
            (name, type_.kind, [self.value(axis) for axis in type_.axes], self.value(type_.size))
            for name, type_ in types.items()
        ]

    def scope(self, scope: Scope) -> Any:
        name = _NUMBERED.sub("", scope.name)
        inputs = self.types(scope.inputs)
        return name, inputs, [*scope.outputs.items()], [self.node(node) for node in scope.nodes]

    def node(self, node: Node) -> Any:
        settings = node.shares, node.frozen
        common = (node.name, [*node.wires.items()], self.types(node.outputs), settings)
        if isinstance(node, BlockNode):
            return *common, self.filling(node.part)
        if model_of(node) is not None:
            return *common, id(model_of(node))
        if isinstance(node, RepeatNode):
            others = [(index, self.scope(body)) for index, body in sorted(node.instead.items())]
            copies = node.repeat, node.carry, node.collect, node.share
            return *common, self.scope(node.body), others, copies
        return *common, self.scope(node.body)

    def filling(self, part: Filling) -> Any:
        if isinstance(part, TemplatePart):
            return self.types(part.inputs), self.scope(part.body)
        params = [self.value(getattr(part.params, name)) for name in _fields(part)]
        fill = [(slot, self.filling(inner)) for slot, inner in part.fill.items()]
        return part.key, params, self.types(part.inputs), self.types(part.outputs), fill


def _fields(part: Part) -> Sequence[str]:
    return [*type(part.params).model_fields]


@dataclass(frozen=True, slots=True)
class _Merger:
    """Writes other numbers into a scope, in the order in which `_Reader` reads them."""

    texts: Iterator[Any]

    def value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self.value(inner) for name, inner in value.items()}
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return next(self.texts) if is_number else value

    def types(self, types: Any) -> dict[str, ValueType]:
        return {
            name: ValueType(
                type_.kind, tuple(self.value(axis) for axis in type_.axes), self.value(type_.size)
            )
            for name, type_ in types.items()
        }

    def scope(self, scope: Scope) -> Scope:
        name, inputs = _NUMBERED.sub("", scope.name), self.types(scope.inputs)
        return replace(scope, name=name, inputs=inputs, nodes=tuple(map(self.node, scope.nodes)))

    def node(self, node: Node) -> Node:
        outputs = self.types(node.outputs)
        if isinstance(node, BlockNode):
            part = self.filling(node.part)
            return replace(node, outputs=outputs, part=part)  # type: ignore[arg-type]
        if model_of(node) is not None:
            return replace(node, outputs=outputs)
        body = self.scope(node.body)
        if isinstance(node, RepeatNode):
            others = {index: self.scope(other) for index, other in sorted(node.instead.items())}
            return replace(node, outputs=outputs, body=body, instead=others)
        return replace(node, outputs=outputs, body=body)

    def filling(self, part: Filling) -> Filling:
        if isinstance(part, TemplatePart):
            return replace(part, inputs=self.types(part.inputs), body=self.scope(part.body))
        values = {name: self.value(getattr(part.params, name)) for name in _fields(part)}
        return replace(
            part,
            params=part.params.model_copy(update=values),
            inputs=self.types(part.inputs),
            outputs=self.types(part.outputs),
            fill={slot: self.filling(inner) for slot, inner in part.fill.items()},
        )
