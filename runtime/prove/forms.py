"""Other forms of a model: compiled, unpadded, or saved and opened again, it computes the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from ...blocks.kernels.unpad import Rows, without_padding
from ...graphs.ir.execution import UnpadPlan
from ...graphs.ir.value_type import ValueType, evaluate
from ...graphs.passes.unpad import plan_unpad, unpad
from ..checkpoint.checkpoint import open_checkpoint
from ..checkpoint.saving import Contents, save, weights_of
from ..codegen.generated import program_of
from ..compile.torch_compile import compile_model
from .comparison import Difference, difference, largest, traced
from .gradients import learn, learned_difference
from .inputs import Inputs, Masks, comparable, draw, mask_inputs, prefixes, valid
from .report import Name, Property
from .steps import decoded
from .subject import BlockError, Subject, not_applicable, running

NO_COMPILER = "InvalidCxxCompiler"
"""Name of torch's exception if there is no C++ compiler."""
PAD = 0
"""Id at the ends of rows on an axis without a mask."""


def compiled(subject: Subject) -> Property:
    """Compare one forward and backward pass of the compiled and the eager model."""
    graph = subject.graph
    if not program_of(subject.model).templates or not [*subject.model.parameters()]:
        reason = "no template with parameters is repeated, so weft.compile compiles nothing"
        return not_applicable("compiled", reason)
    inputs = draw(graph, subject.sizes, subject.seed, padded=mask_inputs(graph))
    eager, model = subject.trainable(), subject.trainable()
    report = compile_model(model, "layers")
    try:
        return _compared(
            subject,
            "compiled",
            f"outputs and gradients with {' and '.join(report.templates)} compiled",
            (eager, model),
            inputs,
            {},  # both models get the same padding, so they agree there as well
            lambda: _layer(subject, eager, model, inputs),
        )
    except BlockError as error:
        # The exception that torch raises is one of its backend, which wraps this one.
        if NO_COMPILER not in str(error):
            raise
        return not_applicable("compiled", "torch.compile finds no C++ compiler on this machine")


def unpadded(subject: Subject) -> Property:
    """Compare one forward and backward pass of the unpadded and the padded model."""
    plan = plan_unpad(subject.graph)
    notes = [f"axis {axis} stays padded: {why}" for axis, why in plan.padded.items()]
    if not plan.axes:
        return not_applicable("unpadded", f"the model cannot be unpadded: {plan.why}")
    others = [port for port, t in subject.graph.outputs.items() if not comparable(t, plan.axes)]
    if len(others) == len(subject.graph.outputs):
        return not_applicable("unpadded", "it is unknown what is padding in the outputs", *notes)
    notes += [f"output {port} was not compared: its padding is unknown" for port in others]
    inputs = _padded_inputs(subject, plan)
    padded, model = subject.trainable(), subject.trainable_as(unpad(subject.graph, pad=PAD))
    # The masks by which the model is unpadded; outputs are compared where they are true.
    with running("the unpadded model in training"):
        rows = _rows(model, inputs)
    masks = _masks(subject, rows)
    return _compared(
        subject,
        "unpadded",
        f"outputs and gradients with {' and '.join(plan.axes)} unpadded",
        (padded, model),
        inputs,
        masks,
        lambda: _node(subject, (padded, model), inputs, rows, masks),
        *notes,
    )


def saved(subject: Subject) -> Property:
    """Compare the model with what a checkpoint of it opens as, also in decoding steps."""
    graph = subject.graph
    with TemporaryDirectory() as folder, running("a checkpoint of the model"):
        path = Path(folder) / "checkpoint"
        save(path, Contents(graph=graph, weights=weights_of(subject.model, graph)))
        opened = open_checkpoint(path, graph.blocks)
    inputs = draw(graph, subject.sizes, subject.seed, padded=mask_inputs(graph))
    loaded = opened.build().to(torch.get_default_dtype())
    again = Subject(opened.graph, loaded, subject.sizes, subject.seed, subject.tolerance)
    outcome = _compared(
        subject,
        "saved",
        "outputs, gradients and decoding steps of the opened model",
        (subject.trainable(), again.trainable()),
        inputs,
        {},
        lambda: _first(subject, again, inputs),
    )
    if outcome.outcome == "failed":
        return outcome
    try:
        expected = decoded(subject)
    except BlockError:
        return outcome  # the property `steps` reports it
    worst = largest(
        difference(f"output {port} of step {position}", step[port], value)
        for position, step in enumerate(decoded(again))
        for port, value in expected[position].items()
    )
    if worst.amount <= subject.tolerance:
        return outcome
    return subject.failed("saved", "the steps of the opened model differ", worst, "")


def _first(subject: Subject, again: Subject, inputs: Mapping[str, Tensor]) -> str:
    """Return the first block whose values differ in the opened model."""
    traces = []
    for variant in (subject, again):
        with traced(variant.model, variant.graph) as trace:
            variant.run(inputs)
        traces.append(trace)

    def compare(_: ValueType, ours: Tensor, theirs: Tensor) -> float:
        return difference("", theirs, ours).amount

    return traces[0].first_difference(traces[1], compare, subject.tolerance)


