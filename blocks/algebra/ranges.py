"""Ranges of formulas: conditions, real numbers, and integers with their bounds.

Ids are integers below a size, so a formula over ids has a size only if its bounds are known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from ...graphs.ir.block_type import MismatchError
from ...graphs.ir.value_type import ValueType
from ...specs.expressions import COMPARISONS, HIGHEST_POWER, LOGIC, Call, Expression

INTEGER_KINDS = frozenset({"ids", "label", "len", "pos"})
"""Kinds of integers."""


@dataclass(frozen=True, slots=True)
class Range:
    """What is known of the values of a formula, or of a part of it."""

    kind: Literal["condition", "real", "integer"]
    least: float = -math.inf
    most: float = math.inf


REAL = Range("real")
CONDITION = Range("condition")
INTEGER = Range("integer")


def range_of(type_: ValueType) -> Range:
    """Return the range of the values of a type."""
    if type_.kind == "mask":
        return CONDITION
    if type_.kind not in INTEGER_KINDS:
        return REAL
    most = type_.size - 1 if isinstance(type_.size, int) else math.inf
    least = -1 if type_.kind in ("label", "pos") else 0  # -1 marks padding
    return Range("integer", least, most)


def range_of_number(number: float) -> Range:
    """Return the range of a constant."""
    return Range("integer", number, number) if isinstance(number, int) else REAL


def range_of_tree(tree: Expression, ranges: Mapping[str, Range]) -> Range:
    """Return the range of a formula.

    Args:
        tree: the formula.
        ranges: those of its names.

    Raises:
        MismatchError: it computes with a condition, or has a number for a condition.
    """
    if isinstance(tree, str):
        return ranges[tree]
    if not isinstance(tree, Call):
        return range_of_number(tree)
    name, arguments = tree.function, [range_of_tree(part, ranges) for part in tree.arguments]
    conditions = len(arguments) if name in LOGIC else 1 if name == "where" else 0
    for index, argument in enumerate(arguments):
        if (argument.kind == "condition") is not (index < conditions):
            needs = "a condition, such as x > 0" if index < conditions else "a number"
            help_ = "masks and comparisons are conditions, all other values numbers"
            help_ += "" if index < conditions else ": write where(CONDITION, 1, 0)"
            raise MismatchError("T02", f"'{name}' needs {needs}", help=help_)
    numbers = arguments[conditions:]
    if name in LOGIC or name in COMPARISONS:
        return CONDITION
    if name not in _INTEGERS or any(number.kind == "real" for number in numbers):
        return REAL
    return _INTEGERS[name](*numbers)


def _ends(function: Callable[[float, float], float], first: Range, second: Range) -> Range:
    """Return the range of a function that is monotone in both of its arguments."""
    pairs = itertools.product((first.least, first.most), (second.least, second.most))
    values = [function(a, b) for a, b in pairs]
    return Range("integer", min(values), max(values))


def _of_floor(first: Range, second: Range) -> Range:
    """Return the range of //, whose divisor may be 0 or negative."""
    if second.least <= 0:
        return INTEGER
    return _ends(lambda a, b: math.floor(a / b) if math.isfinite(a) else a, first, second)


def _of_remainder(first: Range, second: Range) -> Range:
    """Return the range of %, whose divisor may be 0 or negative."""
    if second.least <= 0:
        return INTEGER
    smaller = first.least >= 0 and first.most < second.least
    return first if smaller else Range("integer", 0, second.most - 1)


def _of_power(base: Range, power: Range) -> Range:
    """Return the range of a power; it is no integer if the exponent may be negative."""
    if power.least < 0:
        return REAL
    if base.least < 0 or math.inf in (base.most, power.most) or power.most > HIGHEST_POWER:
        return INTEGER
    return Range("integer", 0, float(base.most) ** power.most)


def _of_absolute(x: Range) -> Range:
    return Range("integer", max(x.least, -x.most, 0), max(x.most, -x.least))


def _least_of(*numbers: Range) -> Range:
    return Range("integer", min(x.least for x in numbers), min(x.most for x in numbers))


def _most_of(*numbers: Range) -> Range:
    return Range("integer", max(x.least for x in numbers), max(x.most for x in numbers))


_INTEGERS: Mapping[str, Callable[..., Range]] = {
    "+": lambda x, z: Range("integer", x.least + z.least, x.most + z.most),
    "-": lambda x, z: Range("integer", x.least - z.most, x.most - z.least),
    "*": lambda x, z: _ends(lambda a, b: 0 if 0 in (a, b) else a * b, x, z),
    "//": _of_floor,
    "%": _of_remainder,
    "**": _of_power,
    "negative": lambda x: Range("integer", -x.most, -x.least),
    "abs": _of_absolute,
    "relu": lambda x: Range("integer", max(x.least, 0), max(x.most, 0)),
    "min": _least_of,
    "max": _most_of,
    "where": lambda x, z: Range("integer", min(x.least, z.least), max(x.most, z.most)),
    "detach": lambda x: x,
}
"""Operator or function whose result for integers is an integer, to its range."""


_ZERO_AT_ZERO = frozenset(
    {"negative", "abs", "sqrt", "sin", "tanh", "erf", "relu", "gelu", "gelu_tanh", "silu", "elu"}
) | {"ceil", "floor", "detach", "squared_relu", "quick_gelu", "leaky_relu", "mish", "hard_swish"}
"""Functions of one argument that are 0 at 0."""


def factors_of(tree: Expression, names: frozenset[str]) -> frozenset[str]:
    """Return the names whose zeros are zeros of a formula, as those of a product.

    Args:
        tree: the formula.
        names: all of its names.
    """
    if isinstance(tree, str):
        return frozenset({tree}) & names
    if not isinstance(tree, Call):
        return names if tree == 0 else frozenset()
    parts = [factors_of(part, names) for part in tree.arguments]
    if tree.function == "*":
        return frozenset().union(*parts)
    if tree.function in ("/", "//") or tree.function in _ZERO_AT_ZERO:
        return parts[0]
    if tree.function in ("+", "-", "min", "max"):
        return frozenset.intersection(*parts)
    return parts[1] & parts[2] if tree.function == "where" else frozenset()
