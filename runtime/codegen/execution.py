"""The source of how a graph is computed, as the passes of `graphs/passes/` set it.

Unpadding, activation checkpointing, compiled steps and forms for an exporter change single
modules: these are subclasses.  The inputs and outputs of an unpadded graph, and linear maps that
a loss computes, are branches of its `forward`; kernels and prepacked matrices are calls in its
constructor, and a shortlist is a call in its `begin`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ...blocks.registry import full_path
from ...graphs.ir.execution import Around, Execution, UnpadPlan
from ...graphs.ir.graph import Graph
from ...graphs.ir.value_type import dtype_of
from .forward import fused_helpers

UNPADDED_IN_TRAINING = "self.training"
UNPADDED_IN_DECODING = "self.batched.rows"
"""Condition under which a module gets unpadded values: `begin` has found the rows of its batch."""
WORTH = 0.1
"""Fraction of padding from which `begin` leaves it out: below it, gathering takes longer."""
UNPAD = ".kernels.unpad"
"""Module of the functions that unpad, relative to `blocks`."""
USE_KERNELS = ".kernels.kernel_choice:use_kernels"
CASTS = ".kernels.precision:Casts"
OPERAND = ".kernels.precision:operand"
WITH_LORA = ".kernels.linear:with_lora"
PREPACK = ".kernels.prepacked:prepack"
SELECT_OUTPUTS = ".kernels.prepacked:select_outputs"
QUANTIZE = ".kernels.quantized:quantize"
COMPILED_STEPS = ".kernels.compiled_steps:CompiledSteps"
CHECKPOINT = "torch.utils.checkpoint:checkpoint"


class Classes(Protocol):
    """The classes of a program that is being written."""

    def imported(self, module: str) -> str:
        """Return the local name of what `module:name` imports."""

    def add_class(self, name: str, body: str, base: str) -> str:
        """Add a class and return its name."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How the passes change one module."""

    around: Around | None = None
    """What to pad and to unpad around it."""
    checkpointed: bool = False
    """Whether the backward pass computes its activations again."""
    compiled: bool = False
    """Whether its `step` is compiled."""
    form: str = ""
    """The method that an exporter needs in another form, as `method=file:function`."""
    when: str = UNPADDED_IN_TRAINING
    """When it gets unpadded values, as an expression."""
    unpadded: bool = False
    """Whether it, or the model that it is part of, is unpadded."""


Marks = Mapping[str, Mark]
"""Path of a module, below a scope, to its mark."""
NO_MARKS: Marks = {}


