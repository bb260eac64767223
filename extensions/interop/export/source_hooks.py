"""Hooks of training that an ejected file does not have: what to cut out of the source of blocks.

Weft trains on batches without padding, and keeps low-precision copies of weights.  Blocks have
hooks for this, which do nothing in a file of plain PyTorch: attributes, calls that return their
argument, and parameters that are always None.  An edit replaces a piece of a definition by text.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from typing import NamedTuple

KERNEL = "product_kernel"
"""Attribute with the kernel of products, which functions take as an argument with a default."""
ATTRIBUTES = frozenset({"batched", "copied", "copies", "places", KERNEL})
"""Attributes of blocks that only hooks read."""
METHODS = frozenset({"attention_weights", "read_prompt", "_rows", "_without_padding"})
"""Methods that only hooks and Weft's own tools call."""
UNCHANGED = frozenset({"with_padding", "without_padding"})
"""Functions that return their first argument."""
ABSENT = "_rows"
"""Method whose result is None, and so are the variables that hold it."""
WEIGHT = "operand"
"""Function of a module and the name of a weight, which returns the weight."""
ROWS = "rows"
"""Parameter of methods that is None."""
_ROWS_TYPE = "Rows"


class SourceEdit(NamedTuple):
    """A piece of a file from a position up to another one, and what replaces it."""

    start: tuple[int, int]
    """Line from 0, and offset in bytes."""
    end: tuple[int, int]
    text: str = ""

    def holds(self, node: ast.AST) -> bool:
        """Return whether a node is inside."""
        return self.start <= _start(node) and _end(node) <= self.end


def _start(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0) - 1, getattr(node, "col_offset", 0)


def _end(node: ast.AST) -> tuple[int, int]:
    return (getattr(node, "end_lineno", 0) or 0) - 1, getattr(node, "end_col_offset", 0) or 0


def edits_of(statement: ast.stmt) -> list[SourceEdit]:
    """Return the edits of a definition at the top of a file; none is inside another one."""
    if isinstance(statement, ast.ClassDef):
        edits = [*_members(statement), *_calls(statement), *_parameters(statement)]
        methods = [member for member in statement.body if isinstance(member, ast.FunctionDef)]
        edits += [edit for method in methods for edit in _statements(method)]
    else:
        edits = [*_calls(statement)]
    return [
        edit
        for edit in dict.fromkeys(edits)
        if not any(
            other != edit and other.start <= edit.start and edit.end <= other.end for other in edits
        )
    ]


def _lines(first: ast.AST, last: ast.AST, before: int = 0) -> SourceEdit:
    """Return the edit that removes all lines of some statements, and as many lines before them."""
    return SourceEdit((_start(first)[0] - before, 0), (_end(last)[0] + 1, 0))


def _members(definition: ast.ClassDef) -> Iterator[SourceEdit]:
    """Yield the edits that remove attributes with their docstrings, and methods."""
    for index, member in enumerate(definition.body):
        if isinstance(member, ast.FunctionDef) and member.name in METHODS:
            yield _lines(member, member, before=1)
        elif isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
            if member.target.id not in ATTRIBUTES:
                continue
            after = definition.body[index + 1] if index + 1 < len(definition.body) else member
            yield _lines(member, after if isinstance(after, ast.Expr) else member)


def _calls(node: ast.AST) -> Iterator[SourceEdit]:
    """Yield the edits that replace calls by what they return."""
    for call in ast.walk(node):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            continue
        passed = sorted([*call.args, *call.keywords], key=_start)
        for before, last in itertools.pairwise(passed):
            value = last.value if isinstance(last, ast.keyword) else last
            if isinstance(value, ast.Attribute) and value.attr == KERNEL:
                yield SourceEdit(_end(before), _end(last))
        if call.func.id in UNCHANGED:
            yield SourceEdit(_start(call), _start(call.args[0]))
            yield SourceEdit(_end(call.args[0]), _end(call))
        elif call.func.id == WEIGHT:
            module, name = call.args
            if isinstance(name, ast.Constant):
                yield SourceEdit(_start(call), _end(call), f"{ast.unparse(module)}.{name.value!s}")
            else:
                yield SourceEdit(_start(call.func), _end(call.func), "getattr")


def _statements(method: ast.FunctionDef) -> Iterator[SourceEdit]:
    """Yield the edits that remove variables that are None, and conditions that they are not."""
    absent = set[str]()
    for statement in method.body:
        calls = [node for node in ast.walk(statement) if _is_absent(node)]
        if isinstance(statement, ast.Assign) and calls:
            absent |= {node.id for node in statement.targets if isinstance(node, ast.Name)}
            yield _lines(statement, statement)
        elif isinstance(statement, ast.If) and _asks_for(statement.test, absent):
            yield _lines(statement, statement)


def _is_absent(node: ast.AST) -> bool:
    """Return whether a node calls the method whose result is None."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == ABSENT
    )


def _asks_for(test: ast.expr, absent: set[str]) -> bool:
    """Return whether a test demands that an absent variable is not None."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    return any(
        isinstance(part, ast.Compare)
        and isinstance(part.left, ast.Name)
        and part.left.id in absent
        and isinstance(part.ops[0], ast.IsNot)
        for part in parts
    )


def _parameters(definition: ast.ClassDef) -> Iterator[SourceEdit]:
    """Yield the edits that remove the parameter of absent rows from methods and their calls."""
    places: dict[str, int] = {}
    for method in definition.body:
        if not isinstance(method, ast.FunctionDef):
            continue
        names = [argument.arg for argument in method.args.args]
        position = names.index(ROWS) if ROWS in names else 0
        if position and _ROWS_TYPE in ast.unparse(
            method.args.args[position].annotation or method.args
        ):
            places[method.name] = position - 1
            yield _without(method.args.args, method.args.defaults, position)
    for call in ast.walk(definition):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            position = places.get(call.func.attr, len(call.args))
            if position < len(call.args):
                yield SourceEdit(_end(call.args[position - 1]), _end(call.args[position]))


def _without(arguments: list[ast.arg], defaults: list[ast.expr], position: int) -> SourceEdit:
    """Return the edit that removes an argument with its default, and the comma before it."""
    first = len(arguments) - len(defaults)
    before, end = (
        _end(defaults[index - first] if index >= first else arguments[index])
        for index in (position - 1, position)
    )
    return SourceEdit(before, end)
