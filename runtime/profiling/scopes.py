"""Scopes: names around what runs while it is profiled, and only then.

Every node of a spec, and every block in a slot, gets a scope of torch's profiler around its
forward pass, by hooks that are taken off at the end.  Where torch has compiled a template,
the whole of it is one scope: what is inside has no borders any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn
from torch.profiler import record_function

from ...graphs.ir.graph import Graph, Part, Scope

PREFIX = "weft:"
"""Begins the name of every scope of ours."""
NODE = f"{PREFIX}node:"
DATA, BETWEEN, LOSS, UPDATE = (f"{PREFIX}{name}" for name in ("data", "between", "loss", "update"))


def paths_of(graph: Graph) -> dict[str, str]:
    """Return, for each module of a model, the path of its node in the spec.

    Copies of a repeat share one: `decoder.3.self_attention.f` is at
    `decoder.*.self_attention/f`.
    """
    return dict(_scope_paths(graph.root, "", ""))


@contextmanager
def scoped(model: nn.Module, graph: Graph) -> Iterator[None]:
    """Put a scope around every node of a model while the context lasts.

    Args:
        model: built from the graph; compiled or not.
        graph: says which modules are nodes.
    """
    with ExitStack() as undo:
        compiled: list[str] = []
        for path, told in paths_of(graph).items():
            try:
                module = model.get_submodule(path)
            except AttributeError:  # a node without a module of its own
                continue
            if any(path.startswith(f"{outer}.") for outer in compiled):
                continue
            if getattr(module, "_compiled_call_impl", None) is not None:
                compiled.append(path)
                undo.callback(_wrap_compiled(module, NODE + told))
            else:
                open_: list[record_function] = []
                for handle in _hooks(module, NODE + told, open_):
                    undo.callback(handle.remove)
        yield


def _hooks(module: nn.Module, name: str, open_: list[record_function]) -> list[Any]:
    def enter(*_: Any) -> None:
        scope = record_function(name)
        scope.__enter__()
        open_.append(scope)

    def leave(*_: Any) -> None:
        open_.pop().__exit__(None, None, None)

    return [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]


def _wrap_compiled(module: Any, name: str) -> Any:
    """Put a scope around a compiled call; return what takes it off."""
    inner = module._compiled_call_impl  # noqa: SLF001 - torch has no other place for it

    def call(*given: Any, **named: Any) -> Any:
        with record_function(name):
            return inner(*given, **named)

    module._compiled_call_impl = call  # noqa: SLF001

    def undo() -> None:
        module._compiled_call_impl = inner  # noqa: SLF001

    return undo


def _scope_paths(scope: Scope, module: str, told: str) -> Iterator[tuple[str, str]]:
    """Yield the path of a module and that of its node, for all below a scope."""
    for node in scope.nodes:
        path, name = module + node.name, told + node.name
        if node.part is not None:
            yield path, name
            yield from _slot_paths(node.part, path, f"{name}/")
            continue
        alone = node.repeat is None or node.share
        if alone:
            yield path, name
        for index, body in node.copies():
            below = "" if alone else f".{index}"
            shown = "" if alone else f".{index}" if index in node.instead else ".*"
            if not alone:
                yield path + below, name + shown
            yield from _scope_paths(body, f"{path}{below}.", f"{name}{shown}.")
            if node.share:
                break


def _slot_paths(part: Part, module: str, told: str) -> Iterator[tuple[str, str]]:
    for slot, inner in part.fill.items():
        yield f"{module}.{slot}", told + slot
        if inner.body is not None:
            yield from _scope_paths(inner.body, f"{module}.{slot}.", f"{told}{slot}.")
        yield from _slot_paths(inner, f"{module}.{slot}", f"{told}{slot}/")
