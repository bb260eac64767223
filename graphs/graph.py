"""Graph: a spec after expansion of its meaning: wired, typed and ordered.

Scopes keep their shape (a repeat is one node with a body), so that checking,
drawing and lowering cost the same for 6 layers and for 600.  `flat()` gives the
plain networkx graph with one vertex a placed block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import networkx as nx
from pydantic import BaseModel

from ..specs.form import Spec
from .shapes import ValueType
from .signature import BlockType, Signature


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One block in its place: a node's own, or the one in a slot."""

    block: BlockType
    params: BaseModel
    arguments: Mapping[str, Any]
    """What the module's constructor takes, slots aside."""
    signature: Signature
    inputs: Mapping[str, ValueType]
    """Types of the wired ports."""
    outputs: Mapping[str, ValueType]
    axes: Mapping[str, Any]
    """What the signature's axis names stand for here."""
    fill: Mapping[str, Part] = field(default_factory=dict)

    def weights(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter, slots included, by name."""
        own = dict(self.block.weights(self.arguments))
        for slot, part in self.fill.items():
            own |= {f"{slot}.{name}": shape for name, shape in part.weights().items()}
        return own

    @property
    def steps(self) -> bool:
        """Whether decoding asks this block, or one inside it, for `begin` and `step`."""
        return self.block.steps or any(part.steps for part in self.fill.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One placed node of a scope."""

    name: str
    at: str
    """JSON Pointer of the node in the spec."""
    wires: Mapping[str, str]
    """Port to the value that it reads: `node.port`, or the name of an input."""
    outputs: Mapping[str, ValueType]
    part: Part | None = None
    body: Scope | None = None
    """The template's scope when the node is one."""
    repeat: int | None = None
    carry: tuple[str, ...] = ()

    def weights(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter below this node, by path from it."""
        if self.part is not None:
            return self.part.weights()
        inner = self.body.weights() if self.body else {}
        if self.repeat is None:
            return inner
        return {f"{i}.{name}": shape for i in range(self.repeat) for name, shape in inner.items()}

    def parameters(self) -> int:
        """Return the number of parameters below this node, ties not yet counted off."""
        if self.part is not None:
            return sum(map(prod, self.part.weights().values()))
        inner = sum(node.parameters() for node in self.body.nodes) if self.body else 0
        return inner * (1 if self.repeat is None else self.repeat)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The root of a graph, or the inside of a template."""

    name: str
    inputs: Mapping[str, ValueType]
    outputs: Mapping[str, str]
    """Port to the value that it gives."""
    nodes: tuple[Node, ...]
    """In an order in which they can run."""
    doc: str = ""

    def weights(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter, by path."""
        return {
            f"{node.name}.{name}": shape
            for node in self.nodes
            for name, shape in node.weights().items()
        }

    def type_of(self, value: str) -> ValueType:
        """Return the type of a value: `node.port`, or the name of an input."""
        node, _, out = value.partition(".")
        if not out:
            return self.inputs[value]
        return next(n for n in self.nodes if n.name == node).outputs[out]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A checked spec."""

    name: str
    doc: str
    spec: Spec
    """The spec as it was checked, overrides applied."""
    source: str
    """The file it came from, as the user named it."""
    params: Mapping[str, Any]
    """Values of the spec's params."""
    root: Scope
    ties: tuple[tuple[str, ...], ...]
    step_axis: str | None
    inputs: Mapping[str, ValueType]
    outputs: Mapping[str, ValueType]

    def weights(self) -> dict[str, tuple[int, ...]]:
        """Return every parameter that exists once: ties count with their first path."""
        all_ = self.root.weights()
        again = {path for group in self.ties for path in group[1:]}
        return {path: shape for path, shape in all_.items() if path not in again}

    def parameters(self) -> int:
        """Return the number of parameters; a tied one counts once."""
        all_ = sum(node.parameters() for node in self.root.nodes)
        if not self.ties:
            return all_
        shapes = self.root.weights()
        return all_ - sum(prod(shapes[path]) for group in self.ties for path in group[1:])

    def flat(self) -> nx.DiGraph:
        """Return the expanded graph: a vertex for each placed block, input and output.

        Vertices are paths such as `decoder.3.self_attention`; each has `node` (None
        for inputs and outputs) and `kind`.  Edges have `port`, `value` and `type`.
        """
        flat = nx.DiGraph(name=self.name)
        values = {name: (name, name, type_) for name, type_ in self.inputs.items()}
        for name in self.inputs:
            flat.add_node(name, node=None, kind="input")
        given = _flatten(flat, self.root, "", values)
        for name, value in given.items():
            vertex = f"output:{name}"
            flat.add_node(vertex, node=None, kind="output")
            _wire(flat, value, vertex, name)
        return flat


_Value = tuple[str, str, ValueType]
"""Where a value comes from: vertex, port, type."""


def _wire(flat: nx.DiGraph, value: _Value, vertex: str, port: str) -> None:
    """Add one wire; a second one between the same blocks joins the first's list."""
    source, given, type_ = value
    wire = {"port": port, "value": given, "type": type_}
    if flat.has_edge(source, vertex):
        flat.edges[source, vertex]["wires"].append(wire)
    else:
        flat.add_edge(source, vertex, wires=[wire])


def _flatten(
    flat: nx.DiGraph, scope: Scope, prefix: str, values: dict[str, _Value]
) -> dict[str, _Value]:
    """Add the blocks of a scope, and say where each of its outputs comes from."""
    known = dict(values)
    for node in scope.nodes:
        path = prefix + node.name
        reads = {port: known[value] for port, value in node.wires.items()}
        if node.part is not None:
            flat.add_node(path, node=node, kind="block")
            for port, value in reads.items():
                _wire(flat, value, path, port)
            given = {port: (path, port, type_) for port, type_ in node.outputs.items()}
        elif node.body is not None and node.repeat is None:
            given = _flatten(flat, node.body, f"{path}.", reads)
        elif node.body is not None:
            given = dict(reads)
            for index in range(node.repeat or 0):
                given |= _flatten(flat, node.body, f"{path}.{index}.", given)
        known |= {f"{node.name}.{port}": value for port, value in given.items()}
    return {port: known[value] for port, value in scope.outputs.items()}


def walk(scope: Scope, prefix: str = "") -> Iterator[tuple[str, Node]]:
    """Walk every node below a scope, repeats unexpanded, as (path, node)."""
    for node in scope.nodes:
        yield prefix + node.name, node
        if node.body is not None:
            yield from walk(
                node.body, f"{prefix}{node.name}.*." if node.repeat else f"{prefix}{node.name}."
            )
