"""The expanded graph: one networkx vertex for each block, every copy of a repeat included."""

from __future__ import annotations

import networkx as nx

from ....plugin import BlockNode, Graph, RepeatNode, Scope, TemplateNode, ValueType


def flat_graph(graph: Graph) -> nx.DiGraph:
    """Return the expanded graph: a vertex for each block, input and output.

    Vertices are paths such as `decoder.3.self_attention`; each has the attributes `node` (None
    for inputs and outputs) and `kind` (`input`, `output`, `block` or `stack`).  The attribute
    `wires` of an edge lists its wires, each with `port`, `value` and `type`.
    """
    flat = nx.DiGraph(name=graph.name)
    values = {name: (name, name, type_) for name, type_ in graph.inputs.items()}
    for name in graph.inputs:
        flat.add_node(name, node=None, kind="input")
    outputs = _flatten(flat, graph.root, "", values)
    for name, value in outputs.items():
        vertex = f"output:{name}"
        flat.add_node(vertex, node=None, kind="output")
        _wire(flat, value, vertex, name)
    return flat


_Value = tuple[str, str, ValueType]
"""Where a value comes from: vertex, port, type."""


def _wire(flat: nx.DiGraph, value: _Value, vertex: str, port: str) -> None:
    """Add one wire; all wires between the same two vertices share one edge."""
    source, output, type_ = value
    wire = {"port": port, "value": output, "type": type_}
    if flat.has_edge(source, vertex):
        flat.edges[source, vertex]["wires"].append(wire)
    else:
        flat.add_edge(source, vertex, wires=[wire])


def _flatten(
    flat: nx.DiGraph, scope: Scope, prefix: str, values: dict[str, _Value]
) -> dict[str, _Value]:
    """Add the blocks of a scope, and return where each of its outputs comes from."""
    available = dict(values)
    for node in scope.nodes:
        path = prefix + node.name
        reads = {port: available[value] for port, value in node.wires.items()}
        match node:
            case BlockNode():
                flat.add_node(path, node=node, kind="block")
                for port, value in reads.items():
                    _wire(flat, value, path, port)
                outputs = {port: (path, port, type_) for port, type_ in node.outputs.items()}
            case TemplateNode():
                outputs = _flatten(flat, node.body, f"{path}.", reads)
            case RepeatNode():
                outputs = _flatten_repeat(flat, node, path, reads)
        available |= {f"{node.name}.{port}": value for port, value in outputs.items()}
    return {port: available[value] for port, value in scope.outputs.items()}


def _flatten_repeat(
    flat: nx.DiGraph, node: RepeatNode, path: str, reads: dict[str, _Value]
) -> dict[str, _Value]:
    """Add every copy of a repeat; a collected output is a vertex of kind `stack`."""
    outputs, entered = dict(reads), dict(reads)
    for port in node.collect:
        vertex = f"{path}:{port}"
        flat.add_node(vertex, node=node, kind="stack")
        outputs[port] = (vertex, port, node.outputs[port])
    for index, body in node.copies():
        results = _flatten(flat, body, f"{path}.{index}.", entered)
        entered |= {port: results[port] for port in node.carry}
        for port in node.collect:
            _wire(flat, results[port], f"{path}:{port}", port)
    return outputs | {port: entered[port] for port in node.carry}
