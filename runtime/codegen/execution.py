"""The source of how a graph is computed in training, as the passes of `graphs/passes/` set it.

Unpadding and activation checkpointing of single modules are subclasses, whose methods are the
plain ones in evaluation and decoding; the inputs and outputs of the graph, and linear maps that a
loss computes, are branches of its `forward`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ...blocks.registry import full_path
from ...graphs.ir.execution import Around, Fused, UnpadPlan
from ...graphs.ir.graph import Graph
from ...graphs.ir.value_type import dtype_of
from .forward import linear_output

UNPAD = ".kernels.unpad"
"""Module of the functions that unpad, relative to `blocks`."""
LINEAR_OUTPUT = ".kernels.losses.fused_linear_cross_entropy:LinearOutput"
USE_KERNELS = ".kernels.kernel_choice:use_kernels"
CHECKPOINT = "torch.utils.checkpoint:checkpoint"


@dataclass(frozen=True, slots=True)
class Mark:
    """How the passes change one module."""

    around: Around | None = None
    """What to pad and to unpad around it."""
    checkpointed: bool = False
    """Whether the backward pass computes its activations again."""


Marks = Mapping[str, Mark]
"""Path of a module, below a scope, to its mark."""
NO_MARKS: Marks = {}


def marks_of(graph: Graph) -> Marks:
    """Return the marks of the modules of a graph, without those of models inside it."""
    execution = graph.execution
    arounds = execution.unpad.blocks if execution.unpad is not None else {}
    return {
        path: Mark(arounds.get(path), path in execution.checkpointed)
        for path in (*arounds, *sorted(execution.checkpointed - arounds.keys()))
    }


def below(marks: Marks, path: str) -> Marks:
    """Return the marks of the modules inside a module, by their paths below it."""
    return {
        inner.removeprefix(f"{path}."): mark
        for inner, mark in marks.items()
        if inner.startswith(f"{path}.")
    }


def helpers_of(graph: Graph) -> Iterable[str]:
    """Yield what the source of a graph imports for its execution, as `module:name`."""
    execution = graph.execution
    if (plan := execution.unpad) is not None:
        names = {"Batched", "with_padding", "without_padding"}
        names |= {word.partition("(")[0] for _, _, word in _masks(graph, plan) if "(" in word}
        yield from (full_path(f"{UNPAD}:{name}") for name in sorted(names))
    if execution.checkpointed:
        yield CHECKPOINT
    if execution.fused:
        yield full_path(LINEAR_OUTPUT)
    if execution.kernels is not None:
        yield full_path(USE_KERNELS)


def marked_class(add_class: Callable[[str, str, str], str], base: str, mark: Mark | None) -> str:
    """Add the subclass that computes a module as its mark says; return the name.

    Args:
        add_class: adds a class, given its name, its body and its base, and returns its name.
        base: name of the class of the module.
        mark: its mark; without one, the class is `base`.
    """
    if mark is not None and mark.around is not None:
        around = mark.around
        prefix, body = (
            ("Unpadded", _inside(around)) if around.inside else ("Padded", _padded(around))
        )
        base = add_class(f"{prefix}{base}", body, base)
    if mark is not None and mark.checkpointed:
        base = add_class(f"Checkpointed{base}", _CHECKPOINTED, base)
    return base


_CHECKPOINTED = '''    """The backward pass computes its activations again."""

    def forward(self, *args, **kwargs):
        if not (self.training and torch.is_grad_enabled()):
            return super().forward(*args, **kwargs)
        return checkpoint(super().forward, *args, use_reentrant=False, **kwargs)'''


def _places(around: Around) -> str:
    pairs = (f'"{port}": ("{place.axis}", {place.rank})' for port, place in around.inputs.items())
    return f"    places = {{{', '.join(pairs)}}}"


def _inside(around: Around) -> str:
    """Return the body of the subclass of a module that takes unpadded values."""
    return f'    """It gets unpadded values, and pads what it needs."""\n\n{_places(around)}'


def _padded(around: Around) -> str:
    """Return the body of a subclass that pads its inputs and unpads its outputs."""
    ports = [*around.ports, *(f"{port}=None" for port in around.named)]
    given = ", ".join([*around.ports, *(f"{port}={port}" for port in around.named)])
    lines = [
        '    """Its inputs are padded for it, and its outputs are unpadded."""',
        "",
        _places(around),
        "",
        f"    def forward(self, {', '.join(ports)}):",
        "        if self.training:",
    ]
    for port, place in around.inputs.items():
        given_place = f'"{place.axis}", {place.dim}, {place.rank}'
        lines.append(f"            {port} = self.batched.padded({port}, {given_place})")
    if not around.inputs:
        lines.pop()
    count = len(around.outputs)
    found = [f"y_{number}" for number in range(count)] if count > 1 else ["y"]
    lines.append(f"        {', '.join(found)} = super().forward({given})")
    unpadded = {
        name: f'without_padding({name}, self.batched.rows["{place.axis}"], {place.dim})'
        for name, place in zip(found, around.outputs.values(), strict=True)
        if place is not None
    }
    if unpadded:
        lines.append("        if self.training:")
        lines += [f"            {name} = {text}" for name, text in unpadded.items()]
    lines.append(f"        return {', '.join(found)}")
    return "\n".join(lines)


def constructor_lines(graph: Graph) -> list[str]:
    """Return the last lines of a root's constructor: what its modules share."""
    execution, lines = graph.execution, []
    if execution.unpad is not None:
        lines += ["        self.batched = Batched()", "        self.batched.join(self)"]
    if (kernels := execution.kernels) is not None:
        given = f"product={kernels.product!r}, attention={dict(kernels.attention)!r}"
        lines.append(f"        use_kernels(self, {given})")
    return lines


