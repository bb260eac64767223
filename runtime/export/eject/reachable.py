"""What the entry points of a file reach: definitions, methods and class attributes."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from .rewriting import Chunk, Edit, Function, Group

_KNOWN: Mapping[str, Any] = {"torch": torch, "nn": nn, "F": functional}
_BY_NAME = frozenset({"forward", "begin", "step", "initialize", "read_prompt"})
"""Methods that generated classes call, or that are looked up by name."""


@dataclass(slots=True)
class File:
    """The chunks of a file, by what they define."""

    chunks: list[Chunk]
    entries: Collection[str]
    """Top-level names that are used from outside."""
    by_name: dict[str, Chunk] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Index the definitions."""
        for chunk in self.chunks:
            for name in defined(chunk.node):
                self.by_name[name] = chunk
            if isinstance(chunk.node, ast.ClassDef):
                self.classes[chunk.node.name] = chunk.node

    def reached(self, *, annotations: bool) -> set[str]:
        """Return the names that the entry points refer to, directly or not."""
        waiting = [
            chunk
            for chunk in self.chunks
            if not defined(chunk.node) and not isinstance(chunk.node, ast.Import | ast.ImportFrom)
        ]
        found = {name for name in self.entries if name in self.by_name}
        waiting += [self.by_name[name] for name in found]
        while waiting:
            for name in read(waiting.pop(), annotations=annotations):
                if name in self.by_name and name not in found:
                    found.add(name)
                    waiting.append(self.by_name[name])
        return found

    def inherited(self, node: ast.ClassDef) -> set[str] | None:
        """Return the names of the attributes of base classes, or None if a base is unknown."""
        found: set[str] = set()
        for base in node.bases:
            name = ast.unparse(base)
            if name in self.classes:
                theirs = self.inherited(self.classes[name])
                own = {one.name for one in self.classes[name].body if isinstance(one, _METHOD)}
            else:
                known = torch_class(name)
                theirs, own = (None if known is None else set(dir(known))), set()
            if theirs is None:
                return None
            found |= theirs | own
        return found

    def family(self, owner: str) -> set[str]:
        """Return a class and the classes that inherit from it."""
        found = {owner}
        while True:
            more = {
                name
                for name, one in self.classes.items()
                if name not in found and {ast.unparse(base) for base in one.bases} & found
            }
            if not more:
                return found
            found |= more


_METHOD = ast.FunctionDef


def torch_class(dotted: str) -> Any:
    """Return the class of torch with a dotted name such as `nn.Module`, or None."""
    first, *rest = dotted.split(".")
    found = _KNOWN.get(first)
    for name in rest:
        found = getattr(found, name, None)
    return found


