"""ONNX graphs of a module, or of a step program with its state, run with onnxruntime."""

from __future__ import annotations

import contextlib
import keyword
import logging
import re
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .... import example_inputs
from ....graphs.ir.step_axis import leads_of
from ....graphs.ir.traverse import walk
from ....plugin import Capacity, Graph, InputError, State, ValueType, owned_parts, sizes_for
from ....runtime.codegen.decode import KEPT, kept_value

Kind = Literal["appended", "carried", "fixed"]
KINDS: tuple[Kind, ...] = ("appended", "carried", "fixed")
GROWN = "grown"
"""Kind of other tensors with a dimension of the state's capacity; they grow by one per step."""
NOTHING: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class OnnxLeaf:
    """One tensor of a state."""

    name: str
    """Path of the block and name in its state, such as `decoder.0.self_attention.key`."""
    kind: Kind
    value: Tensor


def leaves(state: Any, path: tuple[str, ...] = ()) -> Iterator[OnnxLeaf]:
    """Yield the tensors of a state in a fixed order."""
    if isinstance(state, State):
        for kind in KINDS:
            for name, value in getattr(state, kind).items():
                yield OnnxLeaf(".".join((*path, name)), kind, value)
    elif isinstance(state, Mapping):
        for name, inner in state.items():
            if name.startswith(KEPT):  # a value that is constant over steps
                yield OnnxLeaf(".".join((*path, kept_value(name)[0])), "fixed", inner)
            else:
                yield from leaves(inner, (*path, name))
    elif isinstance(state, Sequence):
        for index, inner in enumerate(state):
            yield from leaves(inner, (*path, str(index)))


def rebuilt(like: Any, values: Iterator[Tensor]) -> Any:
    """Return a state of the same structure with new tensors, in the order of `leaves`."""
    if isinstance(like, State):
        parts = [{name: next(values) for name in getattr(like, kind)} for kind in KINDS]
        return State(*parts)
    if isinstance(like, Mapping):
        return {
            name: next(values) if name.startswith(KEPT) else rebuilt(inner, values)
            for name, inner in like.items()
        }
    return [rebuilt(inner, values) for inner in like]


def grown_of(short: Any, long: Any) -> dict[str, int]:
    """Return, by tensor name, the dimension that depends on the capacity.

    Args:
        short: a state.
        long: the same state with a larger capacity; appended buffers are ignored.
    """
    return {
        leaf.name: axis
        for leaf, other in zip(leaves(short), leaves(long), strict=True)
        if leaf.kind != "appended"
        for axis, (a, b) in enumerate(zip(leaf.value.shape, other.value.shape, strict=True))
        if a != b
    }


@dataclass(frozen=True, slots=True)
class Loop:
    """Inputs and output of a step program."""

    tokens: str
    """Input that receives the generated tokens."""
    masks: tuple[str, ...]
    """Mask inputs; every position is kept."""
    fixed: tuple[str, ...]
    """Inputs that are constant over steps."""
    rows: int | None
    """Index of the constant input whose first axis counts rows; None if there is none."""
    output: str
    """Output with the scores of the next token."""


def loop_of(graph: Graph) -> Loop:
    """Return the inputs and output of a graph's step program.

    Raises:
        InputError: the step needs inputs other than ids and masks, or the graph has no logits.
    """
    moving = {n: t for n, t in graph.inputs.items() if graph.step_axis in t.axes}
    ids = [name for name, type_ in moving.items() if type_.kind == "ids"]
    masks = [name for name, type_ in moving.items() if type_.kind == "mask"]
    assert graph.step_axis is not None  # noqa: S101 - only specs that decode have steps
    if len(ids) != 1 or len(ids) + len(masks) != len(moving) or "logits" not in graph.outputs:
        raise InputError(
            "its steps do not map one input of ids to 'logits'",
            location=f"{graph.source}#/step",
            help="use weft eject, which writes plain PyTorch including the steps",
        )
    for path, node in walk(graph.root):
        for lead in (lead for t in node.outputs.values() for lead in leads_of(t, graph.step_axis)):
            if lead:
                count = "1 position" if lead == 1 else f"{lead} positions"
                raise InputError(
                    f"node '{path}' puts {count} before those of {graph.step_axis}, which"
                    f" the first step computes beside its own and no later step does",
                    location=f"{graph.source}#{node.at}",
                    help="use weft eject, which writes plain PyTorch including the steps",
                )
    fixed = tuple(name for name in graph.inputs if name not in moving)
    first = (i for i, name in enumerate(fixed) if axes_of(graph.inputs[name], graph)[:1] == (ROWS,))
    return Loop(ids[0], tuple(masks), fixed, next(first, None), "logits")


