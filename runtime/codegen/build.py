"""Build: turn a spec into an `nn.Module`, with weights initialized by path.

`generated.py` runs the generated source.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ...graphs.ir.block_type import BlockType
from ...graphs.ir.graph import Graph
from ...specs.findings import InputError
from ..spec.check import Source, graph_of
from .generated import generated_module, program_of
from .module import init_table, lower
from .plugin_trial import created, try_out


def build(
    spec: Source | Graph,
    *,
    seed: int = 1,
    device: torch.device | str = "cpu",
    blocks: Iterable[BlockType] = (),
) -> nn.Module:
    """Return the module that a spec describes, with newly initialized weights.

    The module can be copied and pickled like any other, and its `forward` has a docstring with
    the type of every input and output.  Called eagerly, it checks its inputs.

    Args:
        spec: the result of `load`, a path, or a shipped name.
        seed: seed of the weights; each weight depends only on the seed and its path, not on the
            order of keys in the spec.
        device: device of the weights; on `meta` they have shapes but no values.
        blocks: block types that the spec may use besides the installed ones.

    Returns:
        A module that takes the spec's inputs as keyword arguments and returns a dict of its
        outputs.

    Raises:
        InputError: the file or the device does not exist, or the module of a block does not fit
            its contract.
        SpecError: the spec has errors; all of them are listed.
    """
    graph = graph_of(spec, blocks)
    model = build_empty(graph, device=device_named(device))
    initialize(model, seed)
    if torch.device(device).type != "meta":
        try_out(graph, model)
    return model


def device_named(device: torch.device | str) -> torch.device:
    """Return a device, given as a device or by its name.

    Raises:
        InputError: there is no such device, or this build of torch cannot use it.
    """
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, TypeError, AssertionError, NotImplementedError) as error:
        reason, _, _ = str(error).partition("\n")
        raise InputError(
            f"the device '{device}' cannot be used: {reason:.80}",
            place="device",
            help="use 'cpu'; 'cuda' needs a GPU and a torch that is built for it",
        ) from error
    return found


def build_empty(graph: Graph, *, device: torch.device | str = "cpu") -> nn.Module:
    """Return the module of a graph with uninitialized weights."""
    program = lower(graph)
    module = generated_module(program)
    with torch.device(device), _Unfilled():
        return created(graph, getattr(module, program.root))


class _Unfilled(TorchFunctionMode):
    """Skips the initialization that torch's layers would do, because weights are set later."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function, unless it is one of `torch.nn.init`."""
        del types
        named = kwargs or {}
        if getattr(func, "__module__", "") == nn.init.__name__:
            return args[0] if args else named["tensor"]
        return func(*args, **named)


def build_sharing(graph: Graph, owner: nn.Module, *, part: bool = False) -> nn.Module:
    """Return the module of a graph, sharing the weights and the state of another model.

    Args:
        graph: the owner's graph, after other passes; or a part of it.
        owner: the model that has the weights; both models use the same tensors.
        part: whether the graph is a part of the owner's.

    Raises:
        AttributeError: the owner does not have all of the parameters.
    """
    with torch.device("meta"):
        program = lower(graph)
        model: nn.Module = getattr(generated_module(program), program.root)()
    share(model, owner, part=part)
    return model.train(owner.training)


def share(model: nn.Module, owner: nn.Module, *, part: bool = False) -> None:
    """Give every module of a model what the module of the owner at the same path has.

    That is its parameters and buffers, its hooks, and its attributes except submodules.  A part of
    the owner is not the owner itself, and gets nothing but its modules.

    Raises:
        AttributeError: the owner does not have all of the parameters.
    """
    theirs = dict(owner.named_modules(remove_duplicate=False))
    for path, module in model.named_modules(remove_duplicate=False):
        other = theirs.get(path)
        if other is not None and (path or not part):
            kept = {name: one for name, one in vars(other).items() if name not in _OWN}
            tables = {name: dict(vars(other)[name]) for name in ("_parameters", "_buffers")}
            vars(module).update(kept | tables)
    for path, parameter in model.named_parameters():
        if parameter.is_meta:
            owner.get_parameter(path)  # raises an error that names the path


_OWN = frozenset(
    "_modules _parameters _buffers _compiled_call_impl _compiled_steps _decoder batched".split()  # noqa: SIM905
) | {"casts", "copies"}
"""Attributes of a module that it does not share, or of which it gets copies."""


def tie(model: nn.Module) -> None:
    """Make tied parameters one tensor again, after each was given storage of its own."""
    tie_again = getattr(model, "tie", None)
    if callable(tie_again):
        tie_again()


def initialize(model: nn.Module, seed: int) -> None:
    """Initialize every weight as the graph of a built model says; not on device meta.

    The weights of the model that an objective deploys depend on their paths in that model, so
    they are those of the model alone.
    """
    graph = program_of(model).graph
    deployed = f"{graph.deploy}." if graph.deploy else ""
    draw_weights(model, seed, init_table(graph), deployed)


def draw_weights(
    model: nn.Module,
    seed: int,
    rules: Sequence[tuple[str, float, Sequence[str]]] = (),
    deployed: str = "",
) -> None:
    """Draw every weight, with a separate generator for each module, then apply rules in order.

    A tied weight is drawn only by its first owner, and changed once by each rule.

    Args:
        model: the model; weights on device meta are left.
        seed: seed of the weights.
        rules: action, value and parameter paths of each rule for initial weights.
        deployed: beginning of paths that is not part of their seeds.
    """
    seen: set[int] = set()
    for path, module in model.named_modules():
        draw = getattr(module, "initialize", None)
        if not callable(draw):
            continue
        own = _drawn(module)
        kept = {weight: weight.detach().clone() for weight in own if id(weight) in seen}
        if (own and len(kept) == len(own)) or _device(module).type == "meta":
            continue
        seen.update(map(id, own))
        generator = torch.Generator(device=_device(module))
        generator.manual_seed(_seed(seed, path.removeprefix(deployed)))
        with torch.no_grad():
            draw(generator)
            for weight, before in kept.items():
                weight.copy_(before)
    for action, value, paths in rules:
        changed: set[int] = set()
        for path in paths:
            weight = model.get_parameter(path)
            if id(weight) in changed or weight.is_meta:
                continue
            changed.add(id(weight))
            generator = torch.Generator(device=weight.device)
            generator.manual_seed(_seed(seed, f"init:{path.removeprefix(deployed)}"))
            with torch.no_grad():
                _ACTIONS[action](weight, value, generator)


_ACTIONS: dict[str, Callable[[Tensor, float, torch.Generator], object]] = {
    "scale": lambda weight, value, _: weight.mul_(value),
    "normal": lambda weight, value, generator: weight.normal_(0.0, value, generator=generator),
    "uniform": lambda weight, value, generator: weight.uniform_(-value, value, generator=generator),
    "constant": lambda weight, value, _: weight.fill_(value),
    "zeros": lambda weight, _, __: weight.zero_(),
}
"""Action of a rule to the function that changes a weight."""


def _drawn(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that a module draws: all but those of parts that draw their own."""
    found = list(module.parameters(recurse=False))
    for child in module.children():
        if not callable(getattr(child, "initialize", None)):
            found += _drawn(child)
    return list(dict.fromkeys(found))


def _device(module: nn.Module) -> torch.device:
    return next((p.device for p in module.parameters()), torch.device("cpu"))


def _seed(seed: int, path: str) -> int:
    """Return a seed for a path, given the run's seed: 63 bits of a hash."""
    digest = hashlib.sha256(f"{seed}:{path}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