def marks_of(graph: Graph) -> Marks:
    """Return the marks of the modules of a graph, without those of models inside it."""
    execution = graph.execution
    arounds = execution.unpad.blocks if execution.unpad is not None else {}
    when = UNPADDED_IN_DECODING if execution.decoding else UNPADDED_IN_TRAINING
    others = execution.checkpointed | execution.compiled | execution.forms.keys()
    unpadded = {name for name, model in execution.models.items() if model.unpad is not None}
    return {
        path: Mark(
            arounds.get(path),
            path in execution.checkpointed,
            path in execution.compiled,
            execution.forms.get(path, ""),
            when,
            execution.unpad is not None or path in unpadded,
        )
        for path in (*arounds, *sorted(others - arounds.keys()))
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
    yield from fused_helpers(execution)
    if _kernels(execution):
        yield full_path(USE_KERNELS)
    if copies_weights(graph):
        yield full_path(CASTS)
        yield from [full_path(OPERAND)] if execution.fused or execution.groups else []
    if execution.shortlisted:
        yield full_path(SELECT_OUTPUTS)
    if execution.quantized is not None:
        yield full_path(QUANTIZE)
    if execution.prepacked is not None:
        yield full_path(PREPACK)
    if execution.compiled:
        yield full_path(COMPILED_STEPS)
    yield from (full_path(path) for _, path in map(form_of, execution.forms.values()))


def form_of(form: str) -> tuple[str, str]:
    """Return the method that a form replaces, and where its function is, `file:function`."""
    method, _, path = form.partition("=")
    return method, path


def marked_class(classes: Classes, base: str, mark: Mark | None) -> str:
    """Add the subclass that computes a module as its mark says; return the name.

    Args:
        classes: gets the class.
        base: name of the class of the module.
        mark: its mark; without one, the class is `base`.
    """
    if mark is None:
        return base
    if mark.around is not None:
        prefix = "Unpadded" if mark.around.inside else "Padded"
        body = _inside(mark.around) if mark.around.inside else _padded(mark.around, mark.when)
        base = classes.add_class(f"{prefix}{base}", body, base)
    if mark.checkpointed:
        run = "self.batched.repeatable(super().forward)" if mark.unpadded else "super().forward"
        joined = "" if mark.around is not None or not mark.unpadded else "\n    places = {}\n"
        body = _CHECKPOINTED.format(joined=joined, run=run)
        base = classes.add_class(f"Checkpointed{base}", body, base)
    if mark.compiled:
        base = classes.add_class(f"Compiled{base}", _COMPILED.format(base=base), base)
    if mark.form:
        method, path = form_of(mark.form)
        body = _FORM.format(method=method, function=classes.imported(full_path(path)))
        base = classes.add_class(f"Exported{base}", body, base)
    return base


_COMPILED = '''    """Its steps are compiled while that is switched on."""

    _compiled_steps = None

    def step(self, *args, **kwargs):
        return self._compiled_steps.run({base}.step, self, *args, **kwargs)'''

_FORM = '''    """A form that an exporter can follow."""

    {method} = {function}'''


_CHECKPOINTED = '''    """The backward pass computes its activations again."""
{joined}
    def forward(self, *args, **kwargs):
        if not (self.training and torch.is_grad_enabled()):
            return super().forward(*args, **kwargs)
        return checkpoint({run}, *args, use_reentrant=False, **kwargs)'''


def _places(around: Around) -> str:
    pairs = (
        f'"{port}": ("{layout.axis}", {layout.rank})' for port, layout in around.inputs.items()
    )
    return f"    places = {{{', '.join(pairs)}}}"


def _inside(around: Around) -> str:
    """Return the body of the subclass of a module that takes unpadded values."""
    return f'    """It gets unpadded values, and pads what it needs."""\n\n{_places(around)}'


def _padded(around: Around, when: str) -> str:
    """Return the body of a subclass that pads its inputs and unpads its outputs."""
    lines = [
        '    """Its inputs are padded for it, and its outputs are unpadded."""',
        "",
        _places(around),
        "",
        "    def forward(self, *args, **ports):",
        f"        if {when}:",
    ]
    for port, layout in around.inputs.items():
        given_place = f'"{layout.axis}", {layout.dim}, {layout.rank}'
        value = f'ports["{port}"]'
        lines.append(
            f'            {value} = self.batched.padded(ports.get("{port}"), {given_place})'
        )
    if not around.inputs:
        lines.pop()
    count = len(around.outputs)
    output_names = [f"y_{number}" for number in range(count)] if count > 1 else ["y"]
    lines.append(f"        {', '.join(output_names)} = super().forward(*args, **ports)")
    unpadded = {
        name: f'without_padding({name}, self.batched.rows["{layout.axis}"], {layout.dim})'
        for name, layout in zip(output_names, around.outputs.values(), strict=True)
        if layout is not None
    }
    if unpadded:
        lines.append(f"        if {when}:")
        lines += [f"            {name} = {text}" for name, text in unpadded.items()]
    lines.append(f"        return {', '.join(output_names)}")
    return "\n".join(lines)


def _kernels(execution: Execution) -> str:
    """Return the arguments of `use_kernels`: the kernels that are known."""
    if (kernels := execution.kernels) is None:
        return ""
    arguments = {
        "product": kernels.product,
        "attention": kernels.attention and dict(kernels.attention),
    }
    arguments["loss"] = None if kernels.loss == "torch" else kernels.loss
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items() if value)


