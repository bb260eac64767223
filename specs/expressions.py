"""Expressions: small arithmetic over params, with its own bounded parser.

An expression is a string such as `4*d_model` or `d_model % heads == 0`.  It knows
integers, floats, names, `+ - * / // % **`, brackets and comparisons; it has no
attribute, call, index or string, so nothing in a file can reach code.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

LONGEST = 200
"""Characters that an expression may have."""
DEEPEST = 24
"""Brackets and signs that may stand inside one another."""
LARGEST = 2**53
"""Largest magnitude of any number met on the way."""
HIGHEST_POWER = 64
"""Largest exponent."""

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<operator>\*\*|//|==|!=|<=|>=|[-+*/%()<>]))",
    re.ASCII,
)
WORD = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)
"""A number, in which letters are no word, or a word."""
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_SUM: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub}
_PRODUCT: dict[str, Callable[[Any, Any], Any]] = {
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}


class ExpressionError(ValueError):
    """An expression cannot be read or has no value."""


class UnknownNameError(ExpressionError):
    """An expression uses a name that nothing defines."""

    def __init__(self, name: str) -> None:
        """Keep the name, for the nearest-name search of the caller."""
        self.name = name
        super().__init__(f"unknown name '{name}'")


def is_expression(value: object) -> bool:
    """Say whether a JSON value is an expression: a string that begins with `=`."""
    return isinstance(value, str) and value.startswith("=")


def names_in(text: str) -> tuple[str, ...]:
    """Return the names that an expression reads, in order of appearance.

    >>> names_in("4*d_model + d_k")
    ('d_model', 'd_k')
    """
    return tuple(dict.fromkeys(value for kind, value in _tokens(text) if kind == "name"))


def words_in(text: str) -> frozenset[str]:
    """Return every word of a text that may be no expression at all.

    >>> sorted(words_in("f[B S 4*d_model"))
    ['B', 'S', 'd_model', 'f']
    """
    return frozenset(filter(None, WORD.findall(text)))


def evaluate(text: str, values: Mapping[str, Any]) -> Any:
    """Return the value of an expression (without its leading `=`).

    A lone name gives whatever it stands for, be it a number, a word or a block
    choice; arithmetic needs numbers.

    Raises:
        ExpressionError: not an expression, an unknown name, or no bounded value.

    >>> evaluate("4*d_model", {"d_model": 512})
    2048
    """
    tokens = _tokens(text)
    if len(tokens) == 1 and tokens[0][0] == "name":
        return _lookup(tokens[0][1], values)
    parser = _Parser(tokens, values)
    result = parser.comparison(0)
    if parser.at < len(tokens):
        msg = f"'{tokens[parser.at][1]}' is not expected there"
        raise ExpressionError(msg)
    return result


def _tokens(text: str) -> list[tuple[str, str]]:
    if len(text) > LONGEST:
        msg = f"longer than {LONGEST} characters"
        raise ExpressionError(msg)
    tokens: list[tuple[str, str]] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            msg = f"'{text[at:].strip()[:1]}' has no meaning in an expression"
            raise ExpressionError(msg)
        kind = found.lastgroup or ""
        if found.group(kind) == "(" and tokens and tokens[-1][0] == "name":
            msg = f"'{tokens[-1][1]}(' would be a call"
            raise ExpressionError(msg)
        tokens.append((kind, found.group(kind)))
        at = found.end()
    if not tokens:
        msg = "the expression is empty"
        raise ExpressionError(msg)
    return tokens


def _lookup(name: str, values: Mapping[str, Any]) -> Any:
    if name not in values:
        raise UnknownNameError(name)
    return values[name]


def _number(value: Any, name: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        msg = f"'{name}' is not a number"
        raise ExpressionError(msg)
    _bounded(value)
    return value


def _real(value: Any) -> Any:
    """Refuse the truth of a comparison where a number must stand."""
    if isinstance(value, bool):
        msg = "a comparison is not a number"
        raise ExpressionError(msg)
    return value


def _bounded(value: Any) -> Any:
    """Refuse numbers too large to be meant, and results that are not real."""
    if isinstance(value, complex) or (isinstance(value, float) and not math.isfinite(value)):
        msg = "the value is not a finite number"
        raise ExpressionError(msg)
    if abs(value) > LARGEST:
        msg = "the value is larger than 2**53"
        raise ExpressionError(msg)
    return value


class _Parser:
    """Recursive descent with Python's precedence: compare, sum, product, sign, power."""

    def __init__(self, tokens: list[tuple[str, str]], values: Mapping[str, Any]) -> None:
        self.tokens, self.values, self.at = tokens, values, 0

    def peek(self) -> str:
        """Return the operator that stands next, or nothing."""
        if self.at < len(self.tokens) and self.tokens[self.at][0] == "operator":
            return self.tokens[self.at][1]
        return ""

    def comparison(self, depth: int) -> Any:
        """Parse a sum, or two sums and the comparison between them."""
        left = self.binary(_SUM, lambda: self.binary(_PRODUCT, lambda: self.sign(depth)))
        compare = _COMPARE.get(self.peek())
        if compare is None:
            return left
        self.at += 1
        return compare(
            left, self.binary(_SUM, lambda: self.binary(_PRODUCT, lambda: self.sign(depth)))
        )

    def binary(
        self, table: Mapping[str, Callable[[Any, Any], Any]], part: Callable[[], Any]
    ) -> Any:
        """Parse parts joined by the operators of one precedence, left to right."""
        left = part()
        while self.peek() in table:
            symbol = self.peek()
            self.at += 1
            left, right = _real(left), _real(part())
            if symbol in ("/", "//", "%") and right == 0:
                msg = f"'{symbol}' divides by zero"
                raise ExpressionError(msg)
            left = _bounded(table[symbol](left, right))
        return left

    def sign(self, depth: int) -> Any:
        """Parse an optional sign and a power."""
        if depth > DEEPEST:
            msg = f"nested deeper than {DEEPEST}"
            raise ExpressionError(msg)
        if self.peek() == "-":
            self.at += 1
            return -_real(self.sign(depth + 1))
        base = self.atom(depth)
        if self.peek() != "**":
            return base
        self.at += 1
        base, power = _real(base), _real(self.sign(depth + 1))
        if abs(power) > HIGHEST_POWER or (base == 0 and power < 0):
            msg = f"the power {power} is out of bounds"
            raise ExpressionError(msg)
        try:
            return _bounded(base**power)
        except OverflowError as error:
            msg = "the value is larger than 2**53"
            raise ExpressionError(msg) from error

    def atom(self, depth: int) -> Any:
        """Parse a number, a name or a bracket."""
        if self.at >= len(self.tokens):
            msg = "the expression ends too early"
            raise ExpressionError(msg)
        kind, text = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            return _bounded(int(text) if text.isdigit() else float(text))
        if kind == "name":
            return _number(_lookup(text, self.values), text)
        if text != "(":
            msg = f"'{text}' is not expected there"
            raise ExpressionError(msg)
        value = self.comparison(depth + 1)
        if self.peek() != ")":
            msg = "a bracket is not closed"
            raise ExpressionError(msg)
        self.at += 1
        return value
