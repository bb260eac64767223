"""ONNX: one graph of a module, with free lengths, by torch's exporter; and running it."""

from __future__ import annotations

import logging
import re
import types
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ....graphs.ir.graph import Graph
from ....graphs.ir.traverse import owned_parts
from ....graphs.ir.value_type import ValueType
from ....specs.findings import InputError
from ..examples import example_inputs, sizes_for
from .forms import onnx_forms

LARGEST = 1 << 30
"""Bytes of weights above which they lie in a file beside the graph; ONNX ends at 2 GiB."""

LOOPING = frozenset({"conv_gru_decoder"})
"""Blocks whose Python looks at lengths or numbers, where the exporter sees one case alone."""
_INT64 = 7
"""ONNX's number for a type."""

ROWS = "rows"
"""Name of the batch axis."""
PAST = "past"
"""Name of how many positions were written."""
ROOM = "capacity"
"""Name of how many positions there are in tensors that grow from those of an input on."""

Axes = tuple[str | int, ...]
"""A shape: names of lengths that are free, and numbers."""


@dataclass(frozen=True, slots=True)
class Named:
    """A tensor that goes in or comes out."""

    name: str
    axes: Axes
    example: Tensor

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        kind = str(self.example.dtype).removeprefix("torch.")
        return {"name": self.name, "type": kind, "shape": list(self.axes)}


def axes_of(type_: ValueType, graph: Graph) -> Axes:
    """Return the shape of an input: free lengths by the names of the graph's axes."""
    batches = {axis for axis, kind in graph.spec.axes.items() if kind == "batch"}
    return tuple(
        ROWS if axis in batches else axis if isinstance(axis, int) else str(axis)
        for axis in type_.axes
    )


def named_inputs(graph: Graph, *, batch: int, length: int) -> list[Named]:
    """Return random inputs of a graph, with names and shapes.

    Args:
        graph: what they are for.
        batch: rows.
        length: of the shortest axis that is free.

    Raises:
        InputError: an input is of a kind of which no example is known.
    """
    sizes = sizes_for(graph, batch=batch, length=length)
    try:
        values = example_inputs(graph, sizes)
    except ValueError as error:
        raise InputError(str(error), place=graph.source) from error
    return [Named(n, axes_of(t, graph), values[n]) for n, t in graph.inputs.items()]


def write_onnx(
    module: nn.Module,
    inputs: Sequence[Named],
    outputs: Sequence[str],
    path: Path,
    graph: Graph,
) -> None:
    """Write a module as an ONNX graph.

    Args:
        module: called with the inputs in order; gives a tuple, one for each output.
        inputs: names, shapes and examples.
        outputs: names.
        path: the file.
        graph: whose node is named when the exporter cannot go on.

    Raises:
        InputError: the exporter cannot express it; the node is named where it is known.
    """
    shapes = [
        {place: axis for place, axis in enumerate(one.axes) if isinstance(axis, str)}
        for one in inputs
    ]
    size = sum(p.numel() * p.element_size() for p in module.parameters())
    wide = _Wide(module).eval()
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad(), onnx_forms(module):
            warnings.simplefilter("ignore")
            program: Any = torch.onnx.export(
                wide,
                tuple(one.example for one in inputs),
                dynamo=True,
                input_names=[one.name for one in inputs],
                output_names=list(outputs),
                dynamic_shapes=(tuple(shapes),),
                custom_translation_table=_translations(),
                verbose=False,
            )
    except Exception as error:  # the exporter raises whatever it meets
        raise _refusal(error, module, graph) from error
    finally:
        log.setLevel(level)
    # Not above: a disk that is full is no fault of the graph.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program.save(str(path), external_data=size > LARGEST)


def _translations() -> dict[Any, Any]:
    """Return operators that the exporter lacks and ONNX has: a sort that keeps equals in order."""
    from onnxscript import opset18 as op  # noqa: PLC0415 - an extra

    def sort_stable(
        values: Any,
        dim: int = -1,
        descending: bool = False,  # noqa: FBT001, FBT002 - torch calls it so
        stable: bool = True,  # noqa: ARG001, FBT001, FBT002 - TopK always is
    ) -> Any:
        numbers = op.Cast(values, to=_INT64)
        size = op.Reshape(op.Gather(op.Shape(values), dim, axis=0), op.Constant(value_ints=[1]))
        sorted_, places = op.TopK(numbers, size, axis=dim, largest=descending, sorted=True)
        return op.CastLike(sorted_, values), places

    return {torch.ops.aten.sort.stable: sort_stable}


