"""Edits of Python source: replace nodes, arguments and statements, and keep the other text."""

from __future__ import annotations

import ast
import functools
from bisect import bisect, insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from .source_format import WIDTH

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Edit(NamedTuple):
    """Bytes of a chunk, and what replaces them."""

    chunk: Chunk
    first: int
    end: int
    new: str


Group = list[Edit]
"""Edits of which all are made, or none."""


@dataclass(slots=True, eq=False)
class Chunk:
    """A parsed top-level statement, with the comments above it and the docstring below it."""

    data: bytes
    body: list[ast.stmt]
    """The statement, and its docstring; empty if it has been removed."""
    starts: list[int]
    """First byte of each line."""
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)
    formatted: set[ast.AST] = field(default_factory=set)
    """Nodes inside of f-strings, which cannot be edited: Python 3.11 misplaces them."""
    nodes: list[ast.AST] = field(default_factory=list)
    """All nodes."""
    local: set[ast.AST] = field(default_factory=set)
    """Names that are local to a function."""

    @property
    def node(self) -> ast.stmt | None:
        """The statement."""
        return self.body[0] if self.body else None

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return the bytes of a node."""
        first = self.starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = self.starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        return first, end

    def source(self, node: ast.AST) -> str:
        """Return the text of a node."""
        first, end = self.span(node)
        return self.data[first:end].decode()

    def lines(self, first: int, end: int) -> tuple[int, int]:
        """Return the bytes of lines, counted from 1, the last one included."""
        return self.starts[first - 1], self.starts[end]

    def replaced(self, node: ast.AST, new: str) -> Edit:
        """Return the edit that replaces a node by a text."""
        return Edit(self, *self.span(node), new)

    def removed(self, statement: ast.stmt) -> Edit:
        """Return the edit that removes a statement, with its comments and docstring.

        The only statement of a block becomes `pass`.
        """
        block = next(each for each in blocks(self.parents[statement]) if statement in each)
        place = block.index(statement)
        last: ast.stmt = statement
        if isinstance(statement, ast.Assign | ast.AnnAssign) and is_text(block, place + 1):
            last = block[place + 1]
        decorators = getattr(statement, "decorator_list", [])
        first = min([statement.lineno, *(one.lineno for one in decorators)])
        while first > 1 and self._is_comment(first - 1, statement.col_offset):
            first -= 1
        top = isinstance(self.parents[statement], ast.Module | ast.ClassDef)
        while top and first > 1 and not self._line(first - 1).strip():
            first -= 1
        begin, end = self.lines(first, last.end_lineno or last.lineno)
        left = [one for one in block if one not in (statement, last)]
        if isinstance(self.parents[statement], ast.Module):
            left = block  # a file may be empty
        return Edit(self, begin, end, "" if left else " " * statement.col_offset + "pass\n")

    def _line(self, number: int) -> bytes:
        return self.data[slice(*self.lines(number, number))]

    def _is_comment(self, number: int, indent: int) -> bool:
        line = self._line(number)
        mine = len(line) - len(line.lstrip()) == indent
        return mine and line.lstrip().startswith(b"#") and not line.startswith(b"# --- ")

    def listed(self, opened: int, closed: int, parts: Sequence[str]) -> Edit:
        """Return the edit that writes parts between two brackets, on one line if they fit.

        Args:
            opened: byte of the opening bracket.
            closed: byte of the closing one.
            parts: the arguments.
        """
        begin = self.data.rfind(b"\n", 0, opened) + 1
        end = self.data.find(b"\n", closed)
        line = self.data[begin:opened].decode()
        indent = len(line) - len(line.lstrip())
        inner = ", ".join(parts)
        after = self.data[closed:end].decode()
        if "\n" not in inner and len(line) + 1 + len(inner) + len(after) <= WIDTH:
            return Edit(self, opened + 1, closed, inner)
        pad = " " * (indent + 4)
        if "\n" not in inner and len(pad) + len(inner) <= WIDTH:
            return Edit(self, opened + 1, closed, f"\n{pad}{inner}\n{' ' * indent}")
        each = "".join(f"\n{pad}{part}," for part in parts)
        return Edit(self, opened + 1, closed, f"{each}\n{' ' * indent}")

    def without_arguments(self, call: ast.Call, gone: Sequence[ast.AST | None]) -> Edit:
        """Return the edit that removes arguments, or keywords, of a call."""
        kept = [one for one in (*call.args, *call.keywords) if one not in gone]
        kept.sort(key=self.span)
        opened = self.data.index(b"(", self.span(call.func)[1])
        return self.listed(opened, self.span(call)[1] - 1, [self.source(one) for one in kept])

    def without_parameters(self, function: Function, names: Collection[str]) -> Edit:
        """Return the edit that removes parameters of a function."""
        given = function.args
        known = [*given.posonlyargs, *given.args]
        none: list[ast.expr | None] = [None] * (len(known) - len(given.defaults))
        parts = []
        for arg, default in zip(known, [*none, *given.defaults], strict=True):
            if arg.arg not in names:
                parts.append(self._parameter(arg, default))
            if given.posonlyargs and arg is given.posonlyargs[-1]:
                parts.append("/")
        rest = [
            self._parameter(arg, default)
            for arg, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
            if arg.arg not in names
        ]
        if given.vararg is not None:
            parts.append(f"*{self.source(given.vararg)}")
        elif rest:
            parts.append("*")
        parts += rest
        if given.kwarg is not None:
            parts.append(f"**{self.source(given.kwarg)}")
        opened = self.data.index(b"(", self.span(function)[0])
        inside = [self.span(one)[1] for one in ast.walk(given) if hasattr(one, "end_lineno")]
        return self.listed(opened, self.data.index(b")", max(inside)), parts)

    def _parameter(self, arg: ast.arg, default: ast.expr | None) -> str:
        if default is None:
            return self.source(arg)
        equals = " = " if arg.annotation else "="
        return f"{self.source(arg)}{equals}{self.source(default)}"

    def instead(self, statement: ast.If, *, holds: bool) -> Edit:
        """Return the edit that replaces an `if` by the branch that is always taken."""
        begin, end = self.lines(statement.lineno, statement.end_lineno or statement.lineno)
        indent = statement.col_offset
        is_elif = self.data[self.span(statement)[0] :].startswith(b"elif")
        body = statement.body if holds else statement.orelse
        if not body:
            return Edit(self, begin, end, "")
        first = body[0]
        if isinstance(first, ast.If) and self.data[self.span(first)[0] :].startswith(b"elif"):
            text = self.data[slice(*self.lines(first.lineno, first.end_lineno or 0))].decode()
            new = text if is_elif else text.replace("elif", "if", 1)
            return Edit(self, begin, end, new)
        head = self._before(statement, body)
        text = self.data[head : self.starts[body[-1].end_lineno or 0]].decode()
        if is_elif:
            return Edit(self, begin, end, f"{' ' * indent}else:\n{text}")
        return Edit(self, begin, end, dedented(text))

    def _before(self, statement: ast.If, body: list[ast.stmt]) -> int:
        """Return the first byte of a branch, with the comments above its first statement."""
        decorators = getattr(body[0], "decorator_list", [])
        first: int = min([body[0].lineno, *(one.lineno for one in decorators)])
        least = (statement.test.end_lineno or 0) + 1 if body is statement.body else statement.lineno
        while first > least and self._line(first - 1).lstrip().startswith(b"#"):
            first -= 1
        return self.lines(first, first)[0]


@functools.lru_cache(maxsize=4096)
def chunk_of(source: str) -> Chunk:
    """Parse the text of one top-level statement."""
    data = source.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = ast.parse(source)
    made = Chunk(data, tree.body, starts)
    for node in ast.walk(tree):
        made.parents |= dict.fromkeys(ast.iter_child_nodes(node), node)
        if isinstance(node, ast.JoinedStr):
            made.formatted |= set(ast.walk(node)) - {node}
    made.nodes = list(made.parents)
    for statement in tree.body:
        _bind(made, statement, frozenset())
    return made


def _bind(chunk: Chunk, node: ast.AST, bound: frozenset[str]) -> None:
    """Find the names inside a node that are local to a function."""
    if isinstance(node, ast.Name):
        if node.id in bound:
            chunk.local.add(node)
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        bound |= {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
        bound |= {
            one.id
            for one in ast.walk(node)
            if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)
        }
    for child in ast.iter_child_nodes(node):
        _bind(chunk, child, bound)


def split(source: str) -> list[Chunk]:
    """Return the chunks of a file."""
    lines = source.splitlines(keepends=True)
    body = ast.parse(source).body
    chunks: list[Chunk] = []
    first = 0
    for place, statement in enumerate(body):
        constant = isinstance(statement, ast.Assign | ast.AnnAssign)
        if constant and is_text(body, place + 1):
            continue
        end = statement.end_lineno or statement.lineno
        chunks.append(chunk_of("".join(lines[first:end])))
        first = end
    return [*chunks, chunk_of("".join(lines[first:]))]


def applied(chunks: list[Chunk], groups: Iterable[Group]) -> list[Chunk]:
    """Return chunks after groups of edits; a group that overlaps an earlier one is left."""
    accepted: dict[Chunk, list[tuple[int, int, str]]] = {}
    for group in groups:
        mine: dict[Chunk, list[tuple[int, int, str]]] = {}
        for edit in group:
            mine.setdefault(edit.chunk, []).append(edit[1:])
        clear = all(
            one[1] <= other[0] for each in mine.values() for one, other in pairwise(sorted(each))
        )
        if clear and not any(
            _overlaps(accepted.get(chunk, []), one) for chunk, each in mine.items() for one in each
        ):
            for chunk, each in mine.items():
                for one in each:
                    insort(accepted.setdefault(chunk, []), one)
    return [_edited(chunk, accepted[chunk]) if chunk in accepted else chunk for chunk in chunks]


def _overlaps(accepted: list[tuple[int, int, str]], edit: tuple[int, int, str]) -> bool:
    place = bisect(accepted, edit)
    before, after = accepted[:place][-1:], accepted[place : place + 1]
    return any(one[1] > edit[0] for one in before) or any(one[0] < edit[1] for one in after)


def _edited(chunk: Chunk, edits: list[tuple[int, int, str]]) -> Chunk:
    made: list[bytes] = []
    place = 0
    for first, end, new in edits:
        made += [chunk.data[place:first], new.encode()]
        place = end
    return chunk_of(b"".join([*made, chunk.data[place:]]).decode())


def dedented(text: str) -> str:
    """Return lines with four spaces less before each."""
    return "".join(line.removeprefix("    ") for line in text.splitlines(keepends=True))


def blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of statements inside a node."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
            yield block


def is_text(block: Sequence[ast.stmt], place: int) -> bool:
    """Return whether there is a docstring at a place of a block."""
    if place >= len(block):
        return False
    one = block[place]
    return (
        isinstance(one, ast.Expr)
        and isinstance(one.value, ast.Constant)
        and isinstance(one.value.value, str)
    )
