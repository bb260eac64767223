"""Graph: a spec after expansion of its meaning: wired, typed and ordered.

Scopes keep their shape (a repeat is one node with a body), so that checking,
drawing and lowering cost the same for 6 layers and for 600.  `flat()` gives the
plain networkx graph with one vertex a placed block.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import networkx as nx
from pydantic import BaseModel

from ...specs.form import Spec
from .block_type import BlockType, Signature
from .value_type import ValueType


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
    body: Scope | None = None
    """The inside of the template that stands here, when it is no registered block."""

    def bodies(self, below: str = "/") -> Iterator[tuple[str, Scope]]:
        """Walk the templates in its slots: path below the node, such as `/f.`, and scope."""
        for slot, part in self.fill.items():
            if part.body is not None:
                yield f"{below}{slot}.", part.body
            yield from part.bodies(f"{below}{slot}/")

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
    collect: tuple[str, ...] = ()
    """Outputs that are stacked, those of all copies along a new first axis."""
    share: bool = False
    """Whether the copies have one set of weights, at paths without the copy's number."""
    instead: Mapping[int, Scope] = field(default_factory=dict)
    """Copies that are another template than `body`."""

    def copies(self) -> Iterator[tuple[int, Scope]]:
        """Walk the copies of a repeat, or the one inside of any other template."""
        for index in range(1 if self.repeat is None else self.repeat):
            body = self.instead.get(index, self.body)
            if body is not None:
                yield index, body

    def insides(self) -> Iterator[tuple[str, Scope, int]]:
        """Walk the distinct insides of a node: path below it, scope, how many copies.

        The path is `` for a template used once or with shared weights, `*.` for the
        copies of a repeat, `4.` for a copy that is another template, and `/f.` for a
        template in a slot.
        """
        for below, body in self.part.bodies() if self.part is not None else ():
            yield below, body, 1
        if self.body is None:
            return
        if self.repeat is None or self.share:
            yield "", self.body, 1
            return
        if len(self.instead) < self.repeat:
            yield "*.", self.body, self.repeat - len(self.instead)
        for index, body in sorted(self.instead.items()):
            yield f"{index}.", body, 1

    def runs(self) -> list[tuple[str, Scope, int]]:
        """Return the copies in order, those alike and in a row taken together.

        Each is the path below the node (`` or `*` for all, else `0-3` or `4`), the
        scope, and how many copies it is.
        """
        if self.body is None or self.repeat is None:
            return [] if self.body is None else [("", self.body, 1)]
        if not self.instead:
            return [("*", self.body, self.repeat)]
        runs: list[tuple[str, Scope, int]] = []
        for _, group in itertools.groupby(self.copies(), key=lambda pair: id(pair[1])):
            alike = list(group)
            first, last = alike[0][0], alike[-1][0]
            path = f"{first}" if first == last else f"{first}-{last}"
            runs.append((path, alike[0][1], len(alike)))
        return runs

    def owners(self) -> Iterator[tuple[str, Scope]]:
        """Walk the copies that have weights of their own: path below the node, and scope."""
        alone = self.repeat is None or self.share
        if alone and self.body is not None:
            yield "", self.body
            return
        for index, body in self.copies():
            yield f"{index}.", body

    def weights(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter below this node, by path from it."""
        if self.part is not None:
            return self.part.weights()
        inner = {id(body): body.weights() for _, body, _ in self.insides()}
        return {
            f"{path}{name}": shape
            for path, body in self.owners()
            for name, shape in inner[id(body)].items()
        }

    def parameters(self) -> int:
        """Return the number of parameters below this node, ties not yet counted off."""
        if self.part is not None:
            return sum(map(prod, self.part.weights().values()))
        return sum(
            count * sum(node.parameters() for node in body.nodes)
            for _, body, count in self.insides()
        )


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
    _types: Mapping[str, ValueType] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Note the type of every value, so that asking for one costs nothing."""
        types = dict(self.inputs)
        for node in self.nodes:
            types |= {f"{node.name}.{port}": type_ for port, type_ in node.outputs.items()}
        object.__setattr__(self, "_types", types)

    def weights(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter, by path."""
        return {
            f"{node.name}.{name}": shape
            for node in self.nodes
            for name, shape in node.weights().items()
        }

    def shape_of(self, path: str) -> tuple[int, ...] | None:
        """Return the shape of one parameter without listing all of them; None if there is none."""
        name, _, rest = path.partition(".")
        node = next((node for node in self.nodes if node.name == name), None)
        if node is None or node.part is not None:
            return node.part.weights().get(rest) if node is not None and node.part else None
        if node.repeat is None or node.share:
            return node.body.shape_of(rest) if node.body else None
        index, _, rest = rest.partition(".")
        known = index.isdecimal() and len(index) <= len(str(node.repeat))
        if not known or int(index) >= node.repeat or index != str(int(index)):
            return None
        body = node.instead.get(int(index), node.body)
        return body.shape_of(rest) if body else None

    def type_of(self, value: str) -> ValueType:
        """Return the type of a value: `node.port`, or the name of an input."""
        return self._types[value]

    def gives(self) -> dict[str, ValueType]:
        """Return the type of every output, by port."""
        return {port: self._types[value] for port, value in self.outputs.items()}


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
        again = [path for group in self.ties for path in group[1:]]
        return all_ - sum(prod(shape) for path in again if (shape := self.root.shape_of(path)))

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
        else:
            given = _flatten_repeat(flat, node, path, reads)
        known |= {f"{node.name}.{port}": value for port, value in given.items()}
    return {port: known[value] for port, value in scope.outputs.items()}


def _flatten_repeat(
    flat: nx.DiGraph, node: Node, path: str, reads: dict[str, _Value]
) -> dict[str, _Value]:
    """Add every copy of a repeat; a collected output is a vertex of kind `stack`."""
    given, entered = dict(reads), dict(reads)
    for port in node.collect:
        vertex = f"{path}:{port}"
        flat.add_node(vertex, node=node, kind="stack")
        given[port] = (vertex, port, node.outputs[port])
    for index, body in node.copies():
        left = _flatten(flat, body, f"{path}.{index}.", entered)
        entered |= {port: left[port] for port in node.carry}
        for port in node.collect:
            _wire(flat, left[port], f"{path}:{port}", port)
    return given | {port: entered[port] for port in node.carry}
