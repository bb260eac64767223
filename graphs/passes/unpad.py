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
from dataclasses import dataclass, field, replace

from ...specs.findings import InputError
from ..ir.block_type import Port, Signature
from ..ir.execution import PLAIN, Around, BatchAxes, UnpadPlan
from ..ir.graph import BlockNode, Graph, Part, Scope, TemplatePart
from ..ir.traverse import Visit, late_values, moving_ports, moving_values, root_moving, visits
from ..ir.value_type import ValueType, names_of, time_axes
from .merge import merged
from .objective import trained_models

PADDED = frozenset({"mask", "bias", "len"})
"""Kinds that are never unpadded, because they mark the padding."""


def unpad(graph: Graph, *, pad: int = 0, strict: bool = True) -> Graph:
    """Return a graph that computes non-padding tokens only while it trains.

    Inputs, outputs, names of weights, evaluation and decoding do not change.

    Args:
        graph: a checked graph; of an objective, all models that train are unpadded.
        pad: the padding id at the ends of rows, for inputs without a corresponding input of kind
            `mask`.
        strict: whether a graph that cannot be unpadded is an error; otherwise it stays as it is.

    Raises:
        InputError: a graph is already unpadded, or cannot be; the message gives the reason.
    """
    execution, inner = graph.execution, trained_models(graph)
    if inner:
        changed = dict(execution.models)
        for name, model in inner.items():
            before = changed.get(name, PLAIN)
            now = unpad(replace(model, execution=before), pad=pad, strict=strict).execution
            if now is not before:
                changed[name] = now
        return replace(graph, execution=replace(execution, models=changed))
    if execution.unpad is not None:
        raise InputError(f"'{graph.name}' is already unpadded", help="call weft.unpad once")
    plan = plan_unpad(graph)
    if plan.axes:
        return replace(graph, execution=replace(execution, unpad=plan, pad=pad))
    if not strict:
        return graph
    raise InputError(
        f"'{graph.name}' cannot be unpadded: {plan.why}",
        location="/padding",
        help="set 'padding' to 'auto', or remove it from the run",
    )


def plan_unpad(graph: Graph) -> UnpadPlan:
    """Return how a graph is unpadded.

    Args:
        graph: a checked graph.
    """
    graph = merged(graph)
    kinds = graph.spec.axes
    padded = _reasons(graph)
    times = frozenset(time_axes(kinds))
    batches = frozenset(axis for axis, kind in kinds.items() if kind == "batch")
    masks: dict[str, str] = {}
    for name, type_ in graph.inputs.items():
        by_row = type_.kind == "mask" and len(type_.axes) == 2  # noqa: PLR2004 - batch and time
        if by_row and type_.axes[1] in times and _masks_padding(graph, name):
            masks.setdefault(str(type_.axes[1]), name)
    # Padding can be found only for an axis of an input that begins with the batch and this axis.
    places = _Planner(batches, times, times - padded.keys()).places(graph.inputs)
    known_axes = {location.axis for location in places.values() if location.dim == 0} | masks.keys()
    planner = _Planner(batches, times, frozenset(known_axes) - padded.keys())
    blocks = {}
    for visit in visits(graph.root, "weights"):
        if isinstance(visit.part, Part):
            around = planner.around(visit.part, planner.padded_entries(visit))
            if around is not None:
                blocks[visit.module] = around
    outputs = {name: planner.layout_of(type_) for name, type_ in graph.outputs.items()}
    axes = tuple(axis for axis in kinds if axis in planner.unpadded)
    boundary = Around(graph.name, planner.places(graph.inputs), outputs)
    cached = planner.places(_read_by_steps(graph))
    return UnpadPlan(axes, boundary, masks, blocks, padded, cached)


def _masks_padding(graph: Graph, name: str) -> bool:
    """Return whether the blocks that read an input of kind `mask` expect a mask of padding.

    Their ports for such a mask are named `mask` or end in `_mask`; that of a prefix is not.
    """
    return all(port == "mask" or port.endswith("_mask") for port in _readers(graph.root, name))


def _readers(scope: Scope, value: str) -> Iterator[str]:
    """Yield the names of the ports of blocks that read a value, in templates too."""
    for node in scope.nodes:
        for port in (port for port, wire in node.wires.items() if wire == value):
            if isinstance(node, BlockNode):
                yield port
            else:
                for _, body, _ in node.insides():
                    yield from _readers(body, port)


def unpad_decoding(graph: Graph) -> Graph:
    """Return a graph whose `begin` computes non-padding tokens only, or itself if it has none.

    What `begin` returns does not change, except at padding that a mask excludes.  All other
    methods compute what they do without the pass.

    Args:
        graph: a checked graph with a step axis.
    """
    if graph.step_axis is None:
        return graph
    plan, moving = plan_unpad(graph), root_moving(graph)
    if not any(port not in moving for port in plan.boundary.inputs):
        return graph
    return replace(graph, execution=replace(graph.execution, unpad=plan, decoding=True))


