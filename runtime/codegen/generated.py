"""Generated modules: run the source of a program, and pickle objects of its classes.

The source is registered in `sys.modules` and `linecache` under a name made from its hash, so that
tracebacks show it, torch.compile finds it, and the same graph always gives the same classes.

A pickle stores a generated class as the spec that it was generated from, because the generated
module does not exist in another process.  Everything else is stored as in any module: weights,
buffers, hooks and attributes.  Opening a pickle can run code; checkpoints are the format for
exchange.
"""

from __future__ import annotations

import functools
import importlib
import linecache
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from torch import nn

from ...blocks.registry import registry
from ...graphs.checker.check import check
from ...graphs.ir.block_type import BlockType
from ...graphs.ir.execution import Execution
from ...graphs.ir.graph import Graph, Part
from ...graphs.ir.traverse import visits
from ...specs.findings import InputError
from ...specs.form import Spec
from .forward import PROJECTED
from .inputs import checked_call
from .module import Program, lower
from .plugin_modules import refuse_wrong_modules


def program_of(model: nn.Module) -> Program:
    """Return the program from which a model was built.

    Raises:
        InputError: the model was not built by Weft.
    """
    for kind in type(model).__mro__:
        program = getattr(sys.modules.get(kind.__module__), "__program__", None)
        if isinstance(program, Program):
            return program
    raise InputError(
        f"{type(model).__name__} was not built from a spec",
        help="pass a module from weft.build, or the module of an opened model",
    )


def generated_module(program: Program) -> ModuleType:
    """Return the generated module of a program, running its source the first time.

    Raises:
        InputError: the module of a block cannot be imported, created or called as the source does.
    """
    source = program.source
    for inner in program.models:
        made = generated_module(inner).__name__
        source = source.replace(f"from {inner.module} import", f"from {made} import")
    base = program.module
    name, number = base, 1
    while (known := sys.modules.get(name)) is not None:
        if _is_current(known, program.graph):
            return known
        name, number = f"{base}_{number}", number + 1
    refuse_wrong_modules(program)
    file = f"<{name}>"
    module = ModuleType(name)
    module.__file__ = file
    vars(module)["__program__"] = program
    try:
        # The source is generated from a checked graph: names are identifiers, values literals.
        exec(compile(source, file, "exec"), module.__dict__)
    except ImportError as error:
        raise InputError(
            f"the module of a block cannot be imported: {error}",
            place=program.graph.source,
            help="install the package of the block, or correct the 'module' of its BlockType",
        ) from error
    for kind in vars(module).values():
        if isinstance(kind, type) and kind.__module__ == name:
            kind.__reduce_ex__ = reduce  # type: ignore[assignment, method-assign]
    root = getattr(module, program.root)
    flags = (PROJECTED,) if program.graph.execution.left else ()
    root.__call__ = checked_call(program.graph.inputs, flags)
    for method in ("_apply", "load_state_dict") if program.graph.ties else ():
        setattr(root, method, _keeping_ties(getattr(nn.Module, method), program.graph.ties))
    lines = source.splitlines(keepends=True)
    linecache.cache[file] = (len(source), None, lines, file)
    sys.modules[name] = module
    return module


def _keeping_ties(method: Callable[..., Any], ties: tuple[tuple[str, ...], ...]) -> Any:
    """Return a method of modules that leaves tied parameters tied.

    Moving a module from the device meta and assigning a state dict would give each its own tensor.
    """

    def is_tied(model: nn.Module) -> bool:
        try:
            groups = [[model.get_parameter(path) for path in group] for group in ties]
        except AttributeError:
            return False  # a module was replaced
        return all(one is group[0] for group in groups for one in group)

    @functools.wraps(method)
    def keeping(self: Any, *args: Any, **kwargs: Any) -> Any:
        tied = is_tied(self)
        found = method(self, *args, **kwargs)
        if tied:
            self.tie()
        return found

    return keeping


def _is_current(module: ModuleType, graph: Graph) -> bool:
    """Return whether a generated module uses the blocks of a graph as they are now.

    A notebook may define a block again; the module of the old block stays with its models.
    """
    old: Program = vars(module)["__program__"]
    before, now = _added_blocks(old.graph), _added_blocks(graph)
    if len(before) != len(now) or any(a is not b for a, b in zip(before, now, strict=True)):
        return False
    return not now or all(
        getattr(importlib.import_module(path), name) is vars(module)[local]
        for path, name, local in old.imports
    )


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a generated module is made from."""

    spec: str
    """JSON of the spec, with overrides applied."""
    blocks: tuple[BlockType, ...]
    """Block types that the spec uses besides the registered ones."""
    execution: Execution
    """What the passes set."""

    def graph(self) -> Graph:
        """Return the graph that the module computes."""
        form = Spec.model_validate_json(self.spec)
        graph = check(form, registry(self.blocks), source="<pickle>", checked=True)
        return replace(graph, execution=self.execution)


def recipe_of(graph: Graph) -> Recipe:
    """Return the recipe of a graph."""
    text = graph.spec.model_dump_json(by_alias=True, exclude_unset=True)
    return Recipe(text, _added_blocks(graph), graph.execution)


def _added_blocks(graph: Graph) -> tuple[BlockType, ...]:
    """Return the block types that a graph uses besides the registered ones."""
    parts = [visit.part for visit in visits(graph.root)] if graph.blocks else []
    used = {part.key for part in parts if isinstance(part, Part)}
    return tuple(block for block in graph.blocks if block.key in used)


@dataclass(frozen=True, slots=True)
class ClassOf:
    """A class, pickled by how it is made; unpickling gives the class itself."""

    kind: type[Any]

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return how to make the class again."""
        module = vars(sys.modules[self.kind.__module__])
        if "__recipe__" not in module:
            module["__recipe__"] = recipe_of(module["__program__"].graph)
        return generated_class, (module["__recipe__"], self.kind.__name__)

    def __deepcopy__(self, memo: dict[int, Any]) -> ClassOf:
        """Return the same object: classes are not copied."""
        return self


def reference(kind: Any) -> Any:
    """Return a picklable object for a class; an ordinary class needs none."""
    return ClassOf(kind) if hasattr(sys.modules.get(kind.__module__), "__program__") else kind


def reduce(self: Any, protocol: int) -> Any:
    """Return the parts of an object of a generated class; its `__reduce_ex__`."""
    made: tuple[Any, ...] = object.__reduce_ex__(self, max(int(protocol), 2))  # type: ignore[assignment]
    return new, (reference(type(self)),), *made[2:]


def new(kind: Any) -> Any:
    """Return an empty object of a class."""
    made: Any = kind.kind if isinstance(kind, ClassOf) else kind
    return object.__new__(made)


def generated_class(recipe: Recipe, name: str) -> Any:
    """Return a class of the module generated from a recipe.

    Raises:
        InputError: this version of weft generates no class of this name.
    """
    found = getattr(generated_module(lower(recipe.graph())), name, None)
    if found is None:
        raise InputError(
            f"the model was pickled by a version of weft that generated a class '{name}'",
            place="<pickle>",
            help="use that version, and store models as checkpoints",
        )
    return found
