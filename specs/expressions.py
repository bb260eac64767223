"""Parser and evaluator of arithmetic expressions.

An expression is a string such as `4*d_model` or `d_model % heads == 0`.  It may contain
integers, floats, names, `+ - * / // % **`, parentheses, comparisons, `and`, `or`, `not`, the
functions of `FUNCTIONS`, and `inf`.  It has no attributes, other calls, indices or strings, so an
expression cannot execute code.  The expressions of params are evaluated here on numbers; that of
an `elementwise` block is computed on tensors.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
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
COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_GELU_TANH = math.sqrt(2 / math.pi)


def _sigmoid(x: float) -> float:
    """Return 1 / (1 + exp(-x)), which never overflows."""
    return 0.5 * (1 + math.tanh(0.5 * x))


FUNCTIONS: dict[str, tuple[Callable[..., Any], int, int]] = {
    "min": (min, 1, 8),
    "max": (max, 1, 8),
    "ceil": (math.ceil, 1, 1),
    "floor": (math.floor, 1, 1),
    "abs": (abs, 1, 1),
    "sqrt": (math.sqrt, 1, 1),
    "exp": (math.exp, 1, 1),
    "log": (math.log, 1, 1),
    "sin": (math.sin, 1, 1),
    "cos": (math.cos, 1, 1),
    "tanh": (math.tanh, 1, 1),
    "erf": (math.erf, 1, 1),
    "sigmoid": (_sigmoid, 1, 1),
    "softplus": (lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x))), 1, 1),
    "relu": (lambda x: max(x, 0), 1, 1),
    "gelu": (lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))), 1, 1),
    "gelu_tanh": (
        lambda x: 0.5 * x * (1 + math.tanh(_GELU_TANH * (x + 0.044715 * x**3))),
        1,
        1,
    ),
    "silu": (lambda x: x * _sigmoid(x), 1, 1),
    "elu": (lambda x: x if x > 0 else math.expm1(x), 1, 1),
    "squared_relu": (lambda x: max(x, 0) ** 2, 1, 1),
    "quick_gelu": (lambda x: x * _sigmoid(1.702 * x), 1, 1),
    "leaky_relu": (lambda x: max(x, 0.01 * x), 1, 1),
    "mish": (lambda x: x * math.tanh(max(x, 0.0) + math.log1p(math.exp(-abs(x)))), 1, 1),
    "hard_swish": (lambda x: x * min(max(x + 3, 0), 6) / 6, 1, 1),
    "where": (lambda condition, x, z: x if condition else z, 3, 3),
    "detach": (lambda x: x, 1, 1),
}
"""Name of a function to the function, and its least and greatest number of arguments."""
CONSTANTS: Mapping[str, float] = {"inf": math.inf, "pi": math.pi}
"""Names of constants, which only an `elementwise` block reads; params may have these names."""
_INSTEAD = {
    "^": "; write ** for a power",
    "&": "; write 'and' between conditions",
    "|": "; write 'or' between conditions",
    "~": "; write 'not' before a condition",
    "=": "; write == to compare",
    "'": "; an expression has numbers and names only",
    '"': "; an expression has numbers and names only",
}
"""Character that is not allowed to what to write instead."""
LOGIC = frozenset({"and", "or", "not"})
"""Words that join conditions; no param or port has these names."""
_SUM = ("+", "-")
_PRODUCT = ("*", "/", "//", "%")
ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "negative": operator.neg,
}
"""Operator to its function for numbers."""


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


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or a function with its arguments."""

    function: str
    """The operator as written, a name of `FUNCTIONS`, or `negative` for a sign."""
    arguments: tuple[Expression, ...]


Expression = Call | str | int | float
"""A call, a name, or a number."""


@functools.lru_cache(maxsize=4_096)
def parsed(text: str) -> Expression:
    """Return an expression (without its leading `=`) as a tree.

    Raises:
        ExpressionError: the text is not an expression.

    >>> parsed("4*d_model")
    Call(function='*', arguments=(4, 'd_model'))
    """
    tokens = _tokens(text)
    parser = _Parser(tokens)
    result = parser.disjunction(0)
    if parser.at < len(tokens):
        msg = f"'{tokens[parser.at][1]}' is unexpected here"
        raise ExpressionError(msg)
    return result


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
    tree = parsed(text)
    return _lookup(tree, values) if isinstance(tree, str) else value_of(tree, values)


def leaves(tree: Expression) -> frozenset[str]:
    """Return the names in a tree."""
    if isinstance(tree, Call):
        return frozenset().union(*map(leaves, tree.arguments))
    return frozenset({tree}) if isinstance(tree, str) else frozenset()


def value_of(tree: Expression, values: Mapping[str, Any]) -> Any:
    """Return the value of a tree: a finite number, or a boolean; errors as for `evaluate`."""
    if isinstance(tree, str):
        return _number(_lookup(tree, values), tree)
    if not isinstance(tree, Call):
        return _bounded(tree)
    name = tree.function
    if name in LOGIC:
        conditions = (_condition(argument, name, values) for argument in tree.arguments)
        return (
            not next(conditions) if name == "not" else (all if name == "and" else any)(conditions)
        )
    if name == "where":
        chosen = tree.arguments[1 if _condition(tree.arguments[0], name, values) else 2]
        return _real(value_of(chosen, values))
    arguments = [value_of(argument, values) for argument in tree.arguments]
    if name in COMPARISONS:
        return COMPARISONS[name](*arguments)
    return _bounded(_computed(name, [_real(argument) for argument in arguments]))


