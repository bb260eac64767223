"""Generated modules: run the source of a program, check inputs, and pickle objects of its classes.

The source is registered in `sys.modules` and `linecache` under a name made from its hash, so that
tracebacks show it, torch.compile finds it, and the same graph always gives the same classes.

A pickle stores a generated class as the spec that it was generated from, because the generated
module does not exist in another process.  Everything else is stored as in any module: weights,
buffers, hooks and attributes.  Opening a pickle can run code; checkpoints are the format for
exchange.

Modules of plug-in blocks that the source cannot import, create or call are reported; those of
shipped blocks are tested (`tests/blocks/test_plugin_contract.py`).  The calls are read from the
source, so they are exactly those that will be made.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import linecache
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from ...blocks.registry import module_path, registry, shipped
from ...graphs.checker.check import check
from ...graphs.ir.block_type import BlockType
from ...graphs.ir.execution import PLAIN, Execution
from ...graphs.ir.graph import Graph, Part
from ...graphs.ir.traverse import visits
from ...graphs.ir.value_type import ValueType, dtype_of, evaluate, terms_of
from ...specs.findings import InputError, did_you_mean
from ...specs.form import SpecForm
from .forward import PROJECTED
from .module import Program, lower


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
        module_name = generated_module(inner).__name__
        source = source.replace(f"from {inner.module} import", f"from {module_name} import")
    base = program.module
    name, number = base, 1
    while (existing := sys.modules.get(name)) is not None:
        if _is_current(existing, program.graph):
            return existing
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
            location=program.graph.source,
            help="install the package of the block, or correct the 'module' of its BlockType",
        ) from error
    for kind in vars(module).values():
        if isinstance(kind, type) and kind.__module__ == name:
            kind.__reduce_ex__ = reduce  # type: ignore[assignment, method-assign]
    root = getattr(module, program.root)
    flags = (PROJECTED,) if program.graph.execution.deferred else ()
    root.get_submodule = submodule
    root.__call__ = checked_call(program.graph.inputs, flags)
    for method in ("_apply", "load_state_dict") if program.graph.ties else ():
        setattr(root, method, _keeping_ties(getattr(nn.Module, method), program.graph.ties))
    lines = source.splitlines(keepends=True)
    linecache.cache[file] = (len(source), None, lines, file)
    sys.modules[name] = module
    return module


def submodule(self: nn.Module, target: str) -> nn.Module:
    """Return the module at a path, also below nodes that are called like a method of modules.

    Raises:
        AttributeError: there is none.
    """
    module = self
    for name in target.split(".") if target else ():
        inner: Any = module._modules.get(name)
        inner = getattr(module, name, None) if inner is None else inner
        if not isinstance(inner, nn.Module):
            msg = f"{type(module).__name__} has no module '{name}'"
            raise AttributeError(msg)  # noqa: TRY004 - as torch does
        module = inner
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
        return all(parameter is group[0] for group in groups for parameter in group)

    @functools.wraps(method)
    def keeping(self: Any, *args: Any, **kwargs: Any) -> Any:
        tied = is_tied(self)
        result = method(self, *args, **kwargs)
        if tied:
            self.tie()
        return result

    return keeping


def _is_current(module: ModuleType, graph: Graph) -> bool:
    """Return whether a generated module is that of a graph, with its blocks as they are now.

    Not all of a graph is in its source: how a training spreads it over processes is not.  A
    notebook may define a block again; the module of the old block stays with its models.
    """
    old: Program = vars(module)["__program__"]
    if replace(old.graph, source=graph.source) != graph:
        return False
    before, now = _added_blocks(old.graph), _added_blocks(graph)
    if len(before) != len(now) or any(a is not b for a, b in zip(before, now, strict=True)):
        return False
    return not now or all(
        getattr(importlib.import_module(path), name) is vars(module)[local]
        for path, name, local in old.imports
    )


@dataclass(frozen=True, slots=True, eq=False)
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
        form = SpecForm.model_validate_json(self.spec)
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
    reduced: tuple[Any, ...] = object.__reduce_ex__(self, max(int(protocol), 2))  # type: ignore[assignment]
    return new, (reference(type(self)),), *reduced[2:]


def new(kind: Any) -> Any:
    """Return an empty object of a class."""
    cls: Any = kind.kind if isinstance(kind, ClassOf) else kind
    return object.__new__(cls)


@functools.lru_cache(maxsize=1)
def _module_of(recipe: Recipe) -> ModuleType:
    """Return the module generated from a recipe, which all objects of a pickle share."""
    return generated_module(lower(recipe.graph()))


def generated_class(recipe: Recipe, name: str) -> Any:
    """Return a class of the module generated from a recipe.

    Raises:
        InputError: this version of weft generates no class of this name.
    """
    generated = getattr(_module_of(recipe), name, None)
    if generated is None:
        raise InputError(
            f"the model was pickled by a version of weft that generated a class '{name}'",
            location="<pickle>",
            help="use that version, and store models as checkpoints",
        )
    return generated


_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_FITS: Mapping[str, Callable[[torch.dtype], bool]] = {
    "integer": lambda dtype: dtype in _INTEGERS,
    "bool": lambda dtype: dtype == torch.bool,
    "float": lambda dtype: dtype.is_floating_point,
}
"""Kind of dtype to the test whether a dtype is of this kind."""


def checked_call(types: Mapping[str, ValueType], flags: Collection[str] = ()) -> Callable[..., Any]:
    """Return a `__call__` for a module with these inputs, which checks them when it runs eagerly.

    Args:
        types: name of each input to its type.
        flags: further arguments, which are not checked.
    """
    names = tuple(types)
    expected = {name: (dtype_of(type_.kind), len(type_.axes)) for name, type_ in types.items()}
    base_call = nn.Module.__call__

    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 - becomes a method
        if not torch.compiler.is_compiling():
            inputs = {name: value for name, value in kwargs.items() if name not in flags}
            if args or inputs.keys() != expected.keys():
                _refuse_names(self, names, args, inputs)
            check_inputs(self, types, expected, inputs)
        return base_call(self, *args, **kwargs)

    return __call__


def check_inputs(
    model: nn.Module,
    types: Mapping[str, ValueType],
    expected: Mapping[str, tuple[str, int]],
    inputs: Mapping[str, Any],
) -> None:
    """Check the inputs of a forward pass.

    Args:
        model: the module that takes them.
        types: type of each input.
        expected: kind of dtype and rank of each input.
        inputs: value of each input.

    Raises:
        InputError: an input is not a tensor, has a wrong kind of dtype, a wrong rank, a size that
            differs from its type or from another input, or is not on the device of the weights.
    """
    weight = next(model.parameters(), None)
    sizes: dict[str, int] = {}
    for name, (kind, rank) in expected.items():
        value = inputs[name]
        if not isinstance(value, Tensor):
            what = type(value).__name__
            _refuse(name, types, f"is of type {what}, not a tensor", "pass a torch.Tensor")
        if not _FITS[kind](value.dtype):
            _refuse(name, types, f"has dtype {_word(value)}, not {kind}", _CONVERT[kind])
        shape = value.shape
        if len(shape) != rank:
            help_ = "add the batch axis, such as x[None]" if len(shape) < rank else "reshape it"
            _refuse(name, types, f"has {len(shape)} axes, not {rank}", help_)
        for axis, size in zip(types[name].axes, shape, strict=True):
            if sizes.setdefault(str(axis), size) != size:
                _refuse_size(name, types, str(axis), inputs)
        if weight is not None and value.device != weight.device:
            _refuse_device(name, types, value, weight)
    for axis in [axis for axis in sizes if not axis.isidentifier()]:
        _check_size(axis, sizes, types)


_CONVERT = {
    "integer": "pass ids as int64, such as x.long()",
    "bool": "pass a bool tensor, such as ids != pad; True marks positions to attend to",
    "float": "pass a float tensor, such as x.float()",
}


def _word(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _refuse(name: str, types: Mapping[str, ValueType], problem: str, help_: str) -> NoReturn:
    raise InputError(f"input '{name}' {problem}", location=f"{name}: {types[name]}", help=help_)


def _refuse_names(
    model: nn.Module, names: tuple[str, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Raise an error for missing or unknown inputs, and for those without a name."""
    signature = f"{type(model).__name__}({', '.join(names)})"
    if args:
        example = ", ".join(f"{name}=..." for name in names)
        raise InputError(
            f"{len(args)} of the inputs {'has' if len(args) == 1 else 'have'} no name",
            location=signature,
            help=f"inputs have no order: pass them by name, as in model({example})",
        )
    for name in kwargs:
        if name not in names:
            help_ = did_you_mean(name, names) or "remove it"
            raise InputError(f"unknown input '{name}'", location=signature, help=help_)
    missing = [name for name in names if name not in kwargs]
    raise InputError(
        f"input '{missing[0]}' is missing",
        location=signature,
        help="weft.example_inputs(model) shows an example of every input",
    )


