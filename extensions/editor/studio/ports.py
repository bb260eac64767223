"""Ports: what fits into a wire, which values fit a port, and which ports fit a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ....graphs.draw.facts import pointers
from ....plugin import (
    BlockNode,
    BlockType,
    Graph,
    InputError,
    Node,
    Part,
    RepeatNode,
    Scope,
    TemplateNode,
    ValueType,
    Visit,
    visits,
)
from ....specs.load import LoadedSpec
from ..language.ports import example_signature
from .alone import Surroundings
from .menu import accepts

MOST_CHECKS = 100
"""Maximum number of ports that are checked one by one, because their wire has another type."""


def fitting_values(graph: Graph, spec: LoadedSpec, path: str) -> list[dict[str, Any]]:
    """Return the ports of a node, wired or not, each with the values of its scope that fit.

    Args:
        graph: the graph of the spec.
        spec: the spec.
        path: a node.

    Returns:
        For each port: its name, whether it is optional, the value that it reads now or None, and
        those that it could read, which are not computed from the node.

    Raises:
        InputError: there is no such node.
    """
    visit, scope = _found(graph, path)
    node, after = visit.node, _downstream(scope, visit.node)
    values = dict(scope.inputs)
    for other in scope.nodes:
        if other.name not in after:
            values |= {f"{other.name}.{port}": type_ for port, type_ in other.outputs.items()}
    ports = _Ports(graph, spec)
    return [
        {
            "port": name,
            "optional": optional,
            "now": node.wires.get(name),
            "values": [v for v in values if ports.take(scope, path, node, name, values[v])],
        }
        for name, optional in ports.of(node).items()
    ]


def fitting_blocks(
    graph: Graph, spec: LoadedSpec, path: str, port: str, *, after: bool = False
) -> list[dict[str, Any]]:
    """Return the blocks that can stand in the wires of a port: their output has its type.

    Args:
        graph: the graph of the spec.
        spec: the spec.
        path: the node before which the block would be, or after which.
        port: its input, or its output.
        after: whether the port is an output.

    Raises:
        InputError: there is no such node or port.
    """
    around, visit, type_ = _wire(graph, spec, path, port, after=after)
    pieces = [(block, _piece(around, block, type_, {})) for block in around.registry]
    return [
        {
            "use": block.key,
            "doc": block.doc,
            "family": block.family,
            "proposed": fitting.proposed,
            "parameters": fitting.parameters * visit.sets,
        }
        for block, fitting in pieces
        if fitting is not None
    ]


class WireBlock(NamedTuple):
    """A block that can stand in a wire."""

    record: dict[str, Any]
    """Its node, with the wire to its first port as `@`."""
    output: str
    """Its output that gives the value."""
    proposed: dict[str, Any]
    """The params that it needs besides those that were set."""
    parameters: int


def piece(
    graph: Graph,
    spec: LoadedSpec,
    path: str,
    port: str,
    use: str,
    params: Mapping[str, Any],
    *,
    after: bool = False,
) -> WireBlock:
    """Return a block as it can stand in the wires of a port.

    Args:
        graph: the graph of the spec.
        spec: the spec.
        path: the node before which the block would be, or after which.
        port: its input, or its output.
        use: the block.
        params: params of the block; others that it needs are proposed.
        after: whether the port is an output.

    Raises:
        InputError: there is no such place or block, or it does not fit.
    """
    around, _, type_ = _wire(graph, spec, path, port, after=after)
    block = around.registry.get(use)
    if block is None:
        raise InputError(f"no block '{use}'", location=path, help="see 'weft list blocks'")
    fitting = _piece(around, block, type_, params)
    if fitting is None:
        problem = f"'{use}' does not give {type_}, as its place in the wire must"
        raise InputError(problem, location=path, help="choose another block or other params")
    return fitting


def _wire(
    graph: Graph, spec: LoadedSpec, path: str, port: str, *, after: bool
) -> tuple[Surroundings, Visit, ValueType]:
    """Return what is around the wires of a port, its node, and their type.

    Raises:
        InputError: there is no such node or port.
    """
    visit, scope = _found(graph, path)
    wires = {name: scope.type_of(value) for name, value in visit.node.wires.items()}
    types = visit.node.outputs if after else wires
    if port not in types:
        help_ = f"the ports are {', '.join(types)}"
        raise InputError(f"no wire leads to or from '{port}'", location=path, help=help_)
    return Surroundings(graph, spec, scope), visit, types[port]


def _piece(
    around: Surroundings, block: BlockType, type_: ValueType, params: Mapping[str, Any]
) -> WireBlock | None:
    """Return a block that takes and gives a type; None if it does not."""
    signature = example_signature(block)
    if not (signature.inputs and signature.outputs) or block.family == "loss":
        return None
    takes, gives = {signature.inputs[0].name: type_}, {signature.outputs[0].name: type_}
    for proposed in around.proposals(block, params, takes, gives):
        record = {"use": block.key, "in": {signature.inputs[0].name: "@"}}
        record |= {"params": {**params, **proposed}} if params or proposed else {}
        checked, _ = around.check(record, takes, gives)
        if checked is not None:
            return WireBlock(record, signature.outputs[0].name, proposed, checked.parameters())
    return None


def fitting_ports(
    graph: Graph, spec: LoadedSpec, path: str, *, inside: bool = False
) -> list[dict[str, Any]]:
    """Return values, each with the ports of nodes to which it can be wired.

    These are ports in the same scope that do not lead back to the value, and whose block, or
    template, takes a value of this type and still gives what it gave.

    Args:
        graph: the graph of the spec.
        spec: the spec.
        path: a node, for the values that it gives; or a scope, such as `encoder.*`, or the spec
            itself, which is empty.
        inside: whether the path is a scope, for the values that it takes.

    Raises:
        InputError: there is no such node or scope.
    """
    values: dict[str, ValueType] = {}
    if inside:
        outer, scope, before = path, _scope(graph, path), set[str]()
        values = dict(scope.inputs)
    else:
        visit, scope = _found(graph, path)
        outer, node = path.rpartition(".")[0], visit.node
        offers = node.part.offers if isinstance(node, BlockNode) else {}
        for port, type_ in {**node.outputs, **offers}.items():
            values[f"{node.name}.{port}"] = type_
        before = _upstream(scope, node)
    locations, ports = pointers(graph), _Ports(graph, spec)
    nodes = [(f"{outer}.{node.name}" if outer else node.name, node) for node in scope.nodes]
    nodes = [(at, node) for at, node in nodes if node.name not in before and locations.get(at)]
    return [
        {
            "value": value,
            "type": str(type_),
            "ports": [
                {"path": at, "port": port, "now": node.wires.get(port)}
                for at, node in nodes
                for port in ports.of(node)
                if ports.take(scope, at, node, port, type_)
            ],
        }
        for value, type_ in values.items()
    ]


def _upstream(scope: Scope, node: Node) -> set[str]:
    """Return the names of a node and of those whose values it is computed from."""
    upstream = {node.name}
    for other in reversed(scope.nodes):
        if other.name in upstream:
            upstream |= {value.partition(".")[0] for value in other.wires.values() if "." in value}
    return upstream


def _downstream(scope: Scope, node: Node) -> set[str]:
    """Return the names of a node and of those that are computed from its values."""
    downstream = {node.name}
    for other in scope.nodes:
        if any(value.partition(".")[0] in downstream for value in other.wires.values()):
            downstream.add(other.name)
    return downstream


class _Ports:
    """The ports of nodes, and which values they take."""

    def __init__(self, graph: Graph, spec: LoadedSpec) -> None:
        self.graph, self.spec = graph, spec
        self.checks = MOST_CHECKS
        self.answers: dict[tuple[str, str, str], bool] = {}

    def of(self, node: Node) -> dict[str, bool]:
        """Return the ports of a node, wired or not, and whether each is optional."""
        if node.shares:
            return dict.fromkeys(node.wires, False)
        ports = self._of_block(node.part) if isinstance(node, BlockNode) else self._of_body(node)
        return {**dict.fromkeys(node.wires, False), **ports}

    def _of_block(self, part: Part) -> dict[str, bool]:
        ports = {port.name: port.optional for port in part.signature.inputs}
        for slot in part.signature.slots:
            filling = part.fill.get(slot.name)
            if isinstance(filling, Part):
                inner = self._of_block(filling)
            elif filling is not None:
                inner = self._of_template(filling.key)
            else:
                continue
            ports |= {name: inner[name] for name in inner if name not in slot.entries}
        return ports

    def _of_body(self, node: TemplateNode | RepeatNode) -> dict[str, bool]:
        if isinstance(node, TemplateNode) and node.model is not None:
            return dict.fromkeys(node.body.inputs, False)
        return self._of_template(node.body.name)

    def _of_template(self, name: str) -> dict[str, bool]:
        types = self.spec.value().get("blocks", {})[name]["inputs"]
        return {port: str(type_).endswith("?") for port, type_ in types.items()}

    def take(self, scope: Scope, path: str, node: Node, port: str, type_: ValueType) -> bool:
        """Return whether a node takes a value at a port, and still gives what it gave."""
        now = node.wires.get(port)
        if now is not None and str(scope.type_of(now)) == str(type_):
            return True
        if node.shares:
            return False
        key = (path, port, str(type_))
        if key not in self.answers:
            if not self.checks:
                return False
            self.checks -= 1
            self.answers[key] = accepts(self.graph, self.spec, path, port, str(type_))
        return self.answers[key]


def _found(graph: Graph, path: str) -> tuple[Visit, Scope]:
    for visit in visits(graph.root):
        if visit.path == path and visit.kind == "name":
            inside = visit.parent.body if visit.parent is not None else None
            return visit, inside or graph.root
    raise InputError(f"'{path}' is not a node", location=path, help="see 'weft show'")


def _scope(graph: Graph, path: str) -> Scope:
    """Return the graph itself for an empty path, or the template that a path is inside of."""
    if not path:
        return graph.root
    for visit in visits(graph.root):
        if visit.path == path and visit.body is not None:
            return visit.body
    raise InputError(f"'{path}' is not a template", location=path, help="see 'weft show'")
