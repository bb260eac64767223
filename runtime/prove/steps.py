"""Steps: decoding step by step gives the outputs of the parallel pass.

Each way of decoding ends in rows whose complete history is known, also after rows were reordered or
dropped, and is compared with the parallel pass over these histories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...blocks.kernels.decode_state import Capacity
from ..decode.active_rows import rows_of
from ..decode.stepper import narrow, reorder
from .comparison import Difference, difference, largest, traced
from .inputs import draw, mask_inputs, on_axis
from .report import Property
from .subject import Outputs, Subject, not_applicable, running

BEAMS = 2
"""Hypotheses per sentence."""
State = Any


@dataclass(frozen=True, slots=True)
class _Way:
    """One way of decoding."""

    title: str
    inputs: Mapping[str, Tensor]
    """Inputs of the parallel pass with the same result."""
    begin: int
    """First position whose outputs are compared."""
    before: Callable[[State], object]
    """Reads the positions before it, and changes rows."""
    counts: tuple[int, ...]
    """Number of positions of each later step."""


def steps(subject: Subject) -> Property:
    """Compare several ways of decoding with the parallel pass."""
    axis = subject.graph.step_axis
    if axis is None:
        return not_applicable("steps", "the spec has no 'step', so it does not decode")
    if not any(on_axis(subject.graph.outputs, axis)):
        return not_applicable("steps", f"no output has the step axis {axis}")
    decoding = _Decoding(subject, axis)
    worst: list[Difference] = []
    titles: list[str] = []
    for way in decoding.ways():
        deviation = decoding.compare(way)
        worst.append(deviation)
        titles.append(way.title)
        if deviation.amount > subject.tolerance:
            if noisy := subject.random("steps", way.inputs, deviation):
                return noisy
            detail = f"decoding {way.title} differs from the parallel pass"
            return subject.failed("steps", detail, deviation, decoding.node_of(way))
    remark = "; only one position, so no rows were reordered" if decoding.length == 1 else ""
    return subject.passed("steps", f"{'; '.join(titles)}{remark}", largest(worst))


def decoded(subject: Subject) -> list[Outputs]:
    """Return the outputs of decoding random inputs, one position at a time.

    Raises:
        BlockError: a block raises an exception.
    """
    axis = subject.graph.step_axis
    if axis is None:
        return []
    decoding = _Decoding(subject, axis)
    way = next(decoding.ways())
    with running(f"decoding {way.title}"):
        return list(decoding.run(way))


class _Decoding:
    """A model that decodes random inputs along the step axis."""

    def __init__(self, subject: Subject, axis: str) -> None:
        """Draw the inputs: all positions are valid on the step axis, padded on other axes."""
        self.subject, self.axis = subject, axis
        graph, kinds = subject.graph, subject.graph.spec.axes
        self.length = subject.sizes[axis]
        batches = [name for name, kind in kinds.items() if kind == "batch"]
        self.sentences = subject.sizes[batches[0]] if batches else 1
        self.beams = BEAMS if batches else 1
        padded = mask_inputs(graph).keys() - {axis}
        drawn = draw(graph, subject.batch(self.beams), subject.seed, padded=padded)
        self.batch = {
            port: next((dim for dim, axis in enumerate(type_.axes) if axis in batches), None)
            for port, type_ in graph.inputs.items()
        }
        self.moving = {port: drawn[port] for port, t in graph.inputs.items() if axis in t.axes}
        self.fixed = {
            port: self._rows(port, value, torch.arange(0, self.rows, self.beams))
            for port, value in drawn.items()
            if port not in self.moving
        }

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.sentences * self.beams

    def ways(self) -> Iterator[_Way]:
        """Yield the ways of decoding."""
        length, half = self.length, self.length // 2
        parallel = self._parallel(self.moving)
        yield _Way("one by one", parallel, 0, lambda _: None, (1,) * length)
        if length == 1:
            return
        ends = (length - 1 - half, 1)
        counts = tuple(count for count in ends if count)
        read = "a prompt at once, then several positions, then one"
        yield _Way(read, parallel, half, lambda state: self._read(state, half), counts)
        if self.beams == 1:
            return
        first = torch.arange(0, self.rows, self.beams)
        # Odd sentences swap their beams; both beams of the others continue from the second one.
        swapped = torch.arange(self.sentences) % BEAMS == 0
        rows_R = torch.stack([first + 1, torch.where(swapped, first + 1, first)], 1).flatten()
        history = self._joined(rows_R, half)
        ones = (1,) * (length - half)
        title = "after rows were reordered"

        def reordered(state: State) -> None:
            self._each(state, half)
            reorder(state, rows_R, half)

        yield _Way(title, self._parallel(history), half, reordered, ones)
        kept_N = torch.tensor([self.sentences - 1])
        kept_R = rows_of(kept_N, self.beams)

        def narrowed(state: State) -> None:
            self._each(state, half)
            narrow(state, kept_N, kept_R, half)

        if self.sentences > 1:
            parallel = self._parallel(self.moving)
            few = {port: self._rows(port, value, kept_R) for port, value in parallel.items()}
            yield _Way("after sentences were dropped", few, half, narrowed, ones)

    def compare(self, way: _Way) -> Difference:
        """Return the largest difference between a way of decoding and the parallel pass."""
        expected = self.subject.run(way.inputs)
        with running(f"decoding {way.title}"):
            steps = list(self.run(way))
        differences = []
        for port, type_ in on_axis(self.subject.graph.outputs, self.axis):
            dim = type_.axes.index(self.axis)
            window = expected[port].narrow(dim, way.begin, self.length - way.begin)
            stepped = torch.cat([step[port] for step in steps], dim)
            begin = {self.axis: way.begin}
            differences.append(
                difference(f"output {port}", stepped, window, type_.axes, first=begin)
            )
        return largest(differences)

    def run(self, way: _Way) -> Iterator[Outputs]:
        """Yield the outputs of each step that is compared."""
        capacity = Capacity(
            self.sentences, self.beams, self.length, torch.float64, torch.device("cpu")
        )
        model: Any = self.subject.model
        with torch.no_grad():
            state = model.begin(capacity, **self.fixed)
            way.before(state)
            position = way.begin
            moving = {port: way.inputs[port] for port in self.moving}
            for count in way.counts:
                yield model.step(
                    **self._slice(moving, position, count), state=state, position=position
                )
                position += count

    def node_of(self, way: _Way) -> str:
        """Return the first block whose steps differ from its parallel pass."""
        subject = self.subject
        with traced(subject.model, subject.graph) as parallel:
            subject.run(way.inputs)
        with traced(subject.model, subject.graph) as stepped:
            before = way.before

            def quiet(state: State) -> None:
                stepped.values.clear()
                stepped.records = False
                before(state)
                stepped.records = True

            list(self.run(_Way(way.title, way.inputs, way.begin, quiet, way.counts)))

        def compare(type_: Any, parallel: Tensor, stepped: Tensor) -> float:
            if self.axis not in type_.axes:
                return 0.0
            dim = type_.axes.index(self.axis)
            window = parallel.narrow(dim, way.begin, self.length - way.begin)
            return difference("", stepped, window).amount

        return parallel.first_difference(stepped, compare, subject.tolerance)

    def _parallel(self, moving: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return inputs with one row for each beam."""
        repeated = {
            port: value
            if self.batch[port] is None
            else value.repeat_interleave(self.beams, self.batch[port])
            for port, value in self.fixed.items()
        }
        order = self.subject.graph.inputs
        return {port: (repeated | dict(moving))[port] for port in order}

    def _joined(self, rows_R: Tensor, position: int) -> dict[str, Tensor]:
        """Return moving inputs whose rows continue from other rows at a position."""
        before = self._slice(self.moving, 0, position)
        after = self._slice(self.moving, position, self.length - position)
        return {
            port: torch.cat([self._rows(port, before[port], rows_R), after[port]], self._dim(port))
            for port in self.moving
        }

    def _read(self, state: State, count: int) -> None:
        model: Any = self.subject.model
        model.read_prompt(**self._slice(self.moving, 0, count), state=state, position=0)

    def _each(self, state: State, count: int) -> None:
        model: Any = self.subject.model
        for position in range(count):
            model.step(**self._slice(self.moving, position, 1), state=state, position=position)

    def _slice(self, moving: Mapping[str, Tensor], begin: int, count: int) -> dict[str, Tensor]:
        return {port: value.narrow(self._dim(port), begin, count) for port, value in moving.items()}

    def _dim(self, port: str) -> int:
        return self.subject.graph.inputs[port].axes.index(self.axis)

    def _rows(self, port: str, value: Tensor, rows_R: Tensor) -> Tensor:
        dim = self.batch[port]
        return value if dim is None else value.index_select(dim, rows_R)