def _computed(name: str, arguments: list[Any]) -> Any:
    """Return the result of an operator or a function for numbers."""
    if name in ("/", "//", "%") and arguments[1] == 0:
        msg = f"'{name}' divides by zero"
        raise ExpressionError(msg)
    if name == "**":
        base, power = arguments
        if abs(power) > HIGHEST_POWER or (base == 0 and power < 0):
            msg = f"the power {power} is out of bounds"
            raise ExpressionError(msg)
    try:
        return (ARITHMETIC[name] if name in ARITHMETIC else FUNCTIONS[name][0])(*arguments)
    except OverflowError as error:
        msg = "the value is larger than 2**53"
        raise ExpressionError(msg) from error
    except ValueError as error:
        msg = f"'{name}' has no value for {', '.join(map(str, arguments))}"
        raise ExpressionError(msg) from error


def _condition(tree: Expression, name: str, values: Mapping[str, Any]) -> bool:
    value = _lookup(tree, values) if isinstance(tree, str) else value_of(tree, values)
    if not isinstance(value, bool):
        msg = f"'{name}' needs a condition, such as a comparison"
        raise ExpressionError(msg)
    return value


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
        word = match.group(kind)
        tokens.append(("operator" if word in LOGIC else kind, word))
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
    """Recursive-descent parser with Python's precedence.

    From the weakest: or, and, not, compare, sum, product, sign, power.
    """

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.tokens, self.at = tokens, 0

    def peek(self) -> str:
        """Return the next token if it is an operator, else an empty string."""
        if self.at < len(self.tokens) and self.tokens[self.at][0] == "operator":
            return self.tokens[self.at][1]
        return ""

    def disjunction(self, depth: int) -> Expression:
        """Parse conditions joined by `or`, or a single value."""

        def conjunction() -> Expression:
            return self.binary({"and"}, lambda: self.negation(depth))

        return self.binary({"or"}, conjunction)

    def negation(self, depth: int) -> Expression:
        """Parse a comparison after any number of `not`."""
        _refuse_depth(depth)
        if self.peek() != "not":
            return self.comparison(depth)
        self.at += 1
        return Call("not", (self.negation(depth + 1),))

    def comparison(self, depth: int) -> Expression:
        """Parse a sum, or two sums with a comparison between them."""

        def total() -> Expression:
            return self.binary(_SUM, lambda: self.binary(_PRODUCT, lambda: self.sign(depth)))

        operand, symbol = total(), self.peek()
        if symbol not in COMPARISONS:
            return operand
        self.at += 1
        return Call(symbol, (operand, total()))

    def binary(self, symbols: Collection[str], operand: Callable[[], Expression]) -> Expression:
        """Parse operands joined by operators of one precedence, left to right."""
        result = operand()
        while (symbol := self.peek()) in symbols:
            self.at += 1
            result = Call(symbol, (result, operand()))
        return result

    def sign(self, depth: int) -> Expression:
        """Parse an optional sign and a power."""
        _refuse_depth(depth)
        if self.peek() == "-":
            self.at += 1
            return Call("negative", (self.sign(depth + 1),))
        base = self.atom(depth)
        if self.peek() != "**":
            return base
        self.at += 1
        return Call("**", (base, self.sign(depth + 1)))

    def atom(self, depth: int) -> Expression:
        """Parse a number, a name or an expression in parentheses."""
        if self.at >= len(self.tokens):
            msg = "the expression ends too early"
            raise ExpressionError(msg)
        kind, text = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            number: int | float = _bounded(int(text) if text.isdigit() else float(text))
            return number
        if kind == "name":
            return text
        if kind == "function":
            return self.call(text, depth + 1)
        if text != "(":
            msg = f"'{text}' is unexpected here"
            raise ExpressionError(msg)
        value = self.disjunction(depth + 1)
        self.close()
        return value

    def call(self, name: str, depth: int) -> Expression:
        """Parse the arguments of a function."""
        self.at += 1  # the parenthesis, without which the name would be that of a param
        arguments = [self.disjunction(depth)]
        while self.peek() == ",":
            self.at += 1
            arguments.append(self.disjunction(depth))
        self.close()
        _, least, most = FUNCTIONS[name]
        if not least <= len(arguments) <= most:
            count = least if least == most else f"{least} to {most}"
            msg = f"'{name}' takes {count} argument{'s' * (most != 1)}, not {len(arguments)}"
            raise ExpressionError(msg)
        return Call(name, tuple(arguments))

    def close(self) -> None:
        """Parse a closing parenthesis."""
        if self.peek() != ")":
            msg = "a parenthesis is not closed"
            raise ExpressionError(msg)
        self.at += 1


def _refuse_depth(depth: int) -> None:
    if depth > DEEPEST:
        msg = f"nested more than {DEEPEST} levels deep"
        raise ExpressionError(msg)
