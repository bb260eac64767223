"""Pairs of positions: whether a step knows all that it needs of queries and keys.

A value with the step axis twice has, in a step, the rows of the next queries with the keys of all
positions so far.  Keys of later positions are unknown then, so a sum over the keys is allowed only
if what it adds is 0 for them, as after a causal softmax.  Which values have pairs, and which of
them are 0 at later keys, follows the wires into templates, repeats and slots, and out of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..ir.graph import Filling, Node, Part
from ..ir.leads import lead_of_axis
from ..ir.pairs import step_names
from ..ir.value_type import Axis, ValueType


@dataclass(frozen=True, slots=True)
class DecodingObstacle:
    """A node that prevents decoding step by step, and the reason."""

    at: str
    problem: str
    help: str


class Pairs(NamedTuple):
    """The names of values, or of the ports that read them, that have pairs of positions."""

    names: frozenset[str] = frozenset()
    earlier: frozenset[str] = frozenset()
    """Those that are 0 where the key is later than the query."""

    def at(self, wires: Mapping[str, str]) -> Pairs:
        """Return the ports that read these values."""
        return Pairs(
            frozenset(port for port, value in wires.items() if value in self.names),
            frozenset(port for port, value in wires.items() if value in self.earlier),
        )

    def beside(self, others: Pairs) -> Pairs:
        """Return these and other names."""
        return Pairs(self.names | others.names, self.earlier | others.earlier)

    def of(self, node: Node) -> Pairs:
        """Return these outputs of a node as values of its scope."""
        return Pairs(
            frozenset(f"{node.name}.{port}" for port in self.names),
            frozenset(f"{node.name}.{port}" for port in self.earlier),
        )

    def through(self, outputs: Pairs, carry: tuple[str, ...]) -> Pairs:
        """Return what enters the copies of a repeat, given what leaves each of them."""
        lost = frozenset(carry) - outputs.earlier
        return Pairs(self.names | outputs.names.intersection(carry), self.earlier - lost)

    @staticmethod
    def of_all(several: list[Pairs]) -> Pairs:
        """Return what can be told of the outputs of all of several scopes."""
        names = frozenset[str]().union(*(pairs.names for pairs in several))
        lacks = (pairs.names - pairs.earlier for pairs in several)
        return Pairs(names, names.difference(*lacks))


def pairs_out(part: Part, reads: Pairs, axis: str) -> Pairs:
    """Return the outputs of a block that have pairs which a step computes.

    Args:
        part: the block.
        reads: its ports that read pairs.
        axis: the step axis.
    """
    pairs = Pairs()
    for port in part.signature.outputs:
        names = step_names(port.type, part.axes, axis)
        gives = part.block.written is not None or port.name in part.signature.pairs
        if len(names) > 1 and (gives or reads.names):
            zero = part.signature.earlier.get(port.name) == tuple(names) or _factors(
                part, reads, names, axis
            )
            pairs = pairs.beside(
                Pairs(frozenset({port.name}), frozenset({port.name} if zero else ()))
            )
    return pairs


def _factors(part: Part, reads: Pairs, names: list[str], axis: str) -> list[str]:
    """Return the ports whose zeros at later keys are zeros of a value with these names."""
    return [
        port.name
        for port in part.signature.inputs
        if port.name in part.signature.factors
        and port.name in reads.earlier
        and step_names(port.type, part.axes, axis) == names
    ]


def summed_names(part: Part, reads: Pairs, axis: str) -> set[str]:
    """Return the names of axes over which a block may sum, because later keys add nothing."""
    queries = step_names(part.signature.outputs[0].type, part.axes, axis)[:1]
    keys = {name for name in part.signature.behavior if _along(part.axes.get(name, 1), axis)}
    return {key for key in keys if _factors(part, reads, [*queries, key], axis)}


def into_slot(part: Part, slot: str, reads: Pairs, axis: str) -> Pairs:
    """Return the ports of what fills a slot that read pairs.

    Args:
        part: the block with the slot.
        slot: name of the slot.
        reads: the ports of the block that read pairs.
        axis: the step axis.
    """
    inner, signature = part.fill[slot].inputs, part.signature.slot(slot)
    passed = frozenset(inner) - frozenset(signature.entries)
    entries = {name for name in signature.entries if name in inner and has_pairs(inner[name], axis)}
    zeros = entries & {signature.input.name} if signature.earlier else set()
    return Pairs(reads.names & passed | entries, reads.earlier & passed | zeros)


def slot_obstacles(
    part: Part, slot: str, outputs: Pairs, axis: str, at: str
) -> Iterator[DecodingObstacle]:
    """Yield why a block cannot take back what fills its slot, of which `outputs` has pairs."""
    signature = part.signature.slot(slot)
    port, filling = signature.output.name, part.fill[slot]
    zeros = signature.earlier and has_pairs(filling.outputs[port], axis)
    if zeros and port not in outputs.earlier:
        problem = f"what fills '{slot}' of {part.key} may not be 0 at later positions of {axis}"
        help_ = "multiply what enters it, as dropout@1 and einsum@1 do, and add nothing"
        yield DecodingObstacle(at, problem, help_)


def has_pairs(type_: ValueType, axis: str) -> bool:
    """Return whether a value has the step axis twice."""
    return sum(_along(of_value, axis) for of_value in type_.axes) > 1


def part_obstacles(part: Part, reads: Pairs, axis: str, at: str) -> Iterator[DecodingObstacle]:
    """Yield what a step does not know of the pairs that a block reads or computes.

    Args:
        part: the block, as a node or in a slot.
        reads: its ports that read pairs.
        axis: the step axis.
        at: JSON Pointer of the block.
    """
    if part.block.written is None:
        takers = frozenset[str]().union(*(_taken(part, slot) for slot in part.fill))
        if not all(port in takers or _takes(part, port, axis) for port in reads.names):
            problem = f"{part.key} reads pairs of positions of {axis}"
            yield DecodingObstacle(at, problem, "sum over the keys first, with einsum@1")
        return
    queries = step_names(part.signature.outputs[0].type, part.axes, axis)[:1]
    for port in part.signature.inputs:
        names = step_names(port.type, part.axes, axis)
        if port.name in part.inputs and len(names) > 1 and queries and names[:1] != queries:
            problem = f"{part.key} exchanges the queries and the keys of {axis}"
            yield DecodingObstacle(at, problem, "keep the order of the two axes")
    if part.stores:
        yield from _storing(part, axis, at)


def _taken(part: Part, slot: str) -> frozenset[str]:
    """Return the ports of a block that only what fills a slot reads, at every step."""
    filling: Filling = part.fill[slot]
    if part.signature.slot(slot).steps_over:
        return frozenset()
    return frozenset(filling.inputs) - {port.name for port in part.signature.inputs}


def _takes(part: Part, port: str, axis: str) -> bool:
    """Return whether a block computes each pair of a value at a port by itself, or adds it."""
    if port in part.signature.pairs:
        return True
    names = [step_names(p.type, part.axes, axis) for p in part.signature.inputs if p.name == port]
    return (
        bool(names)
        and not part.block.steps
        and not part.signature.behavior
        and all(
            step_names(output.type, part.axes, axis) == names[0]
            for output in part.signature.outputs
        )
    )


def _storing(part: Part, axis: str, at: str) -> Iterator[DecodingObstacle]:
    """Yield why a step cannot store the values that a block pairs with its queries."""
    for port in part.signature.inputs:
        axes = [] if port.name not in part.inputs else [*part.inputs[port.name].axes]
        if port.name in part.stores:
            rows = bool(axes) and not _along(axes[0], axis) and not isinstance(axes[0], int)
            if not rows or not all(_along(a, axis) or isinstance(a, int) for a in axes[1:]):
                problem = f"{part.key} cannot store {part.inputs[port.name]} for later steps"
                yield DecodingObstacle(at, problem, f"give it a batch axis, {axis}, and numbers")
        elif axes and not any(_along(of_value, axis) for of_value in axes):
            problem = f"{part.key} pairs positions of {axis}, and '{port.name}' has none"
            yield DecodingObstacle(at, problem, f"multiply '{port.name}' in a node of its own")


def _along(axis: Axis, step: str) -> bool:
    """Return whether an axis is the step axis, perhaps after other positions."""
    return lead_of_axis(axis, step) is not None
