"""Differences of tensors, and the first block whose values differ between two runs of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ...graphs.ir.graph import Graph, Part
from ...graphs.ir.traverse import visits
from ...graphs.ir.value_type import Axis, ValueType
from ...graphs.passes.merge import merged


@dataclass(frozen=True, slots=True)
class Difference:
    """The largest difference between the found and the expected values of one tensor."""

    what: str
    """Name of the output, input or parameter, and in which case it was compared."""
    amount: float
    """Relative to the largest expected value, or absolute if that is below 1; inf for NaN."""
    position: str = ""
    """Where it is, such as `B=0, T=3, 5`."""

    @property
    def location(self) -> str:
        """The tensor and the position in it."""
        return f"{self.what} at {self.position}" if self.position else self.what


def difference(
    what: str,
    actual: Tensor,
    expected: Tensor,
    axes: Sequence[Axis] = (),
    valid: Tensor | None = None,
    first: Mapping[str, int] | None = None,
) -> Difference:
    """Return the largest difference between two tensors.

    Equal infinities and NaN at the same position are equal: whether values are finite is another
    question, which the gradients answer.

    Args:
        what: name of the tensor.
        actual: values of any dtype.
        expected: values to compare with.
        axes: names of the first axes, for the position.
        valid: true where values are compared; it can be broadcast to the shape.
        first: axis to the index that the first compared position has on it; default: 0.
    """
    if actual.shape != expected.shape:
        shapes = f"shape {list(actual.shape)}, not {list(expected.shape)}"
        return Difference(f"{what}, which has {shapes}", float("inf"))
    values, other = actual.detach().double(), expected.detach().double()
    same = (values == other) | (values.isnan() & other.isnan())
    apart = torch.where(same, 0.0, (values - other).abs()).nan_to_num(nan=float("inf"))
    reference = torch.where(other.isfinite(), other.abs(), 0.0)
    if valid is not None:
        apart, reference = apart * 1.0, reference * 1.0
        apart[~valid.expand(apart.shape)] = 0.0
        reference[~valid.expand(apart.shape)] = 0.0
    if not apart.numel():
        return Difference(what, 0.0)
    at = int(apart.argmax())
    amount = apart.flatten()[at].item() / max(1.0, reference.max().item())
    return Difference(what, amount, _position(apart.shape, at, axes, first or {}))


def largest(differences: Iterable[Difference]) -> Difference:
    """Return the largest of several differences; of equal ones, the first."""
    return max(differences, key=lambda candidate: candidate.amount, default=Difference("", 0.0))


def _position(shape: Sequence[int], at: int, axes: Sequence[Axis], first: Mapping[str, int]) -> str:
    """Return the index of an element, with the names of its axes."""
    indices: list[int] = []
    for size in reversed(shape):
        indices.insert(0, at % size)
        at //= size
    names = [str(axis) if isinstance(axis, str) else "" for axis in axes]
    names += [""] * (len(indices) - len(names))
    parts = (
        (name, index + first.get(name, 0)) for name, index in zip(names, indices, strict=False)
    )
    return ", ".join(f"{name}={index}" if name else str(index) for name, index in parts)


Compare = Callable[[ValueType, Tensor, Tensor], float]
"""From the type of a value and the value in two runs to their difference."""
Key = tuple[str, int]
"""Path of a module, and the number of its run: shared copies run several times."""


@dataclass(frozen=True, slots=True)
class _Block:
    """A block of the graph, as a node or in a slot."""

    label: str
    """Its path and the name of its type."""
    types: tuple[ValueType, ...]
    """Types of its outputs, in the order in which its module returns them."""


@dataclass(slots=True)
class Trace:
    """Outputs of the blocks of a model in one run, in the order in which they end."""

    blocks: Mapping[str, _Block]
    """Path of a module to its block."""
    axis: str | None
    """The step axis, along which the values of several steps are joined."""
    values: dict[Key, list[tuple[Tensor, ...]]] = field(default_factory=dict)
    """The outputs of each run of a block; decoding adds one entry for each step."""
    records: bool = True
    """Whether outputs are recorded; the caller may change it between two runs."""

    def first_difference(self, other: Trace, compare: Compare, tolerance: float) -> str:
        """Return the first block whose values differ in two traces, or an empty text.

        Args:
            other: the trace of another run.
            compare: measures the difference of two values; 0 for values that cannot be compared.
            tolerance: largest difference of equal values.
        """
        for key, recorded_runs in self.values.items():
            if key not in other.values:
                continue
            block = self.blocks[key[0]]
            for index, type_ in enumerate(block.types):
                if type_.axes.count(self.axis or "") > 1:
                    continue  # a step has fewer keys
                values, two = (
                    _joined([run[index] for run in runs], type_, self.axis)
                    for runs in (recorded_runs, other.values[key])
                )
                if compare(type_, values, two) > tolerance:
                    return block.label
        return ""


def _joined(values: list[Tensor], type_: ValueType, axis: str | None) -> Tensor:
    """Return the values of several steps as one; only decoding has more than one."""
    if len(values) == 1 or axis not in type_.axes:
        return values[-1]
    return torch.cat(values, type_.axes.index(axis))


@contextmanager
def traced(model: nn.Module, graph: Graph) -> Iterator[Trace]:
    """Record the outputs of all blocks of a model within the context.

    `forward` and `step` are recorded, and what `begin` computes.

    Args:
        model: built from the graph.
        graph: names the modules that are blocks.
    """
    trace = Trace(dict(_blocks(graph)), graph.step_axis)
    undo: list[Callable[[], object]] = []
    runs: dict[str, int] = {}
    undo.append(model.register_forward_pre_hook(lambda *_: runs.clear()).remove)
    for path in trace.blocks:
        module = model.get_submodule(path)
        undo.append(_watched(module, path, trace, runs))
    root: Any = model
    step = getattr(root, "step", None)
    if step is not None:

        def stepping(*args: Any, **kwargs: Any) -> Any:
            runs.clear()
            return step(*args, **kwargs)

        root.step = stepping
        undo.append(lambda: root.__dict__.pop("step"))
    try:
        yield trace
    finally:
        for restore in undo:
            restore()


def _blocks(graph: Graph) -> Iterator[tuple[str, _Block]]:
    for visit in visits(merged(graph).root, "weights"):
        if isinstance(visit.part, Part):
            label = f"{visit.path} ({visit.part.key})"
            yield visit.module, _Block(label, tuple(visit.part.outputs.values()))


def _watched(
    module: nn.Module, path: str, trace: Trace, runs: dict[str, int]
) -> Callable[[], None]:
    """Record the outputs of a module; return a function that ends it."""
    depth = 0

    def record(outputs: Any) -> None:
        values = outputs if isinstance(outputs, tuple) else (outputs,)
        number = runs[path] = runs.get(path, -1) + 1
        right = len(values) == len(trace.blocks[path].types)
        if trace.records and right and all(isinstance(value, Tensor) for value in values):
            copies = tuple(value.detach().clone() for value in values)
            trace.values.setdefault((path, number), []).append(copies)

    def after(_: nn.Module, __: Any, outputs: Any) -> None:
        if not depth:
            record(outputs)

    handle = module.register_forward_hook(after)
    step = getattr(module, "step", None)
    if not callable(step):
        return handle.remove

    def stepping(*args: Any, **kwargs: Any) -> Any:
        # A step may call `forward`, which is then not another run of the block.
        nonlocal depth
        depth += 1
        try:
            outputs = step(*args, **kwargs)
        finally:
            depth -= 1
        record(outputs)
        return outputs

    changed: Any = module
    changed.step = stepping

    def undo() -> None:
        handle.remove()
        changed.__dict__.pop("step")

    return undo
