"""Modules of plug-in blocks: report one that the generated source cannot import, create or call.

Shipped blocks are not validated here; `tests/blocks/test_plugin_contract.py` does it.  The calls
are read from the generated source, so they are exactly those that will be made.  Nothing is
created or run: `build.py` does that.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from ...blocks.registry import module_path, shipped
from ...graphs.ir.block_type import BlockType
from ...graphs.ir.execution import PLAIN
from ...graphs.ir.graph import Graph, Part
from ...graphs.ir.traverse import visits
from ...specs.findings import InputError
from .module import Program, lower

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
