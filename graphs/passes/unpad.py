"""Packing: which values of a graph can go without padding, and which blocks need it back.

A batch of sentences `[B T ...]` is packed into `[R ...]`: the R positions that are no padding,
one after the other.  A block whose ports say `...` takes any leading axes, so it takes packed
rows as they are.  One whose ports name the axes looks at rows or at order: what it reads is
padded for it, and what it gives is packed again.

An axis stays padded where padding counts: a block that reads all positions is not told
which of them to keep.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..ir.block_type import Port
from ..ir.dims import names_of
from ..ir.graph import Graph, Part, TemplatePart
from ..ir.traverse import Visit, visits
from ..ir.value_type import ValueType

PADDED = frozenset({"mask", "bias", "len"})
"""Kinds that are never packed: they say what padding is."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where packed rows of a value stand when it is padded."""

    axis: str
    """The time axis that is packed together with the batch."""
    dim: int
    """Axes before the batch."""
    rank: int
    """Axes of the padded value; the packed one has one less."""


@dataclass(frozen=True, slots=True)
class Around:
    """What is packed of the values around one block, or around the whole graph."""

    block: str
    """The block's key; the name of the graph."""
    inputs: Mapping[str, Place]
    outputs: Mapping[str, Place | None]
    """All outputs, in order; None for one that is not packed."""
    ports: tuple[str, ...]
    """The ports that generated code wires by position, in order."""


@dataclass(frozen=True, slots=True)
class UnpadPlan:
    """How a graph is packed."""

    axes: tuple[str, ...]
    """The time axes that are packed; none where nothing can be."""
    whole: Around
    """Inputs that are packed to begin with, and outputs that are padded in the end."""
    masks: Mapping[str, str]
    """Time axis to the input that says which of its positions are no padding, where one does."""
    blocks: Mapping[str, Around]
    """Path of a block's module to what is padded for it and packed after it."""
    padded: Mapping[str, str]
    """Axis that stays padded to the reason."""

    @property
    def why(self) -> str:
        """Why nothing is packed, in words."""
        reasons = "; ".join(dict.fromkeys(self.padded.values()))
        return reasons or "no input has a batch axis and a time axis alone"


def plan_unpad(graph: Graph) -> UnpadPlan:
    """Return how a graph is packed.

    Args:
        graph: a checked graph.
    """
    kinds = graph.spec.axes
    padded = _reasons(graph)
    times = frozenset(axis for axis, kind in kinds.items() if kind == "time")
    batches = frozenset(axis for axis, kind in kinds.items() if kind == "batch")
    masks: dict[str, str] = {}
    for name, type_ in graph.inputs.items():
        if type_.kind == "mask" and len(type_.axes) == 2:  # noqa: PLR2004 - batch and time
            masks.setdefault(str(type_.axes[1]), name)
    # An axis that no input has alone with the batch cannot be told from its padding.
    places = _Packer(batches, times, times - padded.keys()).places(graph.inputs)
    told = {place.axis for place in places.values() if place.dim == 0} | masks.keys()
    packer = _Packer(batches, times, frozenset(told) - padded.keys())
    blocks = {}
    for visit in visits(graph.root, "weights"):
        if isinstance(visit.part, Part):
            around = packer.around(visit.part, packer.padded_entry(visit))
            if around is not None:
                blocks[visit.module] = around
    outputs = {name: packer.place(type_) for name, type_ in graph.outputs.items()}
    axes = tuple(axis for axis in kinds if axis in packer.packed)
    whole = Around(graph.name, packer.places(graph.inputs), outputs, tuple(graph.inputs))
    return UnpadPlan(axes, whole, masks, blocks, padded)


@dataclass(frozen=True, slots=True)
class _Packer:
    """Says what is packed."""

    batches: frozenset[str]
    times: frozenset[str]
    packed: frozenset[str]

    def place(self, type_: ValueType) -> Place | None:
        """Return where packed rows of a value belong; None for one that is not packed."""
        axes = type_.axes
        long = [index for index, axis in enumerate(axes) if self.times & names_of(axis)]
        if type_.kind in PADDED or len(long) != 1 or axes[long[0]] not in self.packed:
            return None
        if long[0] == 0 or axes[long[0] - 1] not in self.batches:
            return None
        return Place(str(axes[long[0]]), long[0] - 1, len(axes))

    def places(self, types: Mapping[str, ValueType]) -> dict[str, Place]:
        """Return the places of those that are packed."""
        found = {name: self.place(type_) for name, type_ in types.items()}
        return {name: place for name, place in found.items() if place is not None}

    def stands_apart(self, part: Part) -> bool:
        """Say whether a block, slots aside, cannot take packed rows as they are."""
        if part.signature.by_row:
            return True
        wired = [(port, part.inputs[port.name]) for port in _wired(part)]
        given = [(port, part.outputs[port.name]) for port in part.signature.outputs]
        places = [self.place(type_) for _, type_ in (*wired, *given)]
        any_axes = all(port.type.axes[:1] == ("...",) for port, _ in (*wired, *given))
        return any(places) and not (any_axes and all(places))

    def padded_entry(self, visit: Visit) -> str | None:
        """Return the port of a slot's block by which padded values enter; None if there is none."""
        around = visit.parent
        if visit.kind != "slot" or around is None or not isinstance(around.part, Part):
            return None
        padded = self.padded_entry(around) is not None or self.stands_apart(around.part)
        return around.part.signature.slot(visit.pieces[-1][1]).input.name if padded else None

    def around(self, part: Part, entered: str | None) -> Around | None:
        """Return what is done around a block; None where nothing is.

        Args:
            part: the block.
            entered: the port by which padded values come in from the block around it.
        """
        if not self.stands_apart(part):
            return None
        inputs = self.places(part.inputs)
        outputs = {name: self.place(type_) for name, type_ in part.outputs.items()}
        if entered is not None:
            inputs.pop(entered, None)
            outputs = dict.fromkeys(outputs)
        if not inputs and not any(outputs.values()):
            return None
        ports = tuple(port.name for port in part.signature.inputs if not port.optional)
        return Around(part.key, inputs, outputs, ports)


def _wired(part: Part) -> Iterator[Port]:
    """Yield the ports of a block that are wired, those of its slots aside."""
    return (port for port in part.signature.inputs if port.name in part.inputs)


def _reasons(graph: Graph) -> dict[str, str]:
    """Return the time axes that must stay padded, each with the reason."""
    times = [axis for axis, kind in graph.spec.axes.items() if kind == "time"]
    found: dict[str, str] = {}
    for visit in visits(graph.root, "weights"):
        if not isinstance(part := visit.part, Part):
            continue
        signature, where = part.signature, f"'{visit.module}' ({part.key})"
        everywhere = ""
        if any(port.type.kind == "loss" for port in signature.outputs):
            everywhere = f"{where} counts padding in a loss of its own"
        elif signature.by_row and any(isinstance(one, TemplatePart) for one in part.fill.values()):
            everywhere = f"{where} looks at rows, and a template stands in it"
        if everywhere:
            found |= dict.fromkeys(set(times) - found.keys(), everywhere)
        if any(port.type.kind in ("mask", "bias") for port in _wired(part)):
            continue
        for name, behavior in signature.behavior.items():
            for axis in times if behavior == "full" else ():
                if axis in names_of(part.axes.get(name, 1)):
                    why = f"{where} reads all of {axis} and is not told what is padding"
                    found.setdefault(axis, why)
    return found