def _refuse_size(
    name: str, types: Mapping[str, ValueType], axis: str, inputs: Mapping[str, Any]
) -> None:
    """Raise an error for an axis with two sizes, naming both inputs that disagree."""
    sizes = {
        f"{other}.shape[{dim}]": inputs[other].shape[dim]
        for other, type_ in types.items()
        for dim, dim_axis in enumerate(type_.axes)
        if str(dim_axis) == axis and isinstance(inputs[other], Tensor) and dim < inputs[other].dim()
    }
    shown = ", ".join(f"{label} = {size}" for label, size in sizes.items())
    raise InputError(
        f"axis {axis} has different sizes: {shown}",
        location=f"{name}: {types[name]}",
        help=f"inputs that share the axis {axis} must agree",
    )


def _check_size(axis: str, sizes: dict[str, int], types: Mapping[str, ValueType]) -> None:
    """Raise an error if an axis that is a number or a sum such as `T+1` has another size.

    The size of `S` follows from that of `4*S`, if no input has the axis `S`.
    """
    size, terms = sizes[axis], terms_of(int(axis) if axis.isdecimal() else axis)
    name = next(n for n, type_ in types.items() if axis in map(str, type_.axes))
    unknown = [term for term in terms if term and term not in sizes]
    if len(unknown) > 1:
        return
    if unknown:
        [free] = unknown
        factor = terms[free]
        constant = size - sum(
            times * sizes.get(term, 1) for term, times in terms.items() if term != free
        )
        sizes[free] = max(1, -(-constant // factor))
    expected = evaluate(int(axis) if axis.isdecimal() else axis, sizes)
    if size == expected:
        return
    if unknown:
        help_ = f"pad it to {expected} at the end, such as with torch.nn.functional.pad"
        _refuse(name, types, f"has size {size} on an axis of size {axis}", help_)
    equals = "" if axis.isdecimal() else f" = {axis}"
    _refuse(name, types, f"has size {size} on an axis of size {expected}{equals}", "reshape it")


def _refuse_device(
    name: str, types: Mapping[str, ValueType], value: Tensor, weight: Tensor
) -> None:
    """Raise an error for an input on another device than the weights."""
    if weight.is_meta:
        raise InputError(
            "the model's weights are on the device 'meta', which has no values",
            location=f"{name}: {types[name]}",
            help="call model.to_empty(device=...) and then model.load_state_dict(...)",
        )
    help_ = f"pass {name}.to('{weight.device}'), or move the model"
    _refuse(name, types, f"is on {value.device}, the weights are on {weight.device}", help_)


STEPPING = ("begin", "step")
_FORMS = {
    "initialize": "write initialize(self, generator)",
    "__init__": "take the sizes and params of 'arguments', and the slots, by name",
    "forward": "take the input ports by name",
    "begin": "take 'capacity', and by name the ports that do not move with the position",
    "step": "take the ports that move with the position, 'state' and 'position' by name",
}


def plug_ins(graph: Graph) -> dict[str, BlockType]:
    """Return the blocks with modules of a graph that do not ship with Weft, by key."""
    parts = (visit.part for visit in visits(graph.root))
    return {
        part.key: part.block
        for part in parts
        if isinstance(part, Part) and part.block.written is None and not shipped(part.block)
    }


def wrong(block: BlockType, method: str, problem: str, help_: str) -> InputError:
    """Return an error about the module of a block.

    Args:
        block: the block type.
        method: method of the module, or ``""``.
        problem: one clause.
        help_: a fix.
    """
    where = f", method '{method}'" if method else ""
    location = f"block '{block.key}', class {module_path(block)}{where}"
    return InputError(problem, location=location, help=help_)


def refuse_wrong_modules(program: Program) -> None:
    """Raise an error if the module of a plug-in block does not fit the generated source.

    Raises:
        InputError: a module cannot be imported, is no `nn.Module`, or lacks a method or an
            argument that the source uses.
    """
    blocks = plug_ins(program.graph)
    if not blocks:
        return
    if program.graph.execution != PLAIN:  # without passes, calls have the classes of the blocks
        program = lower(replace(program.graph, execution=PLAIN))
    classes = {module_path(block): (block, _class(block)) for block in blocks.values()}
    plugin_classes = {
        local: classes[f"{path}:{name}"]
        for path, name, local in program.imports
        if f"{path}:{name}" in classes
    }
    for block, kind in plugin_classes.values():
        _methods(block, kind)
    for (block, kind), method, call in _calls(ast.parse(program.source), plugin_classes):
        _fits(block, kind, method, call)
    for visit in visits(program.graph.root):
        if visit.kind == "slot" and isinstance(visit.part, Part) and visit.part.key in blocks:
            _, kind = classes[module_path(visit.part.block)]
            _fits_slot(visit.part, kind)


def _class(block: BlockType) -> type[nn.Module]:
    """Import and return the class of a block's module."""
    path, _, name = module_path(block).partition(":")
    try:
        module_class = getattr(importlib.import_module(path), name, None)
    except Exception as error:
        text = str(error).partition("\n")[0]
        problem = f"'{path}' cannot be imported: {type(error).__name__}: {text:.200}"
        help_ = "install the package of the block, or correct the 'module' of its BlockType"
        raise wrong(block, "", problem, help_) from error
    if module_class is None:
        help_ = "correct the 'module' of its BlockType, written 'package.file:Class'"
        raise wrong(block, "", f"'{path}' has no '{name}'", help_)
    if not (isinstance(module_class, type) and issubclass(module_class, nn.Module)):
        raise wrong(
            block, "", "it is not a subclass of torch.nn.Module", "derive it from nn.Module"
        )
    return module_class


def _methods(block: BlockType, kind: type[nn.Module]) -> None:
    """Refuse a module without the methods that its block declares."""
    if kind.forward is nn.Module.forward:
        raise wrong(block, "forward", "the method is missing", "define forward(self, ...)")
    for method in STEPPING if block.steps else ():
        if not callable(getattr(kind, method, None)):
            help_ = f"define {method}, or declare the block with steps=False"
            raise wrong(block, method, "the block declares steps=True without it", help_)
    if block.weighs and not callable(getattr(kind, "weight", None)):
        help_ = "define weight, which takes the ports in 'weighs' and returns the number of items"
        raise wrong(block, "weight", "the block declares 'weighs' without it", help_)
    draw = getattr(kind, "initialize", None)
    if draw is not None:
        _takes(block, draw, "initialize", 1, [])


def _calls(
    tree: ast.Module, plugin_classes: Mapping[str, tuple[BlockType, type[nn.Module]]]
) -> Iterator[tuple[tuple[BlockType, type[nn.Module]], str, ast.Call]]:
    """Yield the calls of a source that reach plug-in modules: block and class, method, call."""
    for scope in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        attributes: dict[str, tuple[BlockType, type[nn.Module]]] = {}
        for node in ast.walk(scope):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                target, func = node.targets[0], node.value.func
                if isinstance(target, ast.Attribute) and isinstance(func, ast.Name):
                    attributes |= (
                        {target.attr: plugin_classes[func.id]} if func.id in plugin_classes else {}
                    )
        for node in (node for method in scope.body for node in ast.walk(method)):
            if not isinstance(node, ast.Call):
                continue
            match node.func:
                case ast.Name(id=name) if name in plugin_classes:
                    yield plugin_classes[name], "__init__", node
                case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in attributes:
                    yield attributes[name], "forward", node
                case ast.Attribute(
                    value=ast.Attribute(value=ast.Name(id="self"), attr=name), attr=method
                ) if name in attributes and method in STEPPING:
                    yield attributes[name], method, node


def _fits(block: BlockType, kind: type[nn.Module], method: str, call: ast.Call) -> None:
    """Refuse a method that does not take the arguments of a call."""
    names = [keyword.arg for keyword in call.keywords if keyword.arg is not None]
    function = getattr(kind, method, None)
    if not callable(function):
        problem = "the method is missing, and the block in a slot has it"
        help_ = f"define {method}, which calls {method} of the module in the slot"
        raise wrong(block, method, problem, help_)
    _takes(block, function, method, len(call.args), names)


def _fits_slot(part: Part, kind: type[nn.Module]) -> None:
    """Refuse a `forward` that does not take the ports of a block in a slot."""
    if not part.block.fills:  # docs/write-an-extension.md has the protocol of the others
        _takes(part.block, kind.forward, "forward", 0, list(part.inputs))


def _takes(
    block: BlockType,
    function: Callable[..., Any],
    method: str,
    positional: int,
    names: list[str],
) -> None:
    """Refuse a method that does not take some arguments.

    Args:
        block: the block type.
        function: the method.
        method: its name.
        positional: number of arguments by position, without `self`.
        names: arguments by name.
    """
    signature = _signature(function)
    if signature is None:
        return
    try:
        signature.bind(None, *[None] * positional, **dict.fromkeys(names))
    except TypeError as error:
        arguments = [f"{positional} by position"] if positional else []
        arguments += [", ".join(names)] if names else []
        problem = f"weft calls it with {' and '.join(arguments) or 'no arguments'}: {error}"
        raise wrong(block, method, problem, _FORMS[method]) from error


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a method; None if only calling it can tell, as for one in C."""
    try:
        return inspect.signature(function)
    except (ValueError, TypeError):
        return None
