"""Pairs of positions: whether a step knows all that it needs of queries and keys.

A value with the step axis twice has, in a step, the rows of the next queries with the keys of all
positions so far.  Keys of later positions are unknown then, so a sum over the keys is allowed only
if what it adds is 0 for them, as after a causal softmax.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..ir.graph import BlockNode, Node, Part, Scope
from ..ir.leads import lead_of_axis
from ..ir.pairs import step_names
from ..ir.value_type import Axis


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A node that prevents decoding step by step, and the reason."""

    at: str
    problem: str
    help: str


@dataclass(frozen=True, slots=True)
class Pairs:
    """The values of a scope that have pairs of positions."""

    axis: str
    """The step axis."""
    values: set[str] = field(default_factory=set)
    earlier: set[str] = field(default_factory=set)
    """Those that are 0 where the key is later than the query."""

    def note(self, node: Node) -> None:
        """Note the output of a node whose pairs a step computes."""
        if not isinstance(node, BlockNode):
            return
        part = node.part
        for port in part.signature.outputs:
            names = step_names(port.type, part.axes, self.axis)
            reads = any(value in self.values for value in node.wires.values())
            if len(names) > 1 and (part.block.written is not None or reads):
                self.values.add(f"{node.name}.{port.name}")
                if part.signature.earlier == tuple(names) or self._factors(node, names):
                    self.earlier.add(f"{node.name}.{port.name}")

    def _factors(self, node: BlockNode, names: list[str]) -> list[str]:
        """Return the ports whose zeros at later keys are zeros of a value with these names."""
        return [
            port.name
            for port in node.part.signature.inputs
            if port.name in node.part.signature.factors
            and node.wires.get(port.name) in self.earlier
            and step_names(port.type, node.part.axes, self.axis) == names
        ]

    def summed(self, node: BlockNode) -> set[str]:
        """Return the names of axes over which a node may sum, because later keys add nothing."""
        part = node.part
        queries = step_names(part.signature.outputs[0].type, part.axes, self.axis)[:1]
        keys = {name for name in part.signature.behavior if self._along(part.axes.get(name, 1))}
        return {key for key in keys if self._factors(node, [*queries, key])}

    def obstacles(self, node: Node) -> Iterator[Obstacle]:
        """Yield what a step does not know of the pairs that a node reads or computes."""
        read = [port for port, value in node.wires.items() if value in self.values]
        if not isinstance(node, BlockNode):
            if read:
                problem = f"'{node.name}' reads pairs of positions of {self.axis} from outside"
                yield Obstacle(node.at, problem, "compute them where they are read")
            return
        part, key = node.part, node.part.key
        if part.block.written is None:
            if not all(self._pointwise(part, port) for port in read):
                problem = f"{key} reads pairs of positions of {self.axis}"
                yield Obstacle(node.at, problem, "sum over the keys first, with einsum@1")
            return
        queries = step_names(part.signature.outputs[0].type, part.axes, self.axis)[:1]
        for port in part.signature.inputs:
            names = step_names(port.type, part.axes, self.axis)
            if port.name in part.inputs and len(names) > 1 and queries and names[:1] != queries:
                problem = f"{key} exchanges the queries and the keys of {self.axis}"
                yield Obstacle(node.at, problem, "keep the order of the two axes")
        if part.stores:
            yield from self._storing(part, node.at)

    def _storing(self, part: Part, at: str) -> Iterator[Obstacle]:
        """Yield why a step cannot store the values that a block pairs with its queries."""
        for port in part.signature.inputs:
            axes = [] if port.name not in part.inputs else [*part.inputs[port.name].axes]
            if port.name in part.stores:
                rows = bool(axes) and not self._along(axes[0]) and not isinstance(axes[0], int)
                if not rows or not all(self._along(a) or isinstance(a, int) for a in axes[1:]):
                    problem = f"{part.key} cannot store {part.inputs[port.name]} for later steps"
                    yield Obstacle(at, problem, f"give it a batch axis, {self.axis}, and numbers")
            elif axes and not any(map(self._along, axes)):
                problem = f"{part.key} pairs positions of {self.axis}, and '{port.name}' has none"
                yield Obstacle(at, problem, f"multiply '{port.name}' in a node of its own")

    def _along(self, axis: Axis) -> bool:
        """Return whether an axis is the step axis, perhaps after other positions."""
        return lead_of_axis(axis, self.axis) is not None

    def _pointwise(self, part: Part, port: str) -> bool:
        """Return whether a block computes each pair of a value at a port by itself."""
        lead = {p.type.axes[:1] for p in part.signature.inputs if p.name == port} == {("...",)}
        return lead and all(
            output.type.axes[:1] == ("...",)
            and len(step_names(output.type, part.axes, self.axis)) > 1
            and not part.signature.behavior
            for output in part.signature.outputs
        )

    def outputs(self, scope: Scope) -> Iterator[Obstacle]:
        """Yield the nodes whose pairs leave a scope, where nothing is known of their keys."""
        nodes = {node.name: node for node in scope.nodes}
        for value in scope.outputs.values():
            if value in self.values:
                problem = f"its output has pairs of positions of {self.axis}"
                help_ = "sum over the keys first, with einsum@1 after a causal softmax@1"
                yield Obstacle(nodes[value.partition(".")[0]].at, problem, help_)