class _Wide(nn.Module):
    """Takes any number of tensors, which the exporter sees as one argument."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *values: Tensor) -> Any:
        return self.module(*values)


def _refusal(error: Exception, module: nn.Module, graph: Graph) -> InputError:
    """Return what is told: the innermost node that ran when the exporter gave up, and why."""
    paths = {id(inner): path for path, inner in module.named_modules()}
    node, last = "", error
    one: BaseException | None = error
    while one is not None:
        for frame in _frames(one.__traceback__):
            path = paths.get(id(frame.f_locals.get("self")), "") or _traced(frame)
            node = path.removeprefix("model.") if path not in ("", "model") else node
        last = one if isinstance(one, Exception) else last
        one = one.__cause__ or one.__context__
    words = [line.strip(" -") for line in str(last).splitlines() if line.strip(" -")]
    kept = next((line for line in reversed(words) if "inferred" in line), (words or [""])[0])
    where = f"node '{node}'" if node else "this spec"
    return refused(graph, f"torch's exporter to ONNX cannot express {where}: {kept[:200]}")


def refused(graph: Graph, problem: str) -> InputError:
    """Return a refusal that also names the nodes which are known to be behind most of them."""
    loops = looping(graph)
    shown = [*loops[:4], *(["..."] if len(loops) > 4 else [])]  # noqa: PLR2004
    told = f"\n      nodes that this often comes from: {', '.join(shown)}" if shown else ""
    return InputError(problem + told, place=graph.source, help="weft eject writes it as PyTorch")


def looping(graph: Graph) -> list[str]:
    """Return the nodes whose forward the exporter writes out for the lengths of its example."""
    found = dict.fromkeys(
        f"'{re.sub(r'[.][0-9]+(?=[.]|$)', '.*', path)}' ({part.block.key})"
        for path, _, part in owned_parts(graph.root)
        if part.block.name in LOOPING
    )
    return list(found)


def _traced(frame: types.FrameType) -> str:
    """Return the module of the operator that the exporter was translating in a frame."""
    node = frame.f_locals.get("node")
    stack = node.meta.get("nn_module_stack", {}) if isinstance(node, torch.fx.Node) else {}
    inner = [path for path, _ in stack.values()]
    return f"model.{inner[-1].partition('.model.')[2]}" if inner else ""


def _frames(trace: types.TracebackType | None) -> list[types.FrameType]:
    found = []
    while trace is not None:
        found.append(trace.tb_frame)
        trace = trace.tb_next
    return found


class Session:
    """An ONNX graph in onnxruntime, on the CPU."""

    def __init__(self, path: Path, graph: Graph) -> None:
        """Open it.

        Args:
            path: the file.
            graph: what it was made of, for what is told if it does not run.

        Raises:
            InputError: onnxruntime has no kernel for something in it.
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
        except Exception as error:  # onnxruntime has a class for each kind, and none for all
            told = " ".join(str(error).split())[:200]
            problem = f"onnxruntime does not open what was written: {told}"
            raise refused(graph, problem) from error
        self._takes = {one.name for one in self._session.get_inputs()}
        self._gives = [one.name for one in self._session.get_outputs()]

    def __call__(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return outputs by name; inputs that the graph does not need are left out.

        Raises:
            InputError: it does not run for these lengths.
        """
        feed = {name: v.contiguous().numpy() for name, v in given.items() if name in self._takes}
        try:
            values = self._session.run(self._gives, feed)
        except Exception as error:
            lengths = ", ".join(f"{name} {list(v.shape)}" for name, v in given.items())
            problem = f"what was written does not run for other lengths: {lengths[:200]}"
            raise refused(self._graph, problem) from error
        return {n: torch.from_numpy(v) for n, v in zip(self._gives, values, strict=True)}
