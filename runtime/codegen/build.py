"""Build: turn a spec into an `nn.Module`, with weights initialized by path.

`generated.py` runs the generated source.  Blocks of plug-ins are tried: the parameters of each
module are compared with `BlockType.weights`, and the outputs of one run on small random inputs with
the types of the ports; in a graph that decodes, so are those of `begin` and `step`.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ...blocks.kernels.decode_state import Capacity, State
from ...blocks.registry import module_path, shipped
from ...graphs.ir.block_type import BlockType
from ...graphs.ir.graph import BlockNode, Graph, Part, RepeatNode, Scope
from ...graphs.ir.traverse import fillings, moving_ports, moving_values, owned_parts, root_moving
from ...graphs.ir.value_type import ValueType, dtype_of, evaluate
from ...specs.findings import InputError
from .generated import generated_module, plug_ins, program_of, wrong
from .module import init_table, lower

if TYPE_CHECKING:
    from ..spec.check import Source


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
    from ..spec.check import graph_of  # noqa: PLC0415 - a checked graph needs no check

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
        torch_device = torch.device(device)
        torch.empty(0, device=torch_device)
    except (RuntimeError, TypeError, AssertionError, NotImplementedError) as error:
        reason, _, _ = str(error).partition("\n")
        raise InputError(
            f"the device '{device}' cannot be used: {reason:.80}",
            location="device",
            help="use 'cpu'; 'cuda' needs a GPU and a torch that is built for it",
        ) from error
    return torch_device


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
        keywords = kwargs or {}
        if getattr(func, "__module__", "") == nn.init.__name__:
            return args[0] if args else keywords["tensor"]
        return func(*args, **keywords)


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
            attributes = {name: value for name, value in vars(other).items() if name not in _OWN}
            tables = {name: dict(vars(other)[name]) for name in ("_parameters", "_buffers")}
            vars(module).update(attributes | tables)
    for path, parameter in model.named_parameters():
        if parameter.is_meta:
            owner.get_parameter(path)  # raises an error that names the path


_OWN = frozenset(
    "_modules _parameters _buffers _compiled_call_impl _compiled_steps _decoder batched".split()  # noqa: SIM905
) | {"casts", "copies", "returns"}
"""Attributes of a module that it does not share, or of which it gets copies."""


def tie(model: nn.Module) -> None:
    """Make tied parameters one tensor again, after each was given storage of its own."""
    tie_again = getattr(type(model), "tie", None)
    if tie_again is not None:
        tie_again(model)


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
    drawn_ids: set[int] = set()
    for path, module in model.named_modules():
        draw = getattr(type(module), "initialize", None)
        if draw is None:
            continue
        weights = _drawn(module)
        tied = {weight: weight.detach().clone() for weight in weights if id(weight) in drawn_ids}
        if (weights and len(tied) == len(weights)) or _device(module).type == "meta":
            continue
        drawn_ids.update(map(id, weights))
        generator = torch.Generator(device=_device(module))
        generator.manual_seed(_seed(seed, path.removeprefix(deployed)))
        with torch.no_grad():
            draw(module, generator)
            for weight, before in tied.items():
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
    parameters = list(module.parameters(recurse=False))
    for child in module.children():
        if not hasattr(type(child), "initialize"):
            parameters += _drawn(child)
    return list(dict.fromkeys(parameters))


def _device(module: nn.Module) -> torch.device:
    return next((p.device for p in module.parameters()), torch.device("cpu"))


def _seed(seed: int, path: str) -> int:
    """Return a seed for a path, given the run's seed: 63 bits of a hash."""
    digest = hashlib.sha256(f"{seed}:{path}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


_MISTAKES = (TypeError, AttributeError, NameError)
"""Exceptions that a mistake in the code causes, whatever the sizes of the inputs are."""


def created(graph: Graph, create: Callable[[], nn.Module]) -> nn.Module:
    """Return a new model, whose plug-in blocks have the parameters that they declare.

    Args:
        graph: the graph of the model.
        create: creates it.

    Raises:
        InputError: a constructor raises an exception, or the parameters differ from `weights`.
    """
    blocks = plug_ins(graph)
    if not blocks:
        return create()
    try:
        model = create()
    except InputError:
        raise
    except Exception as error:
        key = _culprit(error, blocks)
        if key is None:
            raise
        text = f"{type(error).__name__}: {str(error).partition(chr(10))[0]:.200}"
        help_ = "correct the constructor, or refuse such params in 'arguments' with a ValueError"
        raise wrong(blocks[key], "__init__", f"it raises {text}", help_) from error
    for path, _, part in owned_parts(graph.root):
        if part.key in blocks:
            _compare_weights(part, model.get_submodule(path))
            _refuse_lost_dropout(part.block, model.get_submodule(path))
    return model


def _culprit(error: BaseException, blocks: Mapping[str, BlockType]) -> str | None:
    """Return the plug-in block in whose module an exception was raised: the innermost one."""
    keys = {module_path(block): key for key, block in blocks.items()}
    culprit, trace = None, error.__traceback__
    while trace is not None:
        owner = trace.tb_frame.f_locals.get("self")
        for kind in type(owner).__mro__ if isinstance(owner, nn.Module) else ():
            culprit = keys.get(f"{kind.__module__}:{kind.__qualname__}", culprit)
        trace = trace.tb_next
    return culprit


def _compare_weights(part: Part, module: nn.Module) -> None:
    """Refuse parameters other than the declared ones."""
    declared = {name: tuple(shape) for name, shape in part.own_weights().items()}
    slots = tuple(f"{slot}." for slot in part.fill)
    actual = {
        name: tuple(weight.shape)
        for name, weight in module.named_parameters(remove_duplicate=False)
        if not name.startswith(slots)
    }
    if actual == declared:
        return
    problems = [f"'{name}' is not declared" for name in actual if name not in declared]
    problems += [f"'{name}' is declared and missing" for name in declared if name not in actual]
    problems += [
        f"'{name}' has the shape {list(actual[name])}, declared {list(shape)}"
        for name, shape in declared.items()
        if name in actual and actual[name] != shape
    ]
    text = f"its parameters differ from 'weights': {'; '.join(problems[:4])}"
    help_ = "let 'weights' return the name and shape of every nn.Parameter of the module"
    raise wrong(part.block, "__init__", text, help_)


def _refuse_lost_dropout(block: BlockType, module: nn.Module) -> None:
    """Refuse a module that does not keep a probability of dropout where training looks for it."""
    for name in block.dropout:
        if not isinstance(getattr(module, name, None), float | nn.Module):
            problem = f"'{name}' is in 'dropout', but no attribute of this name is a float or layer"
            raise wrong(block, "__init__", problem, f"set self.{name}, or leave 'dropout' out")


def try_out(graph: Graph, model: nn.Module) -> None:
    """Run the nodes that use plug-in blocks once, and compare their outputs with their types.

    Sizes are small: 2 sentences of about 5 positions.  Random generators, the model and its
    buffers do not change.  An exception that may be due to these sizes is ignored.

    Args:
        graph: the graph of the model.
        model: a model with initialized weights, not on the device meta.

    Raises:
        InputError: the outputs have another number, shape or dtype, or a method fails.
    """
    blocks = plug_ins(graph)
    if not blocks:
        return
    moving = root_moving(graph) if graph.step_axis is not None else frozenset[str]()
    tried: list[tuple[object, ...]] = []
    weight = next(model.parameters(), None)
    device = weight.device if weight is not None else torch.device("cpu")
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda), torch.no_grad():
        for node, module, ports in _nodes(graph.root, model, moving):
            if not any(filling.key in blocks for _, filling in fillings(node.part)):
                continue
            use = (node.part.key, node.part.arguments, node.part.inputs, node.part.fill, ports)
            if use not in tried:
                tried.append(use)
                _Trial(graph, node, copy.deepcopy(module).eval(), ports, device).run()


