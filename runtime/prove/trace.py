"""Values of all blocks of a running model, and the first one that differs between two runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ...graphs.ir.graph import Graph, Part
from ...graphs.ir.traverse import visits
from ...graphs.ir.value_type import ValueType

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
    for visit in visits(graph.root, "weights"):
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