def _read_by_steps(graph: Graph) -> dict[str, ValueType]:
    """Return the types of the values of the root that are computed once and read at every step.

    `begin` pads them before it begins nodes with a state, and so before it computes late values.
    """
    if graph.step_axis is None:
        return {}
    moving = moving_values(graph.root, root_moving(graph))
    late = late_values(graph.root, moving)
    read = [
        value
        for node in graph.root.nodes
        if moving_ports(node, moving) or not late.isdisjoint(node.wires.values())
        for value in node.wires.values()
    ]
    return {value: graph.root.type_of(value) for value in read if value not in moving | late}


@dataclass(frozen=True, slots=True)
class _Planner:
    """Decides which values are unpadded, given the batch axes, time axes and unpadded axes."""

    batches: frozenset[str]
    times: frozenset[str]
    unpadded: frozenset[str]
    needs: dict[int, bool] = field(default_factory=dict)
    """Known answers of `needs_padding`; the copies of a repeat share their blocks."""
    boundaries: dict[tuple[int, tuple[str, ...]], Around | None] = field(default_factory=dict)
    """Known answers of `around`."""

    def layout_of(self, type_: ValueType) -> BatchAxes | None:
        """Return where the batch and time axis of a value are; None if it is not unpadded."""
        axes = type_.axes
        long = [index for index, axis in enumerate(axes) if self.times & names_of(axis)]
        if type_.kind in PADDED or len(long) != 1 or axes[long[0]] not in self.unpadded:
            return None
        if long[0] == 0 or axes[long[0] - 1] not in self.batches:
            return None
        return BatchAxes(str(axes[long[0]]), long[0] - 1, len(axes))

    def places(self, types: Mapping[str, ValueType]) -> dict[str, BatchAxes]:
        """Return the places of the values that are unpadded."""
        locations = {name: self.layout_of(type_) for name, type_ in types.items()}
        return {name: location for name, location in locations.items() if location is not None}

    def needs_padding(self, part: Part) -> bool:
        """Return whether a block, apart from its slots, cannot take unpadded tokens as they are."""
        if id(part) not in self.needs:
            self.needs[id(part)] = self._needs_padding(part)
        return self.needs[id(part)]

    def _needs_padding(self, part: Part) -> bool:
        if part.signature.by_row:
            return True
        wired = [(port, part.inputs[port.name]) for port in _wired(part)]
        outputs = [(port, part.outputs[port.name]) for port in part.signature.outputs]
        places = [self.layout_of(type_) for _, type_ in (*wired, *outputs)]
        if not any(places):
            return False
        pairs = zip((*wired, *outputs), places, strict=True)
        return not all(self._takes_tokens(port, type_, at) for (port, type_), at in pairs)

    def _takes_tokens(self, port: Port, type_: ValueType, location: BatchAxes | None) -> bool:
        """Return whether a port takes unpadded tokens as they are, or a value without rows."""
        if port.type.axes[:1] == ("...",):
            return location is not None
        rows = self.batches | self.times
        return location is None and not any(names_of(axis) & rows for axis in type_.axes)

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
        if key not in self.boundaries:
            self.boundaries[key] = self._around(part, entered)
        return self.boundaries[key]

    def _around(self, part: Part, entered: tuple[str, ...]) -> Around | None:
        if not self.needs_padding(part):
            return None
        inputs = self.places(part.inputs)
        outputs = {name: self.layout_of(type_) for name, type_ in part.outputs.items()}
        if entered:
            inputs = {name: location for name, location in inputs.items() if name not in entered}
            outputs = dict.fromkeys(outputs)
        if not inputs and not any(outputs.values()):
            return None
        return Around(part.key, inputs, outputs, part.block.unpads)


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
    reasons: dict[str, str] = {}
    visited: set[int] = set()
    for visit in visits(graph.root, "weights"):
        # The copies of a repeat share their blocks; the first copy gives the reason.
        if not isinstance(part := visit.part, Part) or id(part) in visited:
            continue
        visited.add(id(part))
        signature, where = part.signature, f"'{visit.module}' ({part.key})"
        everywhere = ""
        if any(port.type.kind == "loss" for port in signature.outputs):
            everywhere = f"{where} computes a loss that includes padding"
        elif _by_row(signature) and any(isinstance(p, TemplatePart) for p in part.fill.values()):
            everywhere = f"{where} depends on the rows of the batch and has a template in a slot"
        if everywhere:
            reasons |= dict.fromkeys(set(times) - reasons.keys(), everywhere)
        if any(port.type.kind in ("mask", "bias") for port in _wired(part)):
            continue
        for name, behavior in signature.behavior.items():
            for axis in times if behavior == "full" else ():
                if axis in names_of(part.axes.get(name, 1)):
                    why = f"{where} reads all of {axis} without a mask"
                    reasons.setdefault(axis, why)
    return reasons