def _nodes(
    scope: Scope, module: nn.Module, moving_in: frozenset[str]
) -> Iterator[tuple[BlockNode, nn.Module, frozenset[str]]]:
    """Yield every block node outside slots, its module, and its moving ports; templates once."""
    moving = moving_values(scope, moving_in)
    for node in scope.nodes:
        if node.shares:
            continue
        below: Any = module._modules[node.name]  # noqa: SLF001 - it may be called like a method
        ports = moving_ports(node, moving)
        if isinstance(node, BlockNode):
            yield node, below, ports
            continue
        done = set[int]()
        for index, body in node.copies():
            if id(body) not in done:
                done.add(id(body))
                unrolled = isinstance(node, RepeatNode) and not node.share
                yield from _nodes(body, below[index] if unrolled else below, ports)


@dataclass(frozen=True, slots=True)
class _Trial:
    """One run of a node that uses a plug-in block, itself or in a slot."""

    graph: Graph
    node: BlockNode
    module: nn.Module
    moving: frozenset[str]
    device: torch.device

    def run(self) -> None:
        """Run `forward`, and `begin` and `step` if decoding calls them."""
        from .examples import sizes_for  # noqa: PLC0415 - only plug-ins are tried

        sizes = sizes_for(self.graph)
        inputs = self._inputs(self.node.part.inputs, sizes)
        if inputs is None:
            return
        with ExitStack() as hooks:
            for below, part in _plug_ins_in(self.node.part):
                inner = self.module.get_submodule(below)
                hook = inner.register_forward_hook(_comparing(part, sizes))
                hooks.callback(hook.remove)
            self._called("forward", lambda: self.module(**inputs))
        if self.moving and self.node.steps and self.graph.step_axis is not None:
            self._step(inputs, sizes, self.graph.step_axis)

    def _step(self, inputs: Mapping[str, Tensor], sizes: Mapping[str, int], axis: str) -> None:
        """Run `begin`, and `step` for one position."""
        step_sizes = {**sizes, axis: 1}
        moves = {
            name: type_ for name, type_ in self.node.part.inputs.items() if name in self.moving
        }
        now = self._inputs(moves, step_sizes)
        if now is None:
            return
        module: Any = self.module
        capacity = Capacity(2, 1, sizes[axis], torch.float32, self.device)
        fixed = {name: value for name, value in inputs.items() if name not in self.moving}
        state = self._called("begin", lambda: module.begin(capacity, **fixed))
        if state is None:
            return
        block = self.node.part.block
        if block.key in plug_ins(self.graph) and not isinstance(state, State | dict):
            problem = f"it returns {type(state).__name__}, not a State"
            raise wrong(block, "begin", problem, "return weft.State(carried=..., appended=...)")
        outputs = self._called("step", lambda: module.step(**now, state=state, position=0))
        if outputs is not None and block.key in plug_ins(self.graph):
            _compare(self.node.part, "step", outputs, step_sizes)

    def _inputs(
        self, types: Mapping[str, ValueType], sizes: Mapping[str, int]
    ) -> dict[str, Tensor] | None:
        """Return random inputs; None if a length is below 1 at these sizes."""
        axes = [axis for type_ in types.values() for axis in type_.axes]
        if any(evaluate(axis, sizes) < 1 for axis in axes):
            return None
        from .examples import example_value  # noqa: PLC0415 - only plug-ins are tried

        generator = torch.Generator().manual_seed(1)
        return {
            name: example_value(type_, sizes, generator, padding=False).to(self.device)
            for name, type_ in types.items()
        }

    def _called(self, method: str, call: Callable[[], Any]) -> Any:
        """Return the result of a call; None if it raises what may be due to the sizes."""
        try:
            return call()
        except InputError:
            raise
        except _MISTAKES as error:
            blocks = plug_ins(self.graph)
            key = _culprit(error, blocks)
            if key is None:
                raise
            text = f"{type(error).__name__}: {str(error).partition(chr(10))[0]:.200}"
            raise wrong(blocks[key], method, f"it raises {text}", f"correct '{method}'") from error
        except Exception:  # noqa: BLE001 - a block may need longer sequences than this trial has
            return None