class Begin(nn.Module):
    """The graph that runs once: from constant inputs to the state before the first step.

    If no constant input has rows, a last tensor has as many items as there are rows.
    """

    def __init__(self, model: nn.Module, loop: Loop, like: Any) -> None:
        """Store the model.

        Args:
            model: model with a `begin` method.
            loop: inputs and output of its steps.
            like: a state after one step, which has every tensor.
        """
        super().__init__()
        self.model, self.loop, self.like = model, loop, like

    def forward(self, *fixed: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors of the state; growing tensors have 0 positions."""
        first = fixed[-1 if self.loop.rows is None else self.loop.rows]
        dtype = next(self.model.parameters()).dtype
        capacity = Capacity(first.size(0), 1, 0, dtype, first.device)
        begin: Any = self.model.begin
        begun = {leaf.name: leaf.value for leaf in leaves(begin(capacity, **self._named(fixed)))}
        return tuple(
            begun[leaf.name] if leaf.name in begun else _none(leaf.value, first.size(0))
            for leaf in leaves(self.like)
        )

    def _named(self, fixed: Sequence[Tensor]) -> dict[str, Tensor]:
        return dict(zip(self.loop.fixed, fixed, strict=self.loop.rows is not None))


def _none(like: Tensor, rows: int) -> Tensor:
    """Return an empty buffer with 0 positions, as the first step expects."""
    return like.new_zeros(rows, *like.shape[1:-2], 0, like.size(-1))


class OnnxStep(nn.Module):
    """One decoding step: from tokens and state to logits and the changed state tensors."""

    def __init__(
        self,
        model: nn.Module,
        loop: Loop,
        like: Any,
        *,
        counted: bool,
        grown: Mapping[str, int] = NOTHING,
    ) -> None:
        """Store the model.

        Args:
            model: model with a `step` method.
            loop: inputs and output of its steps.
            like: a state after one step, which has every tensor.
            counted: whether the first value is a tensor whose length is the number of past
                positions, because the state does not contain that number.
            grown: result of `grown_of`.
        """
        super().__init__()
        self.model, self.loop, self.like, self.counted = model, loop, like, counted
        self.grown = grown

    def forward(self, tokens: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        """Return logits [R, V] and the changed state tensors.

        Args:
            tokens: [R, 1], the last token of each row.
            *values: the state's tensors, in the order of `leaves`.
        """
        position, states = 0, list(values)
        if self.counted:
            position = states.pop(0).size(0)
        tensors = []
        for leaf, value in zip(leaves(self.like), states, strict=True):
            if leaf.kind == "appended":
                position = value.size(-2)
                tensors.append(_longer(value, value.dim() - 2))
            elif leaf.name in self.grown:
                tensors.append(_longer(value, self.grown[leaf.name]))
            else:
                tensors.append(value.clone() if leaf.kind == "carried" else value)
        state = rebuilt(self.like, iter(tensors))
        mask = torch.ones_like(tokens, dtype=torch.bool)
        moving = {self.loop.tokens: tokens, **dict.fromkeys(self.loop.masks, mask)}
        step: Any = self.model.step
        logits = step(**moving, state=state, position=position)[self.loop.output][:, -1]
        changed = [
            leaf.value for leaf in leaves(state) if leaf.kind != "fixed" or leaf.name in self.grown
        ]
        return (logits, *changed)


def _longer(value: Tensor, axis: int) -> Tensor:
    """Return a tensor with one more position of zeros along a dimension."""
    shape = list(value.shape)
    shape[axis] = 1
    return torch.cat([value, value.new_zeros(shape)], axis)


LARGEST = 1 << 30
"""Weights above this many bytes go to a separate file; ONNX files are limited to 2 GiB."""

_INT64 = 7
"""ONNX's code of the type int64."""

ROWS = "rows"
"""Name of the batch axis."""
PAST = "past"
"""Name of the axis of past positions."""
CAPACITY = "capacity"
"""Name of the axis of tensors that start at an input's length and grow with each step."""

Axes = tuple[str | int, ...]
"""A shape: names for free sizes, numbers for fixed sizes."""


@dataclass(frozen=True, slots=True)
class NamedTensor:
    """An input or output tensor."""

    name: str
    axes: Axes
    example: Tensor

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        kind = str(self.example.dtype).removeprefix("torch.")
        return {"name": self.name, "type": kind, "shape": list(self.axes)}


def axes_of(type_: ValueType, graph: Graph) -> Axes:
    """Return the shape of an input: free sizes are named by the graph's axes."""
    batches = {axis for axis, kind in graph.spec.axes.items() if kind == "batch"}
    return tuple(
        ROWS if axis in batches else axis if isinstance(axis, int) else str(axis)
        for axis in type_.axes
    )


def named_inputs(graph: Graph, *, batch: int, length: int) -> list[NamedTensor]:
    """Return random inputs of a graph, with their names and shapes.

    Args:
        graph: the graph that takes the inputs.
        batch: number of rows.
        length: length of the shortest free axis.

    Raises:
        InputError: an input has a kind for which no example can be made.
    """
    sizes = sizes_for(graph, batch=batch, length=length)
    try:
        values = example_inputs(graph, sizes)
    except ValueError as error:
        raise InputError(str(error), location=graph.source) from error
    return [NamedTensor(n, axes_of(t, graph), values[n]) for n, t in graph.inputs.items()]


def write_onnx(
    module: nn.Module,
    inputs: Sequence[NamedTensor],
    outputs: Sequence[str],
    path: Path,
    graph: Graph,
) -> None:
    """Write a module as an ONNX graph.

    Args:
        module: called with the inputs in order; returns a tuple of outputs.  Its blocks have the
            forms of the pass `forms`.
        inputs: names, shapes and examples.
        outputs: names of the outputs.
        path: ONNX file.
        graph: graph of the model, to name the node at which the exporter fails.

    Raises:
        InputError: the exporter cannot express the module; the node is named if it is known.
    """
    shapes = [
        {index: axis for index, axis in enumerate(input_.axes) if isinstance(axis, str)}
        for input_ in inputs
    ]
    size = sum(p.numel() * p.element_size() for p in module.parameters())
    wide = _Wide(module).eval()
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad(), with_free_names(wide):
            warnings.simplefilter("ignore")
            program: Any = torch.onnx.export(
                wide,
                tuple(input_.example for input_ in inputs),
                dynamo=True,
                input_names=[input_.name for input_ in inputs],
                output_names=list(outputs),
                dynamic_shapes=(tuple(shapes),),
                custom_translation_table=_translations(),
                verbose=False,
            )
    except Exception as error:  # the exporter raises errors of any type
        raise _refusal(error, module, graph) from error
    finally:
        log.setLevel(level)
    # Outside the try block: a full disk is not a fault of the graph.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program.save(str(path), external_data=size > LARGEST)


class _Renamed(dict[str, Any]):
    """Modules by name, some with an underscore that generated code does not write."""

    def __missing__(self, name: str) -> Any:
        return self[f"{name}_"]


@contextlib.contextmanager
def with_free_names(model: nn.Module) -> Iterator[None]:
    """Within this context, no module has the name of an attribute, or of a keyword.

    The tracer reads modules as attributes, so a node that is called `half` is `half_` for it.
    """
    changed: list[tuple[nn.Module, dict[str, Any]]] = []
    for module in list(model.modules()):
        modules = module._modules  # noqa: SLF001 - torch has no method that renames a module
        taken = {n for n in modules if hasattr(type(module), n) or keyword.iskeyword(n)}
        if taken:
            free = {f"{n}_" if n in taken else n: inner for n, inner in modules.items()}
            changed.append((module, modules))
            module._modules = _Renamed(free)  # noqa: SLF001 - as above
    try:
        yield
    finally:
        for module, modules in changed:
            module._modules = modules  # noqa: SLF001 - as above


def _translations() -> dict[Any, Any]:
    """Return translations that the exporter lacks: stable sort, which ONNX has as TopK."""
    from onnxscript import opset18 as op  # noqa: PLC0415 - an extra

    def sort_stable(
        values: Any,
        dim: int = -1,
        descending: bool = False,  # noqa: FBT001, FBT002 - torch's signature
        stable: bool = True,  # noqa: ARG001, FBT001, FBT002 - TopK is always stable
    ) -> Any:
        numbers = op.Cast(values, to=_INT64)
        size = op.Reshape(op.Gather(op.Shape(values), dim, axis=0), op.Constant(value_ints=[1]))
        sorted_, places = op.TopK(numbers, size, axis=dim, largest=descending, sorted=True)
        return op.CastLike(sorted_, values), places

    return {torch.ops.aten.sort.stable: sort_stable}


class _Wide(nn.Module):
    """Takes any number of tensors, which the exporter treats as one argument."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *values: Tensor) -> Any:
        return self.module(*values)


def _refusal(error: Exception, module: nn.Module, graph: Graph) -> InputError:
    """Return an error that names the innermost node running when the exporter failed."""
    paths = {id(inner): path for path, inner in module.named_modules()}
    node, last = "", error
    cause: BaseException | None = error
    while cause is not None:
        for frame in _frames(cause.__traceback__):
            path = paths.get(id(frame.f_locals.get("self")), "") or _traced(frame)
            node = path.removeprefix("model.") if path not in ("", "model") else node
        last = cause if isinstance(cause, Exception) else last
        cause = cause.__cause__ or cause.__context__
    words = [line.strip(" -") for line in str(last).splitlines() if line.strip(" -")]
    message = next((line for line in reversed(words) if "inferred" in line), (words or [""])[0])
    where = f"node '{node}'" if node else "this spec"
    return refused(graph, f"torch's exporter to ONNX cannot express {where}: {message[:200]}")


def refused(graph: Graph, problem: str) -> InputError:
    """Return an error that also names the nodes that commonly cause exporter failures."""
    loops = looping(graph)
    shown = [*loops[:4], *(["..."] if len(loops) > 4 else [])]  # noqa: PLR2004
    hint = f"\n      nodes that often cause this: {', '.join(shown)}" if shown else ""
    return InputError(
        problem + hint, location=graph.source, help="use weft eject, which writes plain PyTorch"
    )


def looping(graph: Graph) -> list[str]:
    """Return the nodes whose forward the exporter unrolls for the example's lengths."""
    names = dict.fromkeys(
        f"'{re.sub(r'[.][0-9]+(?=[.]|$)', '.*', path)}' ({part.key})"
        for path, _, part in owned_parts(graph.root)
        if part.block.loops
    )
    return list(names)


def _traced(frame: types.FrameType) -> str:
    """Return the module of the operator that the exporter was translating in a frame."""
    node = frame.f_locals.get("node")
    stack = node.meta.get("nn_module_stack", {}) if isinstance(node, torch.fx.Node) else {}
    inner = [path for path, _ in stack.values()]
    return f"model.{inner[-1].partition('.model.')[2]}" if inner else ""


def _frames(trace: types.TracebackType | None) -> list[types.FrameType]:
    frames = []
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    return frames


class OnnxSession:
    """An ONNX graph in onnxruntime, on the CPU."""

    def __init__(self, path: Path, graph: Graph) -> None:
        """Open a graph file.

        Args:
            path: ONNX file.
            graph: graph of the model, for error messages.

        Raises:
            InputError: onnxruntime cannot load the graph.
        """
        import onnxruntime  # noqa: PLC0415 - an extra

        self._graph = graph

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's error classes have no common base
            reason = " ".join(str(error).split())[:200]
            problem = f"onnxruntime cannot open the written graph: {reason}"
            raise refused(graph, problem) from error
        self._takes = {port.name for port in self._session.get_inputs()}
        self._gives = [port.name for port in self._session.get_outputs()]

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return outputs by name; inputs that the graph does not use are ignored.

        Raises:
            InputError: the graph does not run for these lengths.
        """
        feed = {name: v.contiguous().numpy() for name, v in inputs.items() if name in self._takes}
        try:
            values = self._session.run(self._gives, feed)
        except Exception as error:
            lengths = ", ".join(f"{name} {list(v.shape)}" for name, v in inputs.items())
            problem = f"the written graph does not run for these lengths: {lengths[:200]}"
            raise refused(self._graph, problem) from error
        return {n: torch.from_numpy(v) for n, v in zip(self._gives, values, strict=True)}
