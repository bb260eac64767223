"""Constant folding of Python source: comparisons and branches whose result is known."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from .rewriting import Chunk, Edit, Group, blocks

_UNKNOWN: Any = object()


def folded(chunk: Chunk) -> Iterator[Group]:
    """Yield the edits that evaluate comparisons of constants and remove branches not taken."""
    for node in chunk.nodes:
        if node in chunk.formatted:
            continue
        edit = None
        if isinstance(node, ast.If | ast.For):
            edit = _statement(chunk, node)
        elif isinstance(node, ast.IfExp):
            edit = _choice(chunk, node)
        elif isinstance(node, ast.BoolOp):
            edit = _bool(chunk, node)
        elif isinstance(node, ast.Compare | ast.UnaryOp):
            known = value_of(node)
            edit = chunk.replaced(node, str(known)) if isinstance(known, bool) else None
        if edit is not None:
            yield [edit]
        for block in blocks(node):
            yield from _after_the_end(chunk, block)


def _statement(chunk: Chunk, node: ast.If | ast.For) -> Edit | None:
    """Return the edit for an `if` whose branch is known, or a loop over nothing."""
    if isinstance(node, ast.For):
        empty = isinstance(node.iter, ast.Tuple) and not node.iter.elts and not node.orelse
        return chunk.removed(node) if empty else None
    known = value_of(node.test)
    if known is not _UNKNOWN:
        return chunk.instead(node, holds=bool(known))
    idle = not node.orelse and all(isinstance(one, ast.Pass) for one in node.body)
    return chunk.removed(node) if idle and is_pure(node.test) else None


def _choice(chunk: Chunk, node: ast.IfExp) -> Edit | None:
    """Return the edit for `a if test else b` if the test is known, or both are one constant."""
    known = value_of(node.test)
    if known is not _UNKNOWN:
        return _reduced(chunk, node, node.body if known else node.orelse)
    same = isinstance(node.body, ast.Constant) and ast.dump(node.body) == ast.dump(node.orelse)
    return _reduced(chunk, node, node.body) if same and is_pure(node.test) else None


def is_pure(node: ast.expr) -> bool:
    """Return whether an expression can be left out: it calls nothing."""
    effects = ast.Call | ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr
    return not any(isinstance(one, effects) for one in ast.walk(node))


def value_of(node: ast.expr) -> Any:
    """Return the value of an expression of constants; `_UNKNOWN` for any other."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = value_of(node.operand)
        return _UNKNOWN if inner is _UNKNOWN else not inner
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _compared(node.left, node.ops[0], node.comparators[0])
    return _UNKNOWN


def _compared(left: ast.expr, op: ast.cmpop, right: ast.expr) -> Any:
    if isinstance(op, ast.In | ast.NotIn) and isinstance(right, ast.Dict | ast.Tuple | ast.List):
        inside = right.keys if isinstance(right, ast.Dict) else right.elts
        simple = isinstance(left, ast.Name | ast.Constant)
        return isinstance(op, ast.NotIn) if not inside and simple else _UNKNOWN
    one, other = value_of(left), value_of(right)
    if one is _UNKNOWN or other is _UNKNOWN:
        return _UNKNOWN
    if isinstance(op, ast.Is | ast.IsNot) and None in (one, other):
        return (one is other) == isinstance(op, ast.Is)
    if isinstance(op, ast.Eq | ast.NotEq):
        return (one == other) == isinstance(op, ast.Eq)
    if isinstance(op, ast.Gt | ast.Lt) and all(isinstance(n, int | float) for n in (one, other)):
        return one > other if isinstance(op, ast.Gt) else one < other
    return _UNKNOWN


def _bool(chunk: Chunk, node: ast.BoolOp) -> Edit | None:
    """Fold `and` and `or`: what decides ends it, and what does not is dropped."""
    decides = isinstance(node.op, ast.Or)
    kept: list[ast.expr] = []
    for place, one in enumerate(node.values):
        known = value_of(one)
        last = place == len(node.values) - 1
        if known is _UNKNOWN:
            kept.append(one)
        elif bool(known) == decides:
            kept.append(one)
            break
        elif last and not (kept and _is_test(chunk, node)):
            kept.append(one)
    if len(kept) == len(node.values):
        return None
    if len(kept) == 1:
        return _reduced(chunk, node, kept[0])
    word = " or " if decides else " and "
    return chunk.replaced(node, word.join(_wrapped(chunk, one) for one in kept))


def _is_test(chunk: Chunk, node: ast.expr) -> bool:
    """Return whether only the truth of an expression matters."""
    parent = chunk.parents[node]
    if isinstance(parent, ast.If | ast.IfExp | ast.While):
        return parent.test is node
    if isinstance(parent, ast.BoolOp):
        return _is_test(chunk, parent)
    return isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)


def _reduced(chunk: Chunk, node: ast.expr, by: ast.expr) -> Edit:
    """Replace an expression by a part of it."""
    simple = isinstance(chunk.parents[node], ast.stmt | ast.keyword | ast.Call)
    return chunk.replaced(node, chunk.source(by) if simple else _wrapped(chunk, by))


def _wrapped(chunk: Chunk, node: ast.expr) -> str:
    compound = ast.BoolOp | ast.IfExp | ast.Lambda | ast.Compare | ast.BinOp | ast.UnaryOp
    return f"({chunk.source(node)})" if isinstance(node, compound) else chunk.source(node)


def _after_the_end(chunk: Chunk, block: list[ast.stmt]) -> Iterator[Group]:
    """Remove what follows a `return` or `raise` in a block, and `pass` beside statements."""
    for place, statement in enumerate(block):
        if isinstance(statement, ast.Return | ast.Raise) and block[place + 1 :]:
            begin = chunk.starts[statement.end_lineno or 0]
            yield [Edit(chunk, begin, chunk.starts[block[-1].end_lineno or 0], "")]
            return
        if isinstance(statement, ast.Pass) and len(block) > 1:
            yield [chunk.removed(statement)]
