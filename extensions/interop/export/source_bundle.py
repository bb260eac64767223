"""Gather the definitions that some Python code needs from several files into one.

Files are parsed, never run.  Only needed definitions are copied: a definition, those that it
names, those that they name, and so on, in the order of their files.  If two files use the same
name, a number is appended to one of them.
"""

from __future__ import annotations

import ast
import importlib.util
import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ....plugin import InputError
from .source_hooks import SourceEdit, edits_of

WIDTH = 100
"""Most characters in a line."""
_NOTE_TO_LINTERS = re.compile(r"  # (noqa|type: ignore)\b.*$", re.MULTILINE)

_Outside = tuple[str, str, str]
"""Module, name in it (`` for the module itself), and local alias of an import that is kept."""


@dataclass(frozen=True, slots=True, order=True)
class SourceSymbol:
    """A definition at the top of a file."""

    module: str
    name: str


@dataclass(slots=True)
class _Piece:
    """Position and names of one definition."""

    first: int
    """Line, counted from 0."""
    end: int
    kind: type[ast.stmt]
    names: list[ast.Name]
    edits: list[SourceEdit]
    """What to cut out."""


@dataclass(slots=True)
class SourceFile:
    """One parsed file: its definitions and imports."""

    module: str
    lines: list[str]
    doc: str
    pieces: dict[str, _Piece] = field(default_factory=dict)
    inside: dict[str, SourceSymbol] = field(default_factory=dict)
    """Local name to the definition in another gathered file."""
    outside: dict[str, _Outside] = field(default_factory=dict)
    """Local name to an import that is kept."""
    same: dict[str, str] = field(default_factory=dict)
    """Constant to the first constant of its statement: B to `A` in `A, B = 1, 2`."""

    @classmethod
    def parse(cls, module: str, text: str, ours: Iterable[str]) -> SourceFile:
        """Parse a file.

        Args:
            module: full name of the module.
            text: its content.
            ours: top-level names of the packages whose files are gathered.
        """
        tree = ast.parse(text)
        doc = (ast.get_docstring(tree) or "").partition("\n")[0]
        source = cls(module, text.splitlines(), doc)
        source._statements(tree.body, frozenset(ours))
        return source

    def _statements(self, body: list[ast.stmt], ours: frozenset[str]) -> None:
        for index, statement in enumerate(body):
            if isinstance(statement, ast.If):
                self._statements(statement.body, ours)  # `if TYPE_CHECKING`
            elif isinstance(statement, ast.Import):
                for alias in statement.names:
                    local = alias.asname or alias.name.partition(".")[0]
                    self.outside[local] = (alias.name, "", alias.asname or "")
            elif isinstance(statement, ast.ImportFrom):
                self._import_from(statement, ours)
            else:
                after = body[index + 1] if index + 1 < len(body) else None
                self._definition(statement, after)

    def _import_from(self, statement: ast.ImportFrom, ours: frozenset[str]) -> None:
        parents = self.module.split(".")[: -statement.level] if statement.level else []
        module = ".".join([*parents, *([statement.module] if statement.module else [])])
        for alias in statement.names:
            local = alias.asname or alias.name
            if module.partition(".")[0] in ours:
                self.inside[local] = SourceSymbol(module, alias.name)
            elif module != "__future__":
                relative = "." * statement.level + module
                self.outside[local] = (relative, alias.name, alias.asname or "")

    def _definition(self, statement: ast.stmt, after: ast.stmt | None) -> None:
        """Record a class, function or constant, with its comment and the docstring below it."""
        end = statement.end_lineno or statement.lineno
        line = statement.lineno
        if isinstance(statement, ast.ClassDef | ast.FunctionDef):
            name = statement.name
            line = min([line, *(decorator.lineno for decorator in statement.decorator_list)])
        elif isinstance(statement, ast.Assign) and (targets := _targets(statement)):
            name = targets[0]
            self.same |= dict.fromkeys(targets[1:], name)
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
        else:
            return
        has_docstring = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if (
            has_docstring
            and after is not None
            and not isinstance(statement, ast.ClassDef | ast.FunctionDef)
        ):
            end = after.end_lineno or end
        start = line - 1
        while start and self.lines[start - 1].startswith("#"):
            start -= 1
        edits = edits_of(statement)
        names = [
            node
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and not any(edit.holds(node) for edit in edits)
        ]
        self.pieces[name] = _Piece(start, end, type(statement), names, edits)


