"""Unpadding: which values of a graph can omit their padding, and which blocks need it back.

A batch of sentences `[B T ...]` is unpadded to `[R ...]`: the R non-padding tokens, one after the
other.  A block whose ports use `...` takes any leading axes, so it takes unpadded tokens as they
are.  A block whose ports name the axes depends on rows or on order: its inputs are padded again,
and its outputs are unpadded.

An axis stays padded where padding would change the result: in a block that reads all positions
without a mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..ir.block_type import Port, Signature
from ..ir.dims import names_of, time_axes
from ..ir.graph import Graph, Part, TemplatePart
from ..ir.traverse import Visit, visits
from ..ir.value_type import ValueType

PADDED = frozenset({"mask", "bias", "len"})
"""Kinds that are never unpadded, because they mark the padding."""


@dataclass(frozen=True, slots=True)
class Place:
    """The position of the batch axis and the time axis in the padded form of a value."""

    axis: str
    """The time axis that is unpadded, merged with the batch axis."""
    dim: int
    """Number of axes before the batch axis."""
    rank: int
    """Number of axes of the padded value; the unpadded value has one less."""


@dataclass(frozen=True, slots=True)
class Around:
    """The unpadded values among the inputs and outputs of a block, or of the complete graph."""

    block: str
    """Key of the block, or name of the graph."""
    inputs: Mapping[str, Place]
    outputs: Mapping[str, Place | None]
    """All outputs, in order; None for an output that is not unpadded."""
    ports: tuple[str, ...]
    """The ports that generated code passes by position, in order."""


@dataclass(frozen=True, slots=True)
class UnpadPlan:
    """How a graph is unpadded."""

    axes: tuple[str, ...]
    """The time axes that are unpadded; empty if there are none."""
    whole: Around = field(repr=False)
    """The graph's inputs to unpad before it runs, and its outputs to pad afterwards."""
    masks: Mapping[str, str]
    """Time axis to the input that masks its padding, for the axes that have such an input."""
    blocks: Mapping[str, Around] = field(repr=False)
    """Path of a module to the inputs that are padded for it and the outputs to unpad after it."""
    padded: Mapping[str, str]
    """Each axis that stays padded to the reason."""

    @property
    def why(self) -> str:
        """Why nothing is unpadded."""
        reasons = "; ".join(dict.fromkeys(self.padded.values()))
        return reasons or "no input begins with a batch axis and a time axis"


def plan_unpad(graph: Graph) -> UnpadPlan:
    """Return how a graph is unpadded.

    Args:
        graph: a checked graph.
    """
    kinds = graph.spec.axes
    padded = _reasons(graph)
    times = frozenset(time_axes(kinds))
    batches = frozenset(axis for axis, kind in kinds.items() if kind == "batch")
    masks: dict[str, str] = {}
    for name, type_ in graph.inputs.items():
        if type_.kind == "mask" and len(type_.axes) == 2:  # noqa: PLR2004 - batch and time
            masks.setdefault(str(type_.axes[1]), name)
    # Padding can be found only for an axis of an input that begins with the batch and this axis.
    places = _Planner(batches, times, times - padded.keys()).places(graph.inputs)
    known = {place.axis for place in places.values() if place.dim == 0} | masks.keys()
    planner = _Planner(batches, times, frozenset(known) - padded.keys())
    blocks = {}
    for visit in visits(graph.root, "weights"):
        if isinstance(visit.part, Part):
            around = planner.around(visit.part, planner.padded_entries(visit))
            if around is not None:
                blocks[visit.module] = around
    outputs = {name: planner.place(type_) for name, type_ in graph.outputs.items()}
    axes = tuple(axis for axis in kinds if axis in planner.unpadded)
    whole = Around(graph.name, planner.places(graph.inputs), outputs, tuple(graph.inputs))
    return UnpadPlan(axes, whole, masks, blocks, padded)


