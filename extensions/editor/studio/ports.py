"""Ports: what fits into a wire, which values fit a port, and which ports fit a value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....graphs.checker.check import analyse
from ....graphs.draw.facts import pointers
from ....plugin import BlockNode, Graph, InputError, Node, Scope, SpecError, Visit, registry, visits
from ....specs.form import FORMAT
from ....specs.load import LoadedSpec, loaded
from .menu import accepts, required

MOST_CHECKS = 100
"""Maximum number of ports that are checked one by one, because their wire has another type."""


def fitting_values(graph: Graph, spec: LoadedSpec, path: str) -> dict[str, list[str]]:
    """Return, for each wired port of a node, the values of its scope with the type of the wire.

    Args:
        graph: the graph of the spec.
        spec: the spec.
        path: a node.

    Raises:
        InputError: there is no such node.
    """
    del spec
    visit, scope = _found(graph, path)
    values = {name: str(type_) for name, type_ in scope.inputs.items()}
    for node in scope.nodes:
        if node.name == visit.node.name:
            break
        values |= {f"{node.name}.{port}": str(type_) for port, type_ in node.outputs.items()}
    fitting = {}
    for port, value in visit.node.wires.items():
        expected = str(scope.type_of(value))
        fitting[port] = [
            value,
            *(v for v, type_ in values.items() if type_ == expected and v != value),
        ]
    return fitting


def fitting_blocks(graph: Graph, spec: LoadedSpec, path: str, port: str) -> list[dict[str, Any]]:
    """Return the blocks that can stand in the wire to a port: their output has its type.

    Args:
        graph: the graph of the spec.
        spec: the spec.
        path: the node that reads the wire.
        port: its input.

    Raises:
        InputError: there is no such node or port.
    """
    visit, scope = _found(graph, path)
    if port not in visit.node.wires:
        ports = ", ".join(visit.node.wires)
        raise InputError(f"no wire leads to '{port}'", location=path, help=f"the ports are {ports}")
    type_ = str(scope.type_of(visit.node.wires[port]))
    words = set(type_.replace("[", " ").replace("]", " ").split())
    axes = {axis: kind for axis, kind in graph.spec.axes.items() if axis in words}
    blocks = registry(spec.blocks)
    fitting = []
    for block in blocks:
        signature = block.signature(
            block.params.model_validate(block.example), frozenset(block.example_inputs)
        )
        if not (signature.inputs and signature.outputs) or block.family == "loss":
            continue
        proposed = required(block, graph, {})
        record: dict[str, Any] = {"use": block.key, "in": {signature.inputs[0].name: "v"}}
        record |= {"params": proposed} if proposed else {}
        params = {
            value[1:]: graph.params[value[1:]]
            for value in proposed.values()
            if isinstance(value, str) and value[1:] in graph.params
        }
        value = {
            "format": FORMAT,
            "name": "wire",
            "params": params,
            "axes": axes,
            "inputs": {"v": type_},
            "outputs": {"v": f"n.{signature.outputs[0].name}"},
            "nodes": {"n": record},
        }
        try:
            checked, _ = analyse(loaded(value).recovered, blocks)
        except SpecError:
            continue
        if checked is not None and str(checked.outputs["v"]) == type_:
            fitting.append(
                {
                    "use": block.key,
                    "doc": block.doc,
                    "family": block.family,
                    "proposed": proposed,
                    "parameters": checked.parameters() * visit.sets,
                }
            )
    return fitting


def fitting_ports(graph: Graph, spec: LoadedSpec, path: str) -> list[dict[str, Any]]:
    """Return the outputs of a node, each with the ports of other nodes to which it can be wired.

    These are ports in the same scope that do not lead back to the node, and whose block, or
    template, takes a value of this type and still gives what it gave.

    Args:
        graph: the graph of the spec.
        spec: the spec.
        path: a node, or an input of the graph, such as `input/source`.

    Raises:
        InputError: there is no such node or input.
    """
    kind, _, name = path.partition("/")
    if kind == "input":
        if name not in graph.inputs:
            help_ = f"the inputs are {', '.join(graph.inputs)}"
            raise InputError(f"no input '{name}'", location=path, help=help_)
        outer, scope, types = "", graph.root, {name: graph.inputs[name]}
        before = {""}
    else:
        visit, scope = _found(graph, path)
        outer = path.rpartition(".")[0]
        offers = visit.node.part.offers if isinstance(visit.node, BlockNode) else {}
        outputs = {**visit.node.outputs, **offers}
        types = {f"{visit.node.name}.{port}": type_ for port, type_ in outputs.items()}
        before = _upstream(scope, visit.node)
    locations = pointers(graph)
    places = [(f"{outer}.{node.name}" if outer else node.name, node) for node in scope.nodes]
    nodes = [(at, node) for at, node in places if node.name not in before and locations.get(at)]
    checks = iter(range(MOST_CHECKS))
    fitting = []
    for value, type_ in types.items():
        ports = []
        for at, node in nodes:
            for port in _ports(node):
                now = node.wires.get(port)
                alike = now is not None and str(scope.type_of(now)) == str(type_)
                if alike or _takes(graph, spec, at, node, port, str(type_), checks):
                    ports.append({"path": at, "port": port, "now": now})
        fitting.append({"value": value, "type": str(type_), "ports": ports})
    return fitting


def _upstream(scope: Scope, node: Node) -> set[str]:
    """Return the names of a node and of those whose values it is computed from."""
    upstream = {node.name}
    for other in reversed(scope.nodes):
        if other.name in upstream:
            upstream |= {value.partition(".")[0] for value in other.wires.values() if "." in value}
    return upstream


def _ports(node: Node) -> Iterator[str]:
    """Yield the names of the ports of a node, wired or not."""
    if isinstance(node, BlockNode) and not node.shares:
        yield from dict.fromkeys([*node.wires, *(port.name for port in node.part.signature.inputs)])
    else:
        yield from node.wires


def _takes(
    graph: Graph,
    spec: LoadedSpec,
    path: str,
    node: Node,
    port: str,
    type_: str,
    checks: Iterator[int],
) -> bool:
    """Return whether a block takes a value at a port; the ports of templates have one type."""
    if not isinstance(node, BlockNode) or node.shares or next(checks, None) is None:
        return False
    return accepts(graph, spec, path, port, type_)


def _found(graph: Graph, path: str) -> tuple[Visit, Any]:
    for visit in visits(graph.root):
        if visit.path == path and visit.kind == "name":
            inside = visit.parent.body if visit.parent is not None else None
            return visit, inside or graph.root
    raise InputError(f"'{path}' is not a node", location=path, help="see 'weft show'")
