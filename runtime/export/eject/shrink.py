"""Shrink an ejected file: drop what its model cannot reach.

A file of blocks supports every param of theirs, and a model uses one combination.  The file is
closed: only its entry points are called from outside.  So a parameter that has the same constant
in all calls is that constant, a class attribute that is never assigned keeps its value, and
branches, functions, methods and imports that this makes unreachable are removed.  Nothing is
inferred about tensors.  The steps are repeated until nothing changes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping

from .folding import folded, is_pure
from .reachable import File, attributes, methods, unused
from .rewriting import Chunk, Function, Group, applied, blocks, is_text, split

_EMPTY_SECTION = re.compile(r"\n+# --- [^\n]*(?=\n+# --- |\n*\Z)")
_Call = tuple[Chunk, ast.Call]


def shrunk(source: str, entries: Collection[str], constants: Mapping[str, str]) -> str:
    """Return a file without what its entry points cannot reach.

    Args:
        source: the file.
        entries: top-level names that are used from outside.
        constants: functions whose result is known, and that result as source.
    """
    file = File(split(source), entries)
    done: set[Chunk] = set()
    while True:
        edits = [*attributes(file), *_calls(file, constants)]
        edits += [group for one in file.chunks if one not in done for group in folded(one)]
        if not edits:
            edits = [*(g for one in file.chunks for g in _unused_locals(one)), *unused(file)]
        if not edits:
            break
        done |= set(file.chunks)
        file = File(applied(file.chunks, edits), entries)
    edits = [group for chunk in file.chunks for group in _short_docstrings(chunk, entries)]
    edits += [group for chunk in file.chunks for group in _unused_imports(file, chunk)]
    text = b"".join(chunk.data for chunk in applied(file.chunks, edits)).decode()
    text = re.sub(r"(# --- [^\n]*)\n+", r"\1\n\n\n", text)
    return _EMPTY_SECTION.sub("", text).rstrip() + "\n"


def _calls(file: File, constants: Mapping[str, str]) -> Iterator[Group]:
    """Yield the edits that put in the constants that functions return and are called with."""
    functions = _functions(file)
    results = {name: known for name, known in constants.items() if name in functions}
    for name, (chunk, function, _) in functions.items():
        known = results.get(name) or _result(file, chunk, function)
        if known is not None:
            results[name] = known
    for name, (chunk, function, calls) in functions.items():
        if name in results or _returns_its_argument(function):
            for where, call in calls:
                given = [*call.args, *(word.value for word in call.keywords)]
                if name in results and all(is_pure(one) for one in given):
                    yield [where.replaced(call, results[name])]
                elif name not in results and len(call.args) == len(given) == 1:
                    yield [where.replaced(call, where.source(given[0]))]
            continue
        fixed = {
            arg.arg: value
            for arg in [*function.args.args, *function.args.kwonlyargs]
            if (value := _argument(file, chunk, function, calls, arg.arg)) is not None
            and _only_read(chunk, function, arg.arg)
        }
        if fixed:
            yield _without(chunk, function, calls, fixed)


def _without(
    chunk: Chunk, function: Function, calls: Collection[_Call], fixed: Mapping[str, str]
) -> Group:
    """Return the edits that remove parameters from a function and from its calls."""
    names = [one for one in ast.walk(function) if isinstance(one, ast.Name) and one.id in fixed]
    group = [chunk.replaced(one, fixed[one.id]) for one in names]
    group.append(chunk.without_parameters(function, fixed))
    for where, call in calls:
        gone = [_given(function, call, one) for one in fixed]
        if any(gone):
            group.append(where.without_arguments(call, gone))
    return group


def _functions(file: File) -> dict[str, tuple[Chunk, Function, list[_Call]]]:
    """Return the functions and methods whose calls are all known, with these calls."""
    found: dict[str, tuple[Chunk, Function]] = {
        chunk.node.name: (chunk, chunk.node)
        for chunk in file.chunks
        if isinstance(chunk.node, ast.FunctionDef)
    }
    private = methods(file)
    taken = {*file.entries, *(set(found) & set(private))}
    calls: dict[str, list[_Call]] = {}
    for chunk in file.chunks:
        for node in chunk.nodes:
            if isinstance(node, ast.Name):
                name, known = node.id, node.id in found and node not in chunk.local
            elif isinstance(node, ast.Attribute):
                name, known = node.attr, node.attr in private
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                taken.add(node.value)
                continue
            else:
                continue
            if not known:
                continue
            parent = chunk.parents[node]
            if (
                isinstance(parent, ast.Call)
                and parent.func is node
                and node not in chunk.formatted
                and not any(isinstance(one, ast.Starred) for one in parent.args)
            ):
                calls.setdefault(name, []).append((chunk, parent))
            else:
                taken.add(name)
    return {
        name: (chunk, function, calls[name])
        for name, (chunk, function) in {**found, **private}.items()
        if name in calls
        and name not in taken
        and not function.decorator_list
        and function.args.vararg is None
        and not function.args.posonlyargs
    }


def _result(file: File, chunk: Chunk, function: Function) -> str | None:
    """Return the constant that a function returns, as source."""
    body = function.body[is_text(function.body, 0) :]
    if len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
        return None
    value = body[0].value
    names_function = (
        isinstance(value, ast.Name)
        and value not in chunk.local
        and value.id in file.by_name
        and isinstance(file.by_name[value.id].node, ast.FunctionDef)
    )
    constant = names_function or _is_constant(file, chunk, value)
    return chunk.source(value) if constant else None


def _returns_its_argument(function: Function) -> bool:
    body = function.body[is_text(function.body, 0) :]
    if len(body) != 1 or not isinstance(body[0], ast.Return) or function.args.kwonlyargs:
        return False
    value, args = body[0].value, function.args.args
    return isinstance(value, ast.Name) and [one.arg for one in args] == [value.id]


def _argument(
    file: File, chunk: Chunk, function: Function, calls: Collection[_Call], name: str
) -> str | None:
    """Return the constant that a parameter has in every call, as source."""
    defaults = _defaults(function)
    found: set[str] = set()
    for where, call in calls:
        value = _given(function, call, name)
        if value is None:
            if name not in defaults or any(word.arg is None for word in call.keywords):
                return None
            node, place = defaults[name], chunk
        else:
            node = value.value if isinstance(value, ast.keyword) else value
            place = where
        if not _is_constant(file, place, node):
            return None
        found.add(place.source(node))
    return found.pop() if len(found) == 1 else None


def _defaults(function: Function) -> dict[str, ast.expr]:
    given = function.args
    last = given.args[len(given.args) - len(given.defaults) :]
    found = {arg.arg: value for arg, value in zip(last, given.defaults, strict=True)}
    pairs = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    return found | {arg.arg: value for arg, value in pairs if value is not None}


def _given(function: Function, call: ast.Call, name: str) -> ast.expr | ast.keyword | None:
    """Return the argument of a call for a parameter."""
    names = [arg.arg for arg in function.args.args]
    if isinstance(call.func, ast.Attribute):
        names = names[1:]
    place = names.index(name) if name in names else len(call.args)
    if place < len(call.args):
        return call.args[place]
    return next((word for word in call.keywords if word.arg == name), None)


def _only_read(chunk: Chunk, function: Function, name: str) -> bool:
    """Return whether a name is bound only once in a function, and its reads can be edited."""
    bound = 0
    for node in ast.walk(function):
        if isinstance(node, ast.arg) and node.arg == name:
            bound += 1
        elif isinstance(node, ast.Name) and node.id == name:
            bound += not isinstance(node.ctx, ast.Load) or node in chunk.formatted
    return bound == 1


def _is_constant(file: File, chunk: Chunk, node: ast.expr) -> bool:
    """Return whether an expression is a literal or names a constant of the file."""
    if isinstance(node, ast.Name):
        if node in chunk.local or node.id not in file.by_name:
            return False
        return isinstance(file.by_name[node.id].node, ast.Assign | ast.AnnAssign)
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Tuple) and not node.elts)


def _unused_locals(chunk: Chunk) -> Iterator[Group]:
    """Yield the edits that remove local variables that are not read, or that are constants."""
    for function in chunk.nodes:
        if not isinstance(function, ast.FunctionDef):
            continue
        names = [one for one in ast.walk(function) if isinstance(one, ast.Name)]
        fixed = {one.id for one in names if one in chunk.formatted}
        read = {one.id for one in names if isinstance(one.ctx, ast.Load)}
        stored = [one.id for one in names if not isinstance(one.ctx, ast.Load)]
        stored += [one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)]
        for statement in function.body:
            if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
                continue
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            target = targets[0]
            if not isinstance(target, ast.Name) or len(targets) > 1 or target.id in fixed:
                continue
            if target.id not in read and is_pure(statement.value):
                yield [chunk.removed(statement)]
            elif stored.count(target.id) == 1 and isinstance(statement.value, ast.Constant):
                value = chunk.source(statement.value)
                reads = [one for one in names if one.id == target.id and one is not target]
                yield [*(chunk.replaced(one, value) for one in reads), chunk.removed(statement)]


def _short_docstrings(chunk: Chunk, entries: Collection[str]) -> Iterator[Group]:
    """Yield the edits that leave the first paragraph of docstrings, and their source.

    Those of entry points are kept as they are.
    """
    if getattr(chunk.node, "name", None) in entries:
        return
    for one in [node for node in chunk.nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)]:
        for block in blocks(one):
            if is_text(block, 0):
                first, *rest = chunk.source(block[0]).removesuffix('"""').rstrip().split("\n\n")
                kept = [first, *(each for each in rest if each.lstrip().startswith("Source:"))]
                pad = " " * block[0].col_offset
                end = f'\n{pad}"""' if len(kept) > 1 else '"""'
                yield [chunk.replaced(block[0], "\n\n".join(kept) + end)]


def _unused_imports(file: File, chunk: Chunk) -> Iterator[Group]:
    """Yield the edits that remove imports that nothing uses."""
    node = chunk.node
    future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
    if not isinstance(node, ast.Import | ast.ImportFrom) or future:
        return
    used = {n.id for one in file.chunks for n in one.nodes if isinstance(n, ast.Name)}
    kept = [one for one in node.names if (one.asname or one.name.partition(".")[0]) in used]
    if not kept:
        yield [chunk.removed(node)]
    elif len(kept) < len(node.names):
        words = ", ".join(ast.unparse(one) for one in kept)
        head = f"from {node.module} import" if isinstance(node, ast.ImportFrom) else "import"
        yield [chunk.replaced(node, f"{head} {words}")]