def _targets(statement: ast.Assign) -> list[str]:
    """Return the names that a statement assigns."""
    target = statement.targets[0]
    elements = target.elts if isinstance(target, ast.Tuple) else [target]
    return [element.id for element in elements if isinstance(element, ast.Name)]


class Gatherer:
    """Collects definitions by following names from file to file."""

    def __init__(
        self,
        packages: Iterable[str],
        replacements: Mapping[SourceSymbol, SourceSymbol] | None = None,
    ) -> None:
        """Start with no files.

        Args:
            packages: top-level names of the packages whose files are gathered.
            replacements: a definition to the one that the file has instead of it.
        """
        self.replacements = replacements or {}
        self.packages = frozenset(packages)
        self.sources: dict[str, SourceFile] = {}
        self.required: set[SourceSymbol] = set()

    def add_text(self, module: str, text: str, names: Iterable[str] | None = None) -> None:
        """Add a text as the source of a module, and include definitions of it.

        Args:
            module: name of the module.
            text: its source.
            names: the definitions to include, with those that they need; all if not given.
        """
        self.sources[module] = SourceFile.parse(module, text, self.packages)
        for name in self.sources[module].pieces if names is None else names:
            self.want(SourceSymbol(module, name))

    def want(self, symbol: SourceSymbol) -> None:
        """Include a definition, and every definition that it needs.

        Raises:
            InputError: the file cannot be read or does not contain the definition.
        """
        waiting = [symbol]
        while waiting:
            origin = self._origin(waiting.pop())
            if origin in self.required:
                continue
            self.required.add(origin)
            waiting += self._needs(origin)

    def _origin(self, symbol: SourceSymbol) -> SourceSymbol:
        """Return the defining symbol, following imports between files and replacements."""
        symbol = self.replacements.get(symbol, symbol)
        source = self._source(symbol.module)
        if symbol.name in source.same:
            return SourceSymbol(symbol.module, source.same[symbol.name])
        if symbol.name in source.pieces:
            return symbol
        if symbol.name in source.inside:
            return self._origin(source.inside[symbol.name])
        raise InputError(f"'{symbol.name}' is not defined at the top level of {symbol.module}")

    def _source(self, module: str) -> SourceFile:
        if module not in self.sources:
            spec = importlib.util.find_spec(module)
            if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
                raise InputError(f"the source of {module} is not available")
            text = Path(spec.origin).read_text(encoding="utf-8")
            self.sources[module] = SourceFile.parse(module, text, self.packages)
        return self.sources[module]

    def _needs(self, symbol: SourceSymbol) -> Iterator[SourceSymbol]:
        source = self.sources[symbol.module]
        for name in sorted({name_node.id for name_node in source.pieces[symbol.name].names}):
            if name in source.pieces or name in source.same:
                yield self._origin(SourceSymbol(symbol.module, name))
            elif name in source.inside:
                yield self._origin(source.inside[name])

    def render(self, titles: Mapping[str, str]) -> str:
        """Return the included definitions as the body of one file, imports first.

        Args:
            titles: section titles of modules, overriding their first docstring line.
        """
        order, outside, names = self._order(), self._outside(), self.names()
        parts = [_imports([imported for _, imported in outside])]
        for module in order:
            source = self.sources[module]
            mine = [name for name in source.pieces if SourceSymbol(module, name) in self.required]
            head = f"# --- {titles.get(module, source.doc or module)}"
            parts.append("\n\n" + head[:WIDTH].rstrip() if mine else "")
            previous: type[ast.stmt] | None = None
            for name in mine:
                piece = source.pieces[name]
                are_assignments = {previous, piece.kind} <= {ast.Assign, ast.AnnAssign}
                parts.append(
                    ("" if are_assignments else "\n\n")
                    + self._text(SourceSymbol(module, name), names)
                )
                previous = piece.kind
        return "\n".join(part for part in parts if part).replace("\n\n\n", "\n\n", 1) + "\n"

    def classes(self) -> dict[str, ast.ClassDef]:
        """Return the included classes by their names in their own files."""
        definitions: dict[str, ast.ClassDef] = {}
        for symbol in sorted(self.required):
            source = self.sources[symbol.module]
            piece = source.pieces[symbol.name]
            if piece.kind is ast.ClassDef:
                text = "\n".join(source.lines[piece.first : piece.end])
                definition = ast.parse(text).body[0]
                if isinstance(definition, ast.ClassDef):
                    definitions[symbol.name] = definition
        return definitions

    def _order(self) -> list[str]:
        """Return the files, each after the files that it needs."""
        order: list[str] = []

        def visit(module: str) -> None:
            for symbol in sorted(
                candidate for candidate in self.required if candidate.module == module
            ):
                for need in sorted(self._needs(symbol)):
                    if need.module != module and need.module not in visited:
                        visited.add(need.module)
                        visit(need.module)
            order.append(module)

        visited: set[str] = set()
        for module in self.sources:
            if module not in visited and any(
                candidate.module == module for candidate in self.required
            ):
                visited.add(module)
                visit(module)
        return order

    def _outside(self) -> list[tuple[str, _Outside]]:
        """Return the kept imports by local name."""
        imports: dict[str, _Outside] = {}
        for symbol in sorted(self.required):
            source = self.sources[symbol.module]
            for name_node in source.pieces[symbol.name].names:
                if name_node.id in source.outside:
                    imported = source.outside[name_node.id]
                    if imports.setdefault(name_node.id, imported) != imported:
                        raise InputError(
                            f"'{name_node.id}' names two different imports, the second in"
                            f" {symbol.module}"
                        )
        return sorted(imports.items())

    def names(self) -> dict[SourceSymbol, str]:
        """Return a unique name in the bundled file for every definition."""
        names: dict[SourceSymbol, str] = {}
        taken = {local for local, _ in self._outside()}
        for module in self._order():
            for name in self.sources[module].pieces:
                symbol = SourceSymbol(module, name)
                if symbol not in self.required:
                    continue
                unique, number = name, 2
                while unique in taken:
                    unique, number = f"{name}{number}", number + 1
                taken.add(unique)
                names[symbol] = unique
        return names

    def _text(self, symbol: SourceSymbol, names: dict[SourceSymbol, str]) -> str:
        """Return the text of a definition, with names replaced by their unique names."""
        source = self.sources[symbol.module]
        piece = source.pieces[symbol.name]
        edits = list(piece.edits)
        for name_node in piece.names:
            target = SourceSymbol(symbol.module, name_node.id)
            target = (
                target if name_node.id in source.pieces else source.inside.get(name_node.id, target)
            )
            new = (
                names.get(self._origin(target))
                if target in self.required or (name_node.id in source.inside)
                else None
            )
            if new is not None and new != name_node.id:
                row, column = name_node.lineno - 1, name_node.col_offset
                edits.append(
                    SourceEdit((row, column), (row, column + len(name_node.id.encode())), new)
                )
        text = _edited(source.lines[: piece.end], piece.first, edits)
        text = _NOTE_TO_LINTERS.sub("", text)
        new = names[symbol]
        if new != symbol.name and piece.kind in (ast.ClassDef, ast.FunctionDef):
            word = "class" if piece.kind is ast.ClassDef else "def"
            text = text.replace(f"{word} {symbol.name}", f"{word} {new}", 1)
        return text


