"""Parser and evaluator of arithmetic expressions over params.

An expression is a string such as `4*d_model` or `d_model % heads == 0`.  It may contain
integers, floats, names, `+ - * / // % **`, parentheses, comparisons, and the functions `min`,
`max`, `ceil` and `floor`.  It has no attributes, other calls, indices or strings, so an expression
cannot execute code.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

LONGEST = 200
"""Maximum number of characters in an expression."""
DEEPEST = 24
"""Maximum nesting depth of parentheses and signs."""
LARGEST = 2**53
"""Largest magnitude of the value and of every intermediate result."""
HIGHEST_POWER = 64
"""Largest exponent."""

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<operator>\*\*|//|==|!=|<=|>=|[-+*/%()<>,]))",
    re.ASCII,
)
WORD = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)
"""A number, whose letters are not a word, or a word."""
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
FUNCTIONS: dict[str, tuple[Callable[..., Any], int, int]] = {
    "min": (min, 1, 8),
    "max": (max, 1, 8),
    "ceil": (math.ceil, 1, 1),
    "floor": (math.floor, 1, 1),
}
"""Name of a function to the function, and its least and greatest number of arguments."""
_INSTEAD = {
    "^": "; write ** for a power",
    "&": "; write each condition as an entry of its own",
    "|": "; write each condition as an entry of its own",
    "=": "; write == to compare",
    "'": "; an expression has numbers and names only",
    '"': "; an expression has numbers and names only",
}
"""Character that is not allowed to what to write instead."""
_WORDS = ("and", "or", "not", "if", "else")
_SUM: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub}
_PRODUCT: dict[str, Callable[[Any, Any], Any]] = {
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}


class ExpressionError(ValueError):
    """An expression cannot be parsed or has no value."""


class UnknownNameError(ExpressionError):
    """An expression uses an undefined name."""

    def __init__(self, name: str) -> None:
        """Store the name, so that the caller can suggest a similar one."""
        self.name = name
        super().__init__(f"unknown name '{name}'")


def is_expression(value: object) -> bool:
    """Return whether a JSON value is an expression: a string that begins with `=`."""
    return isinstance(value, str) and value.startswith("=")


def names_in(text: str) -> tuple[str, ...]:
    """Return the names in an expression, in order of appearance.

    >>> names_in("4*d_model + d_k")
    ('d_model', 'd_k')
    """
    return tuple(dict.fromkeys(value for kind, value in _tokens(text) if kind == "name"))


def words_in(text: str) -> frozenset[str]:
    """Return every word of a text except the functions that it calls; the text may be invalid.

    >>> sorted(words_in("f[B S min(4*d_model,64)"))
    ['B', 'S', 'd_model', 'f']
    """
    return frozenset(match[1] for match in WORD.finditer(text) if match[1] and not calls(match))


def calls(match: re.Match[str]) -> bool:
    """Return whether a word of a text is a function that the text calls."""
    return match[0] in FUNCTIONS and match.string[match.end() :].lstrip().startswith("(")


def evaluate(text: str, values: Mapping[str, Any]) -> Any:
    """Return the value of an expression (without its leading `=`).

    A single name gives its value of any kind: a number, a string or a block choice.
    Arithmetic needs numbers.

    Raises:
        ExpressionError: the text is not an expression, has an unknown name, or its value is
            out of bounds.

    >>> evaluate("4*d_model", {"d_model": 512})
    2048
    """
    tokens = _tokens(text)
    if len(tokens) == 1 and tokens[0][0] == "name":
        return _lookup(tokens[0][1], values)
    parser = _Parser(tokens, values)
    result = parser.comparison(0)
    if parser.at < len(tokens):
        word = tokens[parser.at][1]
        hint = "; write each condition as an entry of its own" if word in _WORDS else ""
        msg = f"'{word}' is unexpected here{hint}"
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
        match = _TOKEN.match(text, at)
        if match is None:
            bad = text[at:].strip()[:1]
            msg = f"'{bad}' is not allowed in an expression{_INSTEAD.get(bad, '')}"
            raise ExpressionError(msg)
        kind = match.lastgroup or ""
        if match.group(kind) == "(" and tokens and tokens[-1][0] == "name":
            name = tokens.pop()[1]
            if name not in FUNCTIONS:
                msg = f"'{name}(' is a call; the only functions are {', '.join(FUNCTIONS)}"
                raise ExpressionError(msg)
            tokens.append(("function", name))
        tokens.append((kind, match.group(kind)))
        at = match.end()
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
    """Reject the result of a comparison where a number is needed."""
    if isinstance(value, bool):
        msg = "a comparison is not a number"
        raise ExpressionError(msg)
    return value


def _bounded(value: Any) -> Any:
    """Reject numbers beyond `LARGEST` and results that are not finite real numbers."""
    if isinstance(value, complex) or (isinstance(value, float) and not math.isfinite(value)):
        msg = "the value is not a finite number"
        raise ExpressionError(msg)
    if abs(value) > LARGEST:
        msg = "the value is larger than 2**53"
        raise ExpressionError(msg)
    return value


class _Parser:
    """Recursive-descent parser with Python's precedence: compare, sum, product, sign, power."""

    def __init__(self, tokens: list[tuple[str, str]], values: Mapping[str, Any]) -> None:
        self.tokens, self.values, self.at = tokens, values, 0

    def peek(self) -> str:
        """Return the next token if it is an operator, else an empty string."""
        if self.at < len(self.tokens) and self.tokens[self.at][0] == "operator":
            return self.tokens[self.at][1]
        return ""

    def comparison(self, depth: int) -> Any:
        """Parse a sum, or two sums with a comparison between them."""
        operand = self.binary(_SUM, lambda: self.binary(_PRODUCT, lambda: self.sign(depth)))
        compare = _COMPARE.get(self.peek())
        if compare is None:
            return operand
        self.at += 1
        return compare(
            operand, self.binary(_SUM, lambda: self.binary(_PRODUCT, lambda: self.sign(depth)))
        )

    def binary(
        self, table: Mapping[str, Callable[[Any, Any], Any]], part: Callable[[], Any]
    ) -> Any:
        """Parse operands joined by operators of one precedence, left to right."""
        result = part()
        while self.peek() in table:
            symbol = self.peek()
            self.at += 1
            result, right = _real(result), _real(part())
            if symbol in ("/", "//", "%") and right == 0:
                msg = f"'{symbol}' divides by zero"
                raise ExpressionError(msg)
            result = _bounded(table[symbol](result, right))
        return result

    def sign(self, depth: int) -> Any:
        """Parse an optional sign and a power."""
        if depth > DEEPEST:
            msg = f"nested more than {DEEPEST} levels deep"
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
        """Parse a number, a name or an expression in parentheses."""
        if self.at >= len(self.tokens):
            msg = "the expression ends too early"
            raise ExpressionError(msg)
        kind, text = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            return _bounded(int(text) if text.isdigit() else float(text))
        if kind == "name":
            return _number(_lookup(text, self.values), text)
        if kind == "function":
            return self.call(text, depth + 1)
        if text != "(":
            msg = f"'{text}' is unexpected here"
            raise ExpressionError(msg)
        value = self.comparison(depth + 1)
        if self.peek() != ")":
            msg = "a parenthesis is not closed"
            raise ExpressionError(msg)
        self.at += 1
        return value

    def call(self, name: str, depth: int) -> Any:
        """Parse the arguments of a function, and return its value."""
        self.at += 1  # the parenthesis, without which the name would be that of a param
        arguments = [_real(self.comparison(depth))]
        while self.peek() == ",":
            self.at += 1
            arguments.append(_real(self.comparison(depth)))
        if self.peek() != ")":
            msg = "a parenthesis is not closed"
            raise ExpressionError(msg)
        self.at += 1
        function, least, most = FUNCTIONS[name]
        if not least <= len(arguments) <= most:
            count = least if least == most else f"{least} to {most}"
            msg = f"'{name}' takes {count} argument{'s' * (most != 1)}, not {len(arguments)}"
            raise ExpressionError(msg)
        return _bounded(function(*arguments))