def _compared(
    subject: Subject,
    name: Name,
    detail: str,
    models: tuple[nn.Module, nn.Module],
    inputs: Mapping[str, Tensor],
    masks: Masks,
    node: Callable[[], str],
    *notes: str,
) -> Property:
    """Compare the outputs and gradients of two models.

    Args:
        subject: the model that both are made from.
        name: the property.
        detail: what is compared.
        models: the plain and the transformed model, in training mode.
        inputs: of both.
        masks: masks of the padding of time axes.
        node: finds the first node that differs.
        *notes: notes of the property.
    """
    graph, runs = subject.graph, []
    for what, model in zip(("plain", name), models, strict=True):
        with running(f"the {what} model in training"):
            runs.append(learn(model, graph, inputs, masks, subject.seed))
    worst = learned_difference(runs[1], runs[0], graph, masks)
    if worst.amount <= subject.tolerance:
        return subject.passed(name, detail, worst, *notes)
    again = learn(models[0], graph, inputs, masks, subject.seed)
    if learned_difference(again, runs[0], graph, masks).amount > subject.tolerance:
        detail = "two passes over the same inputs differ, so the model is random in training"
        return subject.failed(name, detail, worst, "", *notes)
    detail = f"the {name} model differs from the plain model"
    return subject.failed(name, detail, worst, node(), *notes)


def _layer(
    subject: Subject, eager: nn.Module, model: nn.Module, inputs: Mapping[str, Tensor]
) -> str:
    """Return the first compiled layer that differs on the inputs of its eager form."""
    templates = program_of(model).templates
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any], Any]] = []
    handles = []
    for path, layer in eager.named_modules():
        if type(layer).__name__ in templates:

            def record(
                _: nn.Module, args: Any, kwargs: Any, outputs: Any, path: str = path
            ) -> None:
                calls.append((path, args, kwargs, outputs))

            handles.append(layer.register_forward_hook(record, with_kwargs=True))
    with torch.no_grad():
        eager(**inputs)
        for handle in handles:
            handle.remove()
        for path, args, kwargs, expected in calls:
            layer = model.get_submodule(path)
            if _apart(layer(*args, **kwargs), expected).amount > subject.tolerance:
                return f"{path} (template {type(layer).__name__})"
    return ""


def _apart(actual: Any, expected: Any) -> Difference:
    """Return the largest difference between the outputs of two layers."""
    actual_values, two = (
        value if isinstance(value, tuple) else (value,) for value in (actual, expected)
    )
    return largest(difference("", a, b) for a, b in zip(actual_values, two, strict=True))


def _padded_inputs(subject: Subject, plan: UnpadPlan) -> Inputs:
    """Return inputs with padding on every unpadded axis: by its mask, else by the padding id."""
    graph = subject.graph
    inputs = draw(graph, subject.sizes, subject.seed, padded=mask_inputs(graph))
    generator = torch.Generator().manual_seed(subject.seed)
    lengths: dict[tuple[Any, ...], Tensor] = {}
    for port, layout in plan.boundary.inputs.items():
        type_ = graph.inputs[port]
        if layout.axis in plan.masks or type_.kind != "ids" or layout.rank != len(("B", "T")):
            continue
        if type_.axes not in lengths:
            lengths[type_.axes] = prefixes(inputs[port].shape, generator)
        size = max(2, evaluate(type_.size or 1, {}))
        words = torch.randint(1, size, inputs[port].shape, generator=generator)
        inputs[port] = torch.where(lengths[type_.axes], words, PAD)
    return inputs


def _rows(model: Any, inputs: Mapping[str, Tensor]) -> dict[str, Rows]:
    """Return the rows into which an unpadded model divides a batch, by time axis."""
    with torch.no_grad():
        model(**inputs)
    return dict(model.batched.rows)


def _masks(subject: Subject, rows: Mapping[str, Rows]) -> Masks:
    """Return the masks of the unpadded axes, whose rows are those of the batch."""
    batch = next(axis for axis, kind in subject.graph.spec.axes.items() if kind == "batch")
    return {axis: [((batch, axis), axis_rows.mask)] for axis, axis_rows in rows.items()}


def _node(
    subject: Subject,
    models: tuple[nn.Module, nn.Module],
    inputs: Mapping[str, Tensor],
    rows: Mapping[str, Rows],
    masks: Masks,
) -> str:
    """Return the first block whose values differ between the padded and the unpadded model."""
    traces = []
    for model in models:
        with traced(model, subject.graph) as trace, torch.no_grad():
            model(**inputs)
        traces.append(trace)

    def compare(type_: ValueType, padded: Tensor, unpadded: Tensor) -> float:
        if not comparable(type_, rows.keys()):
            return 0.0
        dims = [dim for dim, axis in enumerate(type_.axes) if axis in rows]
        if padded.shape == unpadded.shape:
            return difference("", unpadded, padded, (), valid(type_, padded, masks)).amount
        if len(dims) != 1 or unpadded.dim() != padded.dim() - 1:
            return 0.0
        axis_rows = rows[str(type_.axes[dims[0]])]
        return difference("", unpadded, without_padding(padded, axis_rows, dims[0] - 1)).amount

    return traces[0].first_difference(traces[1], compare, subject.tolerance)