@dataclass(frozen=True, slots=True)
class _Planner:
    """Decides which values are unpadded, given the batch axes, time axes and unpadded axes."""

    batches: frozenset[str]
    times: frozenset[str]
    unpadded: frozenset[str]
    needs: dict[int, bool] = field(default_factory=dict)
    """Known answers of `needs_padding`; the copies of a repeat share their blocks."""
    found: dict[tuple[int, tuple[str, ...]], Around | None] = field(default_factory=dict)
    """Known answers of `around`."""

    def place(self, type_: ValueType) -> Place | None:
        """Return where the batch and time axis of a value are; None if it is not unpadded."""
        axes = type_.axes
        long = [index for index, axis in enumerate(axes) if self.times & names_of(axis)]
        if type_.kind in PADDED or len(long) != 1 or axes[long[0]] not in self.unpadded:
            return None
        if long[0] == 0 or axes[long[0] - 1] not in self.batches:
            return None
        return Place(str(axes[long[0]]), long[0] - 1, len(axes))

    def places(self, types: Mapping[str, ValueType]) -> dict[str, Place]:
        """Return the places of the values that are unpadded."""
        found = {name: self.place(type_) for name, type_ in types.items()}
        return {name: place for name, place in found.items() if place is not None}

    def needs_padding(self, part: Part) -> bool:
        """Return whether a block, apart from its slots, cannot take unpadded tokens as they are."""
        if id(part) not in self.needs:
            self.needs[id(part)] = self._needs_padding(part)
        return self.needs[id(part)]

    def _needs_padding(self, part: Part) -> bool:
        if part.signature.by_row:
            return True
        wired = [(port, part.inputs[port.name]) for port in _wired(part)]
        given = [(port, part.outputs[port.name]) for port in part.signature.outputs]
        places = [self.place(type_) for _, type_ in (*wired, *given)]
        any_axes = all(port.type.axes[:1] == ("...",) for port, _ in (*wired, *given))
        return any(places) and not (any_axes and all(places))

    def padded_entries(self, visit: Visit) -> tuple[str, ...]:
        """Return the ports by which padded values enter a block in a slot."""
        around = visit.parent
        if visit.kind != "slot" or around is None or not isinstance(around.part, Part):
            return ()
        padded = self.padded_entries(around) or self.needs_padding(around.part)
        return around.part.signature.slot(visit.pieces[-1][1]).entries if padded else ()

    def around(self, part: Part, entered: tuple[str, ...]) -> Around | None:
        """Return what to pad and unpad around a block; None if there is nothing to do.

        Args:
            part: the block.
            entered: the ports by which padded values enter from the enclosing block.
        """
        key = id(part), entered
        if key not in self.found:
            self.found[key] = self._around(part, entered)
        return self.found[key]

    def _around(self, part: Part, entered: tuple[str, ...]) -> Around | None:
        if not self.needs_padding(part):
            return None
        inputs = self.places(part.inputs)
        outputs = {name: self.place(type_) for name, type_ in part.outputs.items()}
        if entered:
            inputs = {name: place for name, place in inputs.items() if name not in entered}
            outputs = dict.fromkeys(outputs)
        if not inputs and not any(outputs.values()):
            return None
        ports = tuple(port.name for port in part.signature.inputs if not port.optional)
        return Around(part.key, inputs, outputs, ports)


def _by_row(signature: Signature) -> bool:
    """Return whether a block with slots passes padded values to them."""
    inside = (slot.input.type.axes[:1] for slot in signature.slots)
    return signature.by_row or any(first != ("...",) for first in inside)


def _wired(part: Part) -> Iterator[Port]:
    """Yield the wired ports of a block, without those of its slots."""
    return (port for port in part.signature.inputs if port.name in part.inputs)


def _reasons(graph: Graph) -> dict[str, str]:
    """Return the time axes that must stay padded, each with the reason."""
    times = time_axes(graph.spec.axes)
    found: dict[str, str] = {}
    seen: set[int] = set()
    for visit in visits(graph.root, "weights"):
        # The copies of a repeat share their blocks; the first copy gives the reason.
        if not isinstance(part := visit.part, Part) or id(part) in seen:
            continue
        seen.add(id(part))
        signature, where = part.signature, f"'{visit.module}' ({part.key})"
        everywhere = ""
        if any(port.type.kind == "loss" for port in signature.outputs):
            everywhere = f"{where} computes a loss that includes padding"
        elif _by_row(signature) and any(isinstance(p, TemplatePart) for p in part.fill.values()):
            everywhere = f"{where} depends on the rows of the batch and has a template in a slot"
        if everywhere:
            found |= dict.fromkeys(set(times) - found.keys(), everywhere)
        if any(port.type.kind in ("mask", "bias") for port in _wired(part)):
            continue
        for name, behavior in signature.behavior.items():
            for axis in times if behavior == "full" else ():
                if axis in names_of(part.axes.get(name, 1)):
                    why = f"{where} reads all of {axis} without a mask"
                    found.setdefault(axis, why)
    return found