def enter_lines(graph: Graph, names: Mapping[str, str]) -> list[str]:
    """Return the lines of a root's `forward` that unpad its inputs in training."""
    plan = graph.execution.unpad
    if plan is None:
        return []
    masks = (f'"{axis}": ("{port}", {mask})' for axis, port, mask in _masks(graph, plan))
    lines = ["        if self.training:", f"            self.batched.start({{{', '.join(masks)}}})"]
    for port, place in plan.whole.inputs.items():
        rows = f'self.batched.rows["{place.axis}"]'
        lines.append(
            f"            {names[port]} = without_padding({names[port]}, {rows}, {place.dim})"
        )
    return lines


def _masks(graph: Graph, plan: UnpadPlan) -> Iterable[tuple[str, str, str]]:
    """Yield each unpadded axis with the input that tells its padding, and the mask made from it.

    That is the mask of the axis, else its first ids, else any input, which has no padding.
    """
    for axis in plan.axes:
        if axis in plan.masks:
            yield axis, plan.masks[axis], plan.masks[axis]
            continue
        places = {port: one for port, one in plan.whole.inputs.items() if one.axis == axis}
        ids = (
            port
            for port, place in places.items()
            if dtype_of(graph.inputs[port].kind) == "integer" and place.rank == len(("B", "T"))
        )
        port = next(ids, None)
        if port is not None:
            yield axis, port, f"non_padding({port}, {graph.execution.pad})"
        else:
            port = next(iter(places))
            yield axis, port, f"all_positions({port}, {places[port].dim})"


def leave_lines(graph: Graph, end: str) -> list[str]:
    """Return the lines that end a root's `forward`, with its outputs padded in training.

    Args:
        graph: an unpadded graph.
        end: the line that returns the outputs of the plain graph.
    """
    plan = graph.execution.unpad
    places = {} if plan is None else plan.whole.outputs
    lines = [end.replace("return ", "outputs = ", 1)]
    for port, place in places.items():
        if place is not None:
            given = f'outputs["{port}"], self.batched.rows["{place.axis}"], {place.dim}'
            lines.append(f'            outputs["{port}"] = with_padding({given})')
    if len(lines) == 1:
        return [end]
    return [lines[0], "        if self.training:", *lines[1:], "        return outputs"]


def linear_output_line(loss: str, fused: Fused, names: Mapping[str, str]) -> str:
    """Return the line by which a loss gets the input of a linear map, and the map, in training."""
    value, head = names[f"{fused.model}.{fused.output}"], f"self.{fused.model}.{fused.head}"
    return (
        f"        {linear_output(loss)} = (\n"
        f"            LinearOutput({value}, {head}.weight, {head}.bias)"
        f" if self.training else {value}\n"
        f"        )"
    )
