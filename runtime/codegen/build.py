"""Build: turn a graph into an `nn.Module`, with weights initialized by path.

The generated source is registered in `sys.modules` and `linecache` under a name made from its
hash, so that tracebacks show it, torch.compile finds it, and the same graph always gives the same
classes.
"""

from __future__ import annotations

import hashlib
import linecache
import sys
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from ...graphs.ir.graph import Graph
from .module import Program, lower


def build(graph: Graph, *, seed: int = 1, device: torch.device | str = "cpu") -> nn.Module:
    """Return the module that computes a graph, with new weights.

    Args:
        graph: a checked graph.
        seed: seed of the weights; each weight depends only on the seed and its path, not on the
            order of keys in the spec.
        device: device of the weights.
    """
    model = build_empty(graph, device=device)
    initialize(model, seed)
    return model


def build_empty(graph: Graph, *, device: torch.device | str = "cpu") -> nn.Module:
    """Return the module of a graph with uninitialized weights."""
    program = lower(graph)
    module = _module(program)
    with torch.device(device), _Unfilled():
        model: nn.Module = getattr(module, program.root)()
    return model


class _Unfilled(TorchFunctionMode):
    """Skips the initialization that torch's layers would do, because weights are set later."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function, unless it is one of `torch.nn.init`."""
        del types
        named = kwargs or {}
        if getattr(func, "__module__", "") == nn.init.__name__:
            return args[0] if args else named["tensor"]
        return func(*args, **named)


def build_sharing(graph: Graph, owner: nn.Module) -> nn.Module:
    """Return the module of a graph, sharing the parameters of another model.

    Args:
        graph: a graph whose parameters are some of the owner's, by path and shape.
        owner: the model that has the parameters; both models use the same tensors.

    Raises:
        AttributeError: the owner does not have all of the parameters.
    """
    with torch.device("meta"):
        program = lower(graph)
        model: nn.Module = getattr(_module(program), program.root)()
    for path, _ in list(model.named_parameters(remove_duplicate=False)):
        holder, _, name = path.rpartition(".")
        setattr(model.get_submodule(holder), name, owner.get_parameter(path))
    return model.train(owner.training)


def tie(model: nn.Module) -> None:
    """Make tied parameters one tensor again, after each was given storage of its own."""
    tie_again = getattr(model, "tie", None)
    if callable(tie_again):
        tie_again()


def initialize(model: nn.Module, seed: int) -> None:
    """Initialize every weight, with a separate generator for each module.

    A tied weight is initialized only by its first owner.
    """
    seen: set[int] = set()
    for path, module in model.named_modules():
        draw = getattr(module, "initialize", None)
        if not callable(draw):
            continue
        own = {id(parameter) for parameter in module.parameters(recurse=False)}
        if own and own <= seen:
            continue
        seen |= own
        generator = torch.Generator(device=_device(module))
        generator.manual_seed(_seed(seed, path))
        with torch.no_grad():
            draw(generator)


def _device(module: nn.Module) -> torch.device:
    return next((p.device for p in module.parameters()), torch.device("cpu"))


def _seed(seed: int, path: str) -> int:
    """Return a seed for a path, given the run's seed: 63 bits of a hash."""
    digest = hashlib.sha256(f"{seed}:{path}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def program_of(model: nn.Module) -> Program:
    """Return the program from which a model was built.

    Raises:
        TypeError: the model was not built by Weft.
    """
    module = sys.modules.get(type(model).__module__)
    program = getattr(module, "__program__", None)
    if not isinstance(program, Program):
        msg = f"{type(model).__name__} was not built from a spec"
        raise TypeError(msg)
    return program


def _module(program: Program) -> ModuleType:
    """Return the generated module, running its source the first time."""
    name = f"weft_generated_{program.fingerprint[:16]}"
    known = sys.modules.get(name)
    if known is not None:
        return known
    file = f"<{name}>"
    module = ModuleType(name)
    module.__file__ = file
    module.__program__ = program  # type: ignore[attr-defined]
    # The source is generated from a checked graph: names are identifiers, values are literals.
    exec(compile(program.source, file, "exec"), module.__dict__)
    linecache.cache[file] = (
        len(program.source),
        None,
        program.source.splitlines(keepends=True),
        file,
    )
    sys.modules[name] = module
    return module