def _edited(lines: list[str], first: int, edits: Iterable[SourceEdit]) -> str:
    """Return lines from one on, after edits of which none is inside another one."""
    rows = [f"{line}\n".encode() for line in lines]
    starts = [0, *itertools.accumulate(map(len, rows))]
    data = b"".join(rows)
    for edit in sorted(edits, reverse=True):
        start, end = (starts[row] + column for row, column in (edit.start, edit.end))
        data = data[:start] + edit.text.encode() + data[end:]
    return data[starts[first] :].decode().removesuffix("\n")


def _imports(imports: list[_Outside]) -> str:
    """Return import statements, standard library first."""
    groups: dict[bool, list[str]] = {True: [], False: []}
    modules = sorted({(module, as_) for module, name, as_ in imports if not name})
    for module, as_ in modules:
        standard = module.partition(".")[0] in sys.stdlib_module_names
        groups[standard].append(f"import {module}" + (f" as {as_}" if as_ else ""))
    for module in sorted({module for module, name, _ in imports if name}):
        standard = module.partition(".")[0] in sys.stdlib_module_names
        names = sorted(
            {
                name + (f" as {as_}" if as_ else "")
                for m, name, as_ in imports
                if m == module and name
            }
        )
        groups[standard].append(f"from {module} import {', '.join(names)}")
    blocks = ["\n".join(lines) for lines in groups.values() if lines]
    return "\n\n".join(blocks)
