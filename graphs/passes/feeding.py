"""Feeding: the part of an objective that computes the inputs of its model, for prediction.

Prediction has the same columns as training, but neither noise nor weights besides those of the
model.  The nodes between the inputs of an objective and its model become a graph of their own,
which reads columns and returns inputs of the model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ...specs.findings import InputError, pointer
from ...specs.form import FORMAT
from ..ir.block_type import Registry
from ..ir.canonical import canonical
from ..ir.graph import BlockNode, Graph, Node
from ..ir.traverse import visits
from .objective import deployed_graph
from .partition import subgraph


def feeding_graph(objective: Graph, ports: Collection[str], registry: Registry) -> Graph:
    """Return the graph that computes inputs of the deployed model from those of its objective.

    Noise is left out: its ids are those that it would change.

    Args:
        objective: graph of an objective that deploys a model.
        ports: the inputs of the model to compute, which are the outputs of the graph.
        registry: the block types that the objective names.

    Raises:
        InputError: an input depends on what only training has, such as weights of the objective.
    """
    outputs, used = _wires(objective, ports)
    full = canonical(objective, models="templates")
    nodes = {node.name: node for node in objective.root.nodes}
    written = {
        name: {**full["nodes"][nodes[name].module], "in": wires} for name, wires in used.items()
    }
    return subgraph(full, registry, "inputs", written, full["inputs"], outputs)


def _wires(
    objective: Graph, ports: Collection[str]
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return the values of inputs of the deployed model, and the wires of the nodes before them.

    Raises:
        InputError: an input depends on what only training has.
    """
    nodes = {node.name: node for node in objective.root.nodes}
    wires = nodes[str(objective.deploy)].wires
    outputs: dict[str, str] = {}
    used: dict[str, dict[str, str]] = {}
    for port in sorted(ports):
        outputs[port] = _without_noise(wires[port], nodes, objective, port)
        waiting = [outputs[port]]
        while waiting:
            name = waiting.pop().partition(".")[0]
            if name in used or name not in nodes:
                continue
            node = nodes[name]
            _refuse_trained(node, nodes, objective, port)
            used[name] = {
                into: _without_noise(value, nodes, objective, port)
                for into, value in node.wires.items()
            }
            waiting += used[name].values()
    return outputs, used


def feeding_by_name(model: Graph, registry: Registry, ports: Collection[str]) -> Graph:
    """Return the graph that computes inputs of a model whose objective is unknown.

    A mask is that of the ids with the same axes; other inputs have the names of columns.

    Args:
        model: graph of the model.
        registry: the block types.
        ports: the inputs to compute, which are the outputs of the graph.
    """
    nodes: dict[str, dict[str, Any]] = {}
    outputs: dict[str, str] = {}
    for port in sorted(ports):
        type_ = model.inputs[port]
        same = [
            name
            for name, other in model.inputs.items()
            if other.kind == "ids" and other.axes == type_.axes
        ]
        outputs[port] = port
        if type_.kind == "mask" and len(same) == 1:
            block = next(block for block in registry if block.counts == "same")
            nodes[f"{port}_of_ids"] = {"use": block.key, "in": {"ids": same[0]}}
            outputs[port] = f"{port}_of_ids.y"
    inputs = {name: str(type_) for name, type_ in model.inputs.items()}
    full = {"format": FORMAT, "name": model.name, "axes": dict(model.spec.axes)}
    return subgraph(full, registry, "inputs", nodes, inputs, outputs)


def fed_by(objective: Graph, ports: Collection[str]) -> tuple[str, ...]:
    """Return the inputs of an objective that inputs of its deployed model need in prediction.

    Args:
        objective: graph of an objective that deploys a model.
        ports: inputs of the model.

    Raises:
        InputError: an input depends on what only training has.
    """
    outputs, used = _wires(objective, ports)
    read = {*outputs.values()}.union(*(wires.values() for wires in used.values()))
    return tuple(name for name in objective.inputs if name in read)


def unfed(objective: Graph, ports: Iterable[str]) -> dict[str, InputError]:
    """Return why prediction cannot compute inputs of the deployed model, for each of these."""
    refused = {}
    for port in ports:
        try:
            _wires(objective, [port])
        except InputError as error:
            refused[port] = error
    return refused


def _without_noise(value: str, nodes: Mapping[str, Node], objective: Graph, port: str) -> str:
    """Return a value, or the ids to which noise would be added.

    Raises:
        InputError: the value tells where the noise is, and prediction has none.
    """
    name, _, output = value.partition(".")
    while output and isinstance(node := nodes[name], BlockNode) and node.part.block.draws:
        if node.outputs[output].kind != "ids" or "ids" not in node.wires:
            raise _refused(objective, port, node, "is made of noise, and prediction has none")
        value = node.wires["ids"]
        name, _, output = value.partition(".")
    return value


def _refuse_trained(node: Node, nodes: Mapping[str, Node], objective: Graph, port: str) -> None:
    """Raise an error if prediction cannot compute a node as training does.

    Raises:
        InputError: it has weights, or draws random numbers.
    """
    if nodes[node.module].weights():
        why = "has weights, and of these only the ones of the model are left after training"
        raise _refused(objective, port, node, why)
    inside = visits(node.body) if not isinstance(node, BlockNode) else ()
    if any(getattr(getattr(node.part, "block", None), "draws", False) for node in inside):
        raise _refused(objective, port, node, "draws random numbers, and prediction has no noise")


def _refused(objective: Graph, port: str, node: Node, why: str) -> InputError:
    model = deployed_graph(objective).name
    return InputError(
        f"prediction cannot feed the input '{port}' of '{model}': '{node.name}' {why}",
        location=f"{objective.source}#{pointer('nodes', node.name)}",
        help=f"fill '{port}' from a column alone, write it before the answer ('drafts' of the"
        f" predictor), or make '{node.name}' a part of the model",
    )