def constructor_lines(graph: Graph) -> list[str]:
    """Return the last lines of a root's constructor: what its modules share."""
    execution, lines = graph.execution, []
    if execution.unpad is not None:
        lines += ["        self.batched = Batched()", "        self.batched.join(self)"]
    if arguments := _kernels(execution):
        lines.append(f"        use_kernels(self, {arguments})")
    if copies_weights(graph) and execution.casts is not None:
        lines.append(f"        self.casts = Casts(torch.{execution.casts.dtype})")
        lines.append("        self.casts.join(self)")
    if execution.quantized is not None:
        lines.append(f"        quantize(self, torch.{execution.quantized})")
    if execution.prepacked is not None:
        lines.append(f"        prepack(self, torch.{execution.prepacked})")
    if execution.compiled:
        lines.append("        CompiledSteps().join(self)")
    return lines


def copies_weights(graph: Graph) -> bool:
    """Return whether the modules of a graph read low-precision copies of their weights."""
    return graph.execution.casts is not None and graph.execution.casts.by == "copies"


def enter_lines(graph: Graph, names: Mapping[str, str]) -> list[str]:
    """Return the lines of a root's `forward` that begin training: casts, and unpadded inputs."""
    plan = graph.execution.unpad
    lines = ["        self.casts.refresh()"] if copies_weights(graph) else []
    if plan is not None and not graph.execution.decoding:
        lines += _start_lines(graph, plan, (), names)
    return ["        if self.training:", *(f"    {line}" for line in lines)] if lines else []


def begin_lines(
    graph: Graph, moving_in: Collection[str], names: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Return the lines of a root's `begin` that unpad its inputs, and those that pad the results.

    Args:
        graph: the graph.
        moving_in: the inputs that `begin` does not get.
        names: value to local variable.
    """
    plan = graph.execution.unpad
    if plan is None or not graph.execution.decoding:
        return [], []
    before = _start_lines(graph, plan, moving_in, names, f", least={WORTH}")
    after = [
        f'        {names[value]} = self.batched.padded({names[value]}, "{layout.axis}", '
        f"{layout.dim}, {layout.rank})"
        for value, layout in plan.cached.items()
    ]
    return [*before], [*after, "        self.batched.rows.clear()"]


def _start_lines(
    graph: Graph,
    plan: UnpadPlan,
    moving_in: Collection[str],
    names: Mapping[str, str],
    more: str = "",
) -> Iterable[str]:
    """Yield the lines that unpad all inputs except those that move."""
    masks = (entry for entry in _masks(graph, plan) if entry[1] not in moving_in)
    arguments = (f'"{axis}": ("{port}", {mask})' for axis, port, mask in masks)
    yield f"        self.batched.start({{{', '.join(arguments)}}}{more})"
    for port, layout in plan.boundary.inputs.items():
        if port not in moving_in:
            rows = f'self.batched.rows["{layout.axis}"]'
            yield f"        {names[port]} = without_padding({names[port]}, {rows}, {layout.dim})"


def _masks(graph: Graph, plan: UnpadPlan) -> Iterable[tuple[str, str, str]]:
    """Yield each unpadded axis with the input that tells its padding, and the mask made from it.

    That is the mask of the axis, else its first ids, else any input, which has no padding.
    """
    for axis in plan.axes:
        if axis in plan.masks:
            yield axis, plan.masks[axis], plan.masks[axis]
            continue
        places = {
            port: layout for port, layout in plan.boundary.inputs.items() if layout.axis == axis
        }
        ids = (
            port
            for port, layout in places.items()
            if dtype_of(graph.inputs[port].kind) == "integer" and layout.rank == len(("B", "T"))
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
    places = {} if plan is None or graph.execution.decoding else plan.boundary.outputs
    lines = [end.replace("return ", "outputs = ", 1)]
    for port, layout in places.items():
        if layout is not None:
            arguments = f'outputs["{port}"], self.batched.rows["{layout.axis}"], {layout.dim}'
            lines.append(f'            outputs["{port}"] = with_padding({arguments})')
    if len(lines) == 1:
        return [end]
    return [lines[0], "        if self.training:", *lines[1:], "        return outputs"]
