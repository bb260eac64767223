"""Formatting of generated source for readability.

`lower` writes every argument in full and lines of any length.  Here, arguments equal to a
constructor's defaults are omitted, and long lines are broken.
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
from collections.abc import Mapping
from typing import Any

WIDTH = 100
"""Most characters in a line."""

_EMPTY = re.compile(r"\{\n *\}")

Defaults = Mapping[str, Mapping[str, Any]]
"""Class name to its constructor's default values by parameter."""


def laid_out(source: str, defaults: Defaults) -> str:
    """Return generated source formatted for reading; its behavior is the same.

    Args:
        source: source written by `lower`.
        defaults: constructor defaults of the classes in the source.
    """
    lines = source.splitlines()
    replacements: dict[int, tuple[int, list[str]]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign) and _constructs(node.value, defaults):
            target = ast.unparse(node.targets[0])
            pad = " " * node.col_offset
            text = (
                f"{pad}{target} = {_value(node.value, defaults, node.col_offset, len(target) + 3)}"
            )
            replacements[node.lineno - 1] = node.end_lineno or node.lineno, text.splitlines()
    formatted: list[str] = []
    index = 0
    while index < len(lines):
        end, texts = replacements.get(index, (index + 1, lines[index : index + 1]))
        for text in texts:
            formatted += _broken(text)
        index = end
    return _EMPTY.sub("{}", "\n".join(formatted)) + "\n"


def _constructs(node: ast.expr, defaults: Defaults) -> bool:
    return any(
        isinstance(child, ast.Call)
        and isinstance(child.func, ast.Name)
        and child.func.id in defaults
        for child in ast.walk(node)
    )


def _value(node: ast.expr, defaults: Defaults, indent: int, before: int = 0) -> str:
    """Return an expression as text; calls omit arguments equal to the defaults.

    Args:
        node: the expression.
        defaults: constructor defaults by class.
        indent: indentation of the line, in spaces.
        before: characters between the indentation and the expression.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return json.dumps(node.value, ensure_ascii=False)
    if not isinstance(node, ast.Call):
        return ast.unparse(node).replace("'", '"')
    name = ast.unparse(node.func)
    default_values = defaults.get(name, {})
    words = [(word.arg, word.value) for word in node.keywords]
    explicit = [(arg, value) for arg, value in words if not _is_default(arg, value, default_values)]
    arguments = [_value(argument, defaults, indent + 4) for argument in node.args]
    arguments += [
        f"{arg}={_value(value, defaults, indent + 4, len(arg or '') + 1)}"
        for arg, value in explicit
    ]
    line = f"{name}({', '.join(arguments)})"
    if "\n" not in line and indent + before + len(line) <= WIDTH:
        return line
    pad = " " * (indent + 4)
    inner = ", ".join(arguments)
    if "\n" not in inner and len(pad) + len(inner) <= WIDTH:
        return f"{name}(\n{pad}{inner}\n{' ' * indent})"
    return (
        f"{name}(\n" + "".join(f"{pad}{argument},\n" for argument in arguments) + f"{' ' * indent})"
    )


def _is_default(name: str | None, value: ast.expr, default_values: Mapping[str, Any]) -> bool:
    if name is None or name not in default_values or not isinstance(value, ast.Constant):
        return False
    default = default_values[name]
    return type(default) is type(value.value) and bool(default == value.value)


def _broken(line: str) -> list[str]:
    """Break a line that is too long: its last bracket's contents go on their own lines."""
    if len(line) <= WIDTH:
        return [line]
    indent = len(line) - len(line.lstrip())
    if line.lstrip().startswith('"""'):
        if not line.endswith('"""'):
            return [line]
        words = textwrap.wrap(line.strip(), WIDTH - indent, break_long_words=False)
        return [" " * indent + text for text in words]
    opened = _last_bracket(line)
    if opened is None:
        target, equals, right = line.partition(" = ")
        return (
            [f"{target} = (", f"{' ' * (indent + 4)}{right}", f"{' ' * indent})"]
            if equals
            else [line]
        )
    closed = len(line) - 1 if line[-1] in ")]}" else len(line) - 2
    inner = line[opened + 1 : closed]
    pad = " " * (indent + 4)
    fits = len(pad) + len(inner) <= WIDTH and line[opened] != "{"
    body = [f"{pad}{inner}"] if fits else _parts(inner, pad)
    return [line[: opened + 1], *body, " " * indent + line[closed:]]


def _last_bracket(line: str) -> int | None:
    """Return the position of the bracket that closes at the end of a line."""
    end = line.rstrip(",:")
    if not end or end[-1] not in ")]}" or len(line) - len(end) > 1:
        return None
    depth = 0
    for index in range(len(end) - 1, -1, -1):
        depth += (end[index] in ")]}") - (end[index] in "([{")
        if depth == 0:
            return index
    return None


def _parts(inner: str, pad: str) -> list[str]:
    """Return arguments one per line, or the two parts of a comprehension."""
    element, comprehends, clause = inner.partition(" for ")
    if comprehends:
        return [f"{pad}{element}", f"{pad}for {clause}"]
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(inner):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append(inner[start:index].strip())
            start = index + 1
    parts.append(inner[start:].strip())
    return [f"{pad}{part}," for part in parts if part]


def defaults_of(classes: Mapping[str, ast.ClassDef]) -> dict[str, dict[str, Any]]:
    """Return constructor defaults, including those of parents reached through **kwargs.

    Args:
        classes: class name to definition, including parent classes.
    """
    defaults: dict[str, dict[str, Any]] = {}

    def of(name: str) -> dict[str, Any]:
        definition = classes.get(name)
        if definition is None:
            return {}
        start = next(
            (
                member
                for member in definition.body
                if isinstance(member, ast.FunctionDef) and member.name == "__init__"
            ),
            None,
        )
        parents = [base.id for base in definition.bases if isinstance(base, ast.Name)]
        above = {key: value for parent in parents for key, value in of(parent).items()}
        if start is None:
            return above
        declared = _own_defaults(start.args)
        return {**above, **declared} if start.args.kwarg is not None else declared

    for name in classes:
        defaults[name] = of(name)
    return defaults


def _own_defaults(arguments: ast.arguments) -> dict[str, Any]:
    pairs = [
        *zip(
            arguments.args[len(arguments.args) - len(arguments.defaults) :],
            arguments.defaults,
            strict=True,
        ),
        *(
            (arg, value)
            for arg, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        ),
    ]
    return {arg.arg: value.value for arg, value in pairs if isinstance(value, ast.Constant)}
