"""Changes of inputs that must not change outputs: at later positions, and in the padding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from ...graphs.ir.traverse import position_limits
from ...graphs.ir.value_type import ValueType, time_axes
from .comparison import Difference, difference, largest
from .inputs import (
    Inputs,
    Masks,
    comparable,
    draw,
    first,
    mask_inputs,
    masks_of,
    on_axis,
    other_values,
    valid,
    with_more_padding,
    with_other_padding,
)
from .report import Property
from .subject import Subject, not_applicable

CUTS = 12
"""Most positions from which inputs are changed."""


def causality(subject: Subject) -> Property:
    """Change the inputs from several positions on, and compare the outputs before."""
    graph, axis = subject.graph, subject.graph.step_axis
    if axis is None:
        return not_applicable("causality", "the spec has no 'step', so any position may read any")
    length = subject.sizes[axis]
    if length == 1 or not any(on_axis(graph.outputs, axis)):
        reason = f"no output has several positions on the step axis {axis}"
        return not_applicable("causality", reason)
    inputs = draw(graph, subject.sizes, subject.seed, padded=mask_inputs(graph).keys() - {axis})
    cuts = sorted({1 + cut * (length - 2) // (CUTS - 1) for cut in range(CUTS)})
    base = subject.run(inputs)
    worst: list[Difference] = []
    for cut in cuts:
        changed = _changed(subject, inputs, axis, cut)
        if all(torch.equal(changed[port], inputs[port]) for port in inputs):
            return not_applicable("causality", f"no input on the step axis {axis} can vary")
        after = subject.run(changed)
        deviation = largest(
            difference(f"output {port}", *_before(type_, after[port], base[port], axis, cut))
            for port, type_ in on_axis(graph.outputs, axis)
        )
        worst.append(deviation)
        if deviation.amount > subject.tolerance:
            return _leak(subject, inputs, changed, deviation, cut)
    detail = f"inputs changed from {axis}={cuts[0]}, ..., {axis}={cuts[-1]} on"
    detail = detail if len(cuts) > 1 else f"inputs changed from {axis}={cuts[0]} on"
    return subject.passed("causality", detail, largest(worst))


def _changed(
    subject: Subject, inputs: Mapping[str, Tensor], axis: str, cut: int
) -> dict[str, Tensor]:
    """Return inputs with other values from a position of the step axis on, masks included."""
    generator, changed = torch.Generator().manual_seed(subject.seed + cut), dict(inputs)
    for port, type_ in subject.graph.inputs.items():
        if axis in type_.axes:
            value = inputs[port]
            dim = type_.axes.index(axis)
            shape = [1] * value.dim()
            shape[dim] = -1
            later = (torch.arange(value.size(dim)) >= cut).view(shape)
            changed[port] = torch.where(later, other_values(type_, value, generator), value)
    return changed


def _before(
    type_: ValueType, actual: Tensor, expected: Tensor, axis: str, cut: int
) -> tuple[Tensor, Tensor, tuple[int | str, ...]]:
    """Return two values up to a position of the step axis, and their axes."""
    for dim, name in enumerate(type_.axes):
        if name == axis:
            actual, expected = actual.narrow(dim, 0, cut), expected.narrow(dim, 0, cut)
    return actual, expected, type_.axes


def _leak(
    subject: Subject,
    inputs: Mapping[str, Tensor],
    changed: Mapping[str, Tensor],
    deviation: Difference,
    cut: int,
) -> Property:
    """Return the failed property, with the first block that reads later positions."""
    axis = subject.graph.step_axis or ""
    if noisy := subject.random("causality", inputs, deviation):
        return noisy

    def compare(type_: ValueType, values: Tensor, two: Tensor) -> float:
        if axis not in type_.axes:
            return 0.0
        return difference("", *_before(type_, values, two, axis, cut)).amount

    node = subject.first_difference(inputs, changed, compare)
    detail = f"other inputs from {axis}={cut} on change an output before it"
    return subject.failed("causality", detail, deviation, node)


def padding(subject: Subject) -> Property:
    """Change the padding of each time axis that has a mask, and compare the outputs elsewhere."""
    graph = subject.graph
    masked = mask_inputs(graph)
    unmasked = [axis for axis in time_axes(graph.spec.axes) if axis not in masked]
    notes = [f"axis {axis} has no mask input, so it has no padding" for axis in unmasked]
    notes += [
        f"input {port} gives lengths; the padding after them was not changed"
        for port, type_ in graph.inputs.items()
        if type_.kind == "len"
    ]
    if not masked:
        reason = "no input is a mask of a time axis, so the model knows no padding"
        return not_applicable("padding", reason, *notes[len(unmasked) :])
    inputs = draw(graph, subject.sizes, subject.seed, padded=masked)
    notes += [
        f"axis {axis} has only one position, so it cannot be padded"
        for axis in masked
        if subject.sizes[axis] == 1
    ]
    masks = masks_of(graph, inputs)
    ports = {port: t for port, t in graph.outputs.items() if _has_positions(t, masks)}
    notes += [
        f"output {port} ({type_}) was not compared: "
        + ("a loss is a mean over all positions" if type_.kind == "loss" else "it has other axes")
        for port, type_ in graph.outputs.items()
        if port not in ports
    ]
    if not ports:
        return not_applicable("padding", "it is unknown what is padding in the outputs", *notes)
    base = subject.run(inputs)
    worst: list[Difference] = []
    done: list[str] = []
    for axis in masked:
        for what, changed in _variants(subject, inputs, axis, notes):
            after = subject.run(changed, f"a pass with {what}")
            deviation = largest(
                _difference(f"output {port}", type_, after[port], base[port], masks)
                for port, type_ in ports.items()
            )
            worst.append(deviation)
            done.append(what)
            if deviation.amount > subject.tolerance:
                return _fault(subject, inputs, changed, deviation, what, notes)
    if not done:
        return not_applicable("padding", "no masked axis can be padded", *notes)
    return subject.passed("padding", "; ".join(done), largest(worst), *notes)


def _has_positions(type_: ValueType, masks: Masks) -> bool:
    return type_.kind != "loss" and comparable(type_, masks.keys())


def _variants(
    subject: Subject, inputs: Inputs, axis: str, notes: list[str]
) -> Iterator[tuple[str, Inputs]]:
    """Yield inputs that differ in the padding of one axis only; add what cannot be tested."""
    graph, seed = subject.graph, subject.seed + 1
    length = subject.sizes[axis]
    if length == 1:
        return
    yield f"other values in the padding of {axis}", with_other_padding(graph, inputs, axis, seed)
    longest = min([2 * length, *position_limits(graph)])
    more = {**subject.sizes, axis: longest} if longest > length else None
    longer = with_more_padding(graph, inputs, more, axis, seed) if more else None
    if longer is None:
        why = "of the axes of its inputs" if more else f"the model takes {longest} positions"
        notes.append(f"axis {axis} was not padded further, because {why}")
        return
    yield f"{longest - length} more positions of padding in {axis}", longer


def _difference(
    what: str, type_: ValueType, actual: Tensor, expected: Tensor, masks: Masks
) -> Difference:
    """Return the largest difference outside padding; the found value may have more padding."""
    if any(size < two for size, two in zip(actual.shape, expected.shape, strict=True)):
        return difference(what, actual, expected)
    valid_mask = valid(type_, expected, masks)
    return difference(what, actual[first(expected)], expected, type_.axes, valid_mask)


def _fault(
    subject: Subject,
    inputs: Inputs,
    changed: Inputs,
    deviation: Difference,
    what: str,
    notes: list[str],
) -> Property:
    """Return the failed property, with the first block that depends on the padding."""
    if noisy := subject.random("padding", inputs, deviation, *notes):
        return noisy
    masks = masks_of(subject.graph, inputs)

    def compare(type_: ValueType, values: Tensor, two: Tensor) -> float:
        if not _has_positions(type_, masks) or values.dim() != two.dim():
            return 0.0
        return _difference("", type_, two, values, masks).amount

    node = subject.first_difference(inputs, changed, compare)
    return subject.failed(
        "padding", f"{what}: an output elsewhere changes", deviation, node, *notes
    )
