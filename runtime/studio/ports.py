"""Ports: what fits into a wire, and which values fit a port."""

from __future__ import annotations

from typing import Any

from ...blocks.registry import registry
from ...graphs.checker.check import analyse
from ...graphs.ir.graph import Graph
from ...graphs.ir.traverse import Visit, visits
from ...specs.findings import InputError, SpecError
from ...specs.form import FORMAT
from ...specs.load import LoadedSpec, loaded
from .menu import required


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
    found = {}
    for port, value in visit.node.wires.items():
        wanted = str(scope.type_of(value))
        found[port] = [value, *(v for v, type_ in values.items() if type_ == wanted and v != value)]
    return found


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
        raise InputError(f"no wire leads to '{port}'", place=path, help=f"the ports are {ports}")
    type_ = str(scope.type_of(visit.node.wires[port]))
    words = set(type_.replace("[", " ").replace("]", " ").split())
    axes = {axis: kind for axis, kind in graph.spec.axes.items() if axis in words}
    known = registry(spec.blocks)
    found = []
    for block in known:
        signature = block.signature(
            block.params.model_validate(block.example), frozenset(block.example_inputs)
        )
        if not (signature.inputs and signature.outputs) or block.family == "loss":
            continue
        given = required(block, graph, {})
        record: dict[str, Any] = {"use": block.key, "in": {signature.inputs[0].name: "v"}}
        record |= {"params": given} if given else {}
        params = {
            value[1:]: graph.params[value[1:]]
            for value in given.values()
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
            made, _ = analyse(loaded(value).recovered, known)
        except SpecError:
            continue
        if made is not None and str(made.outputs["v"]) == type_:
            found.append(
                {
                    "use": block.key,
                    "doc": block.doc,
                    "family": block.family,
                    "proposed": given,
                    "parameters": made.parameters() * visit.sets,
                }
            )
    return found


def _found(graph: Graph, path: str) -> tuple[Visit, Any]:
    for visit in visits(graph.root):
        if visit.path == path and visit.kind == "name":
            inside = visit.parent.body if visit.parent is not None else None
            return visit, inside or graph.root
    raise InputError(f"'{path}' is not a node", place=path, help="see 'weft show'")