def _plug_ins_in(part: Part) -> Iterator[tuple[str, Part]]:
    """Yield the plug-in blocks of a node, with the path of each below the node's module."""
    for below, filling in fillings(part):
        if isinstance(filling, Part) and not shipped(filling.block):
            yield below[1:].replace("/", "."), filling


def _comparing(part: Part, sizes: Mapping[str, int]) -> Callable[..., None]:
    """Return a forward hook that compares the outputs of a block with its ports."""

    def compare(_module: nn.Module, _inputs: Any, outputs: Any) -> None:
        _compare(part, "forward", outputs, sizes)

    return compare


def _compare(part: Part, method: str, outputs: Any, sizes: Mapping[str, int]) -> None:
    """Refuse outputs that do not have the types of the output ports."""
    ports = list(part.outputs)
    several = len(ports) > 1
    if several and not (isinstance(outputs, tuple) and len(outputs) == len(ports)):
        problem = f"it returns {_what(outputs)}, not a tuple of {len(ports)}: {', '.join(ports)}"
        raise wrong(part.block, method, problem, "return the outputs in the order of the ports")
    for port, value in zip(ports, outputs if several else (outputs,), strict=True):
        type_ = part.outputs[port]
        if not isinstance(value, Tensor):
            problem = f"the output '{port}' is {_what(value)}, not a tensor"
            help_ = "return one tensor for one output port, or a tuple for several"
            raise wrong(part.block, method, problem, help_)
        shape = [evaluate(axis, sizes) for axis in type_.axes]
        if list(value.shape) != shape:
            problem = f"the output '{port}' has the shape {list(value.shape)}, not {shape}: {type_}"
            raise wrong(part.block, method, problem, "correct the module, or the port's type")
        kind = dtype_of(type_.kind)
        if _kind_of(value) != kind:
            problem = f"the output '{port}' has the dtype {value.dtype}, not {kind}: {type_}"
            raise wrong(part.block, method, problem, "correct the module, or the port's type")


def _what(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"{type(value).__name__} of {len(value)}"
    return f"{type(value).__name__}"


def _kind_of(value: Tensor) -> str:
    if value.dtype == torch.bool:
        return "bool"
    return "float" if value.dtype.is_floating_point else "integer"
