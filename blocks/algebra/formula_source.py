"""Source of formulas: their Python expressions over tensors."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType

from ...graphs.ir.python_names import argument
from ...specs.expressions import CONSTANTS, Call, Expression, leaves, value_of

_MODULES = {
    "torch": (
        "exp",
        "log",
        "sqrt",
        "abs",
        "sin",
        "cos",
        "tanh",
        "erf",
        "sigmoid",
        "relu",
        "ceil",
        "floor",
    ),
    "nn.functional": ("softplus", "gelu", "silu", "elu", "leaky_relu", "mish"),
}
_FUNCTIONS = {name: f"{module}.{name}" for module, names in _MODULES.items() for name in names}
_FUNCTIONS["hard_swish"] = "nn.functional.hardswish"
"""Function to its name in the generated code."""
_BINARY: Mapping[str, ast.operator] = {
    "+": ast.Add(),
    "-": ast.Sub(),
    "*": ast.Mult(),
    "/": ast.Div(),
    "//": ast.FloorDiv(),
    "%": ast.Mod(),
    "**": ast.Pow(),
    "and": ast.BitAnd(),
    "or": ast.BitOr(),
}
_COMPARED: Mapping[str, ast.cmpop] = {
    "==": ast.Eq(),
    "!=": ast.NotEq(),
    "<": ast.Lt(),
    "<=": ast.LtE(),
    ">": ast.Gt(),
    ">=": ast.GtE(),
}


def python_of(tree: Expression, values: Mapping[str, float]) -> ast.expr:
    """Return a formula as Python; its numbers are computed.

    Args:
        tree: the formula; its other names are those of tensors.
        values: the numbers that it reads by name.

    Raises:
        ExpressionError: a part without tensors has no value, such as `1 / 0`.
    """
    number = number_of(tree, values)
    if number is not None:
        return ast.Constant(number)
    if not isinstance(tree, Call):
        infinite = tree in CONSTANTS and tree not in values
        return _name(f"float('{tree}')") if infinite else ast.Name(argument(str(tree)))
    name, arguments = tree.function, [python_of(part, values) for part in tree.arguments]
    if name in _FUNCTIONS:
        return ast.Call(_name(_FUNCTIONS[name]), arguments, [])
    return _OTHERS[name](*arguments)


def text_of(tree: Expression) -> str:
    """Write a formula, with a bracket around every operation.

    >>> text_of(parsed("2 * x + z"))
    '((2 * x) + z)'
    """
    if not isinstance(tree, Call):
        return str(tree)
    name, parts = tree.function, [text_of(part) for part in tree.arguments]
    if name in _BINARY or name in _COMPARED:
        return f"({parts[0]} {name} {parts[1]})"
    if name in _SIGNS:
        return f"({_SIGNS[name]}{parts[0]})"
    return f"{name}({', '.join(parts)})"


_SIGNS = {"negative": "-", "not": "not "}
"""Operator before its only part to how it is written."""


def _name(text: str) -> ast.expr:
    """Return a dotted name or another simple expression."""
    return ast.parse(text, mode="eval").body


def _extreme(name: str, first: ast.expr, second: ast.expr) -> ast.expr:
    """Return the smaller or larger of two values, of which one may be a number."""
    if isinstance(first, ast.Constant):
        first, second = second, first
    if isinstance(second, ast.Constant):
        bound = ast.keyword("max" if name == "min" else "min", second)
        return ast.Call(_name("torch.clamp"), [first], [bound])
    return ast.Call(
        _name("torch.minimum" if name == "min" else "torch.maximum"), [first, second], []
    )


def _called(function: str, x: ast.expr) -> ast.expr:
    return ast.Call(_name(function), [x], [])


def _where(condition: ast.expr, x: ast.expr, z: ast.expr) -> ast.expr:
    if isinstance(condition, ast.Constant):
        return x if condition.value else z
    return ast.Call(_name("torch.where"), [condition, x, z], [])


def number_of(tree: Expression, values: Mapping[str, float] = MappingProxyType({})) -> float | None:
    """Return the value of a part of a formula that reads no port; None if it reads one, or `inf`.

    Raises:
        ExpressionError: it has no value, such as `1 / 0`.
    """
    numbers = {"pi": CONSTANTS["pi"], **values}
    return value_of(tree, numbers) if leaves(tree) <= numbers.keys() else None


def _binary(operator: ast.operator) -> Callable[..., ast.expr]:
    return lambda x, z: ast.BinOp(x, operator, z)


def _compared(operator: ast.cmpop) -> Callable[..., ast.expr]:
    return lambda x, z: ast.Compare(x, [operator], [z])


_OTHERS: Mapping[str, Callable[..., ast.expr]] = {
    **{name: _binary(operator) for name, operator in _BINARY.items()},
    **{name: _compared(operator) for name, operator in _COMPARED.items()},
    "negative": lambda x: ast.UnaryOp(ast.USub(), x),
    "not": lambda x: ast.UnaryOp(ast.Invert(), x),
    "min": lambda *parts: functools.reduce(functools.partial(_extreme, "min"), parts),
    "max": lambda *parts: functools.reduce(functools.partial(_extreme, "max"), parts),
    "where": _where,
    "detach": lambda x: ast.Call(ast.Attribute(x, "detach"), [], []),
    "squared_relu": lambda x: ast.Call(ast.Attribute(_called("torch.relu", x), "square"), [], []),
    "quick_gelu": lambda x: ast.BinOp(
        x, ast.Mult(), _called("torch.sigmoid", ast.BinOp(ast.Constant(1.702), ast.Mult(), x))
    ),
    "gelu_tanh": lambda x: ast.Call(
        _name("nn.functional.gelu"), [x], [ast.keyword("approximate", ast.Constant("tanh"))]
    ),
}
"""Every other operator or function to what makes its expression."""
