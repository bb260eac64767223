"""Profiler scopes around the nodes of a model, added only while it is profiled.

Every node of a spec, and every block in a slot, gets a scope of torch's profiler around its
forward pass, by hooks that are removed at the end.  A compiled template has a single scope:
its nodes cannot be distinguished in the compiled code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn
from torch.profiler import record_function

from ...graphs.ir.graph import Graph, RepeatNode
from ...graphs.ir.traverse import visits

PREFIX = "weft:"
"""Prefix of the names of all scopes."""
NODE = f"{PREFIX}node:"
DATA, BETWEEN, LOSS, UPDATE = (f"{PREFIX}{name}" for name in ("data", "between", "loss", "update"))


def paths_of(graph: Graph) -> dict[str, str]:
    """Return the path of the spec node of each module, by the path of the module.

    Copies of a repeat share one node: `decoder.3.self_attention.f` is at
    `decoder.*.self_attention/f`.
    """
    return dict(_node_paths(graph))


@contextmanager
def scoped(model: nn.Module, graph: Graph) -> Iterator[None]:
    """Add a scope around every node of a model within the context.

    Args:
        model: model built from `graph`, compiled or not.
        graph: graph that says which modules are nodes.
    """
    with ExitStack() as undo:
        compiled: list[str] = []
        for path, name in paths_of(graph).items():
            try:
                module = model.get_submodule(path)
            except AttributeError:  # a node without a module of its own
                continue
            if any(path.startswith(f"{outer}.") for outer in compiled):
                continue
            if getattr(module, "_compiled_call_impl", None) is not None:
                compiled.append(path)
                undo.callback(_wrap_compiled(module, NODE + name))
            else:
                open_: list[record_function] = []
                for handle in _hooks(module, NODE + name, open_):
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
    """Add a scope around a compiled call; return a function that removes it."""
    inner = module._compiled_call_impl  # noqa: SLF001 - torch has no public API for it

    def call(*args: Any, **kwargs: Any) -> Any:
        with record_function(name):
            return inner(*args, **kwargs)

    module._compiled_call_impl = call  # noqa: SLF001

    def undo() -> None:
        module._compiled_call_impl = inner  # noqa: SLF001

    return undo


def _node_paths(graph: Graph) -> Iterator[tuple[str, str]]:
    """Yield the path of every module that computes a node or a slot, and the path of the node."""
    for visit in visits(graph.root, "weights"):
        numbered = isinstance(visit.node, RepeatNode) and not visit.node.share
        if visit.kind != "name" or not numbered:
            yield visit.module, visit.folded