def defined(node: ast.stmt | None) -> set[str]:
    """Return the names that a statement defines."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return {node.name}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {one.id for each in targets for one in ast.walk(each) if isinstance(one, ast.Name)}
    return set()


@functools.lru_cache(maxsize=8192)
def read(chunk: Chunk, *, annotations: bool) -> set[str]:
    """Return the names of the file that a top-level statement refers to."""
    found: set[str] = set()
    waiting: list[ast.AST] = list(chunk.body)
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.Name):
            if one not in chunk.local:
                found.add(one.id)
            continue
        skipped = []
        if not annotations:
            skipped = [getattr(one, "annotation", None), getattr(one, "returns", None)]
        waiting += [child for child in ast.iter_child_nodes(one) if child not in skipped]
    return found


def unused(file: File) -> Iterator[Group]:
    """Yield the edits that remove definitions and methods that nothing refers to."""
    reached = file.reached(annotations=True)
    every = [node for chunk in file.chunks for node in chunk.nodes]
    named = {node.attr for node in every if isinstance(node, ast.Attribute)}
    named |= {str(node.value) for node in every if isinstance(node, ast.Constant)}
    for chunk in file.chunks:
        node = chunk.node
        names = defined(node)
        if node is not None and names and not names & reached:
            yield [chunk.removed(node)]
        elif isinstance(node, ast.ClassDef) and node.name not in file.entries:
            theirs = file.inherited(node)
            kept = named | (theirs or set()) | _BY_NAME
            for one in node.body if theirs is not None else ():
                name = one.name if isinstance(one, _METHOD) else "__"
                if not name.startswith("__") and name not in kept:
                    yield [chunk.removed(one)]


def methods(file: File) -> dict[str, tuple[Chunk, Function]]:
    """Return the methods that only this file calls: private, with one definition of the name."""
    found: dict[str, list[tuple[Chunk, Function]]] = {}
    outside: set[str] = set()
    for chunk in file.chunks:
        if not isinstance(chunk.node, ast.ClassDef):
            continue
        theirs = file.inherited(chunk.node)
        for one in chunk.node.body:
            if isinstance(one, _METHOD):
                found.setdefault(one.name, []).append((chunk, one))
                if theirs is None or one.name in theirs:
                    outside.add(one.name)
    return {
        name: each[0]
        for name, each in found.items()
        if len(each) == 1
        and name.startswith("_")
        and not name.startswith("__")
        and name not in outside
    }


def attributes(file: File) -> Iterator[Group]:
    """Yield the edits that put constant class attributes where methods read them.

    An attribute is constant if nothing that is reached assigns one of its name.
    """
    alive = [name for name in file.by_name if name not in file.classes]
    for chunk in file.chunks:
        alive += read(chunk, annotations=False) - defined(chunk.node)
    reached = {*alive, *file.entries}
    live = [
        chunk
        for chunk in file.chunks
        if not (isinstance(chunk.node, ast.ClassDef) and chunk.node.name not in reached)
    ]
    assigned = {name for chunk in live for name in _assigned(file, chunk)}
    if "" in assigned:
        return
    constants: dict[str, tuple[Chunk, ast.ClassDef, ast.stmt, str]] = {}
    number: Counter[str] = Counter()
    for chunk in file.chunks:
        if isinstance(chunk.node, ast.ClassDef):
            constants |= dict(_constants(file, chunk, chunk.node))
            number.update(name for one in chunk.node.body for name in defined(one))
    for name, (owner, node, statement, value) in constants.items():
        if name not in assigned and number[name] == 1:
            family = file.family(node.name)
            uses = [_uses(chunk, name, family, value) for chunk in live]
            yield from ([edit] for edits, _ in uses for edit in edits)
            if not any(others for _, others in uses):
                yield [owner.removed(statement)]


def _uses(chunk: Chunk, name: str, family: Collection[str], value: str) -> tuple[list[Edit], bool]:
    """Return the edits that put a constant for an attribute, and whether it has other uses."""
    mine = isinstance(chunk.node, ast.ClassDef) and chunk.node.name in family
    edits, others = [], False
    for one in chunk.nodes:
        if isinstance(one, ast.Attribute) and one.attr == name:
            own = isinstance(one.value, ast.Name) and one.value.id == "self"
            if mine and own and one not in chunk.formatted:
                edits.append(chunk.replaced(one, value))
            else:
                others = True
        elif isinstance(one, ast.Constant) and one.value == name:
            others = True
    return edits, others


def _constants(
    file: File, chunk: Chunk, node: ast.ClassDef
) -> Iterator[tuple[str, tuple[Chunk, ast.ClassDef, ast.stmt, str]]]:
    """Yield the class attributes whose value is a literal or a constant of the file."""
    records = {"NamedTuple", "Protocol"}
    if node.decorator_list or records & {ast.unparse(base) for base in node.bases}:
        return
    for one in node.body:
        if not isinstance(one, ast.Assign | ast.AnnAssign) or one.value is None:
            continue
        value = one.value
        plain = isinstance(value, ast.Constant)
        plain = plain or (isinstance(value, ast.Dict) and not value.keys)
        if isinstance(value, ast.Name) and value.id in file.by_name:
            plain = value.id not in file.classes
        for name in defined(one) if plain else ():
            yield name, (chunk, node, one, chunk.source(value))


def _assigned(file: File, chunk: Chunk) -> Iterator[str]:
    """Yield the names of attributes that a chunk assigns; an empty one if it can be any."""
    names, calls = _stores(chunk)
    yield from names
    for call in calls:
        yield from _possible(file, chunk, call.args[1])


@functools.lru_cache(maxsize=8192)
def _stores(chunk: Chunk) -> tuple[set[str], list[ast.Call]]:
    """Return the attributes that a chunk assigns, and its calls of `setattr`."""
    every = [one for one in chunk.nodes if isinstance(one, ast.Attribute | ast.Call)]
    calls = [one for one in every if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)]
    return (
        {
            one.attr
            for one in every
            if isinstance(one, ast.Attribute) and not isinstance(one.ctx, ast.Load)
        },
        [one for one in calls if ast.unparse(one.func) in ("setattr", "delattr")],
    )


def _possible(file: File, chunk: Chunk, name: ast.expr) -> list[str]:
    """Return the values of the name of an attribute; an empty text if they are unknown."""
    if isinstance(name, ast.Constant):
        return [str(name.value)]
    around: ast.AST | None = name
    while around is not None and isinstance(name, ast.Name):
        if isinstance(around, ast.For) and ast.unparse(around.target) == name.id:
            each: ast.expr | None = around.iter
            if isinstance(each, ast.Name) and each.id in file.by_name:
                made = file.by_name[each.id].node
                each = made.value if isinstance(made, ast.Assign | ast.AnnAssign) else None
            if isinstance(each, ast.Tuple | ast.List):
                return [str(e.value) if isinstance(e, ast.Constant) else "" for e in each.elts]
        around = chunk.parents.get(around)
    return [""]
