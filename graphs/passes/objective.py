"""Objective: its models, what fills their inputs, and what the data tell about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from ..ir.graph import BlockNode, Graph, TemplateNode
from ..ir.traverse import root_moving
from ..ir.value_type import ValueType

RESERVED = frozenset({"loss", "nll"})
"""Names in the history of a run of the sum of several losses, and of a score."""
_PAD = 0
"""Id of the padding token that the data counts."""


def deployed_graph(graph: Graph) -> Graph:
    """Return the model that an objective leaves behind; the objective itself if there is none."""
    for node, model in graph.models():
        if node.name == graph.deploy:
            return model
    return graph


def trained_models(graph: Graph) -> dict[str, Graph]:
    """Return the models of an objective that train, by the names of their nodes."""
    return {node.name: model for node, model in graph.models() if not node.frozen}


def scores_of(graph: Graph) -> tuple[str, ...]:
    """Return the outputs of an objective that are reported but not trained."""
    return tuple(name for name, type_ in graph.outputs.items() if type_.kind == "score")


def nll_of(graph: Graph) -> str | None:
    """Return the score of an objective that is reported as nll: `nll`, or the only one."""
    scores = scores_of(graph)
    return "nll" if "nll" in scores else scores[0] if len(scores) == 1 else None


def reported_losses(graph: Graph) -> dict[str, str]:
    """Return the losses of an objective, each with the name under which it is reported.

    One of several losses that is called `loss` or `nll` is reported under the name of its node,
    because the history of a run has the sum of all losses and a score under these names.
    """
    names = {name: name for name in graph.losses}
    if len(names) == 1:
        return names
    taken = {*graph.outputs}
    for name in names.keys() & RESERVED:
        node = graph.root.outputs[name].partition(".")[0]
        while node in taken or node in RESERVED:
            node = f"{node}_loss"
        names[name] = node
        taken.add(node)
    return names


def has_all_weights(model: Graph, objective: Graph) -> bool:
    """Return whether a deployed model has all weights of its objective.

    Without them, such as those of a second head, the losses cannot be computed afterwards.
    """
    return objective.weights().keys() <= {f"{objective.deploy}.{path}" for path in model.weights()}


def feeds_of(graph: Graph) -> dict[str, str]:
    """Return which input of the objective fills each input of the deployed model, by kind.

    Blocks between the two, such as a shift or noise, are passed through if they keep the kind and
    the ids: a mask that is made from ids is not filled with ids, nor are token types.  What
    computes the other inputs, `feeding.py` tells.

    Args:
        graph: graph of an objective that deploys a model.
    """
    nodes = {node.name: node for node in graph.root.nodes}
    model, inputs = nodes[str(graph.deploy)], deployed_graph(graph).inputs
    origins = {port: _origin(value, nodes, graph) for port, value in model.wires.items()}
    return {
        port: origin
        for port, origin in origins.items()
        if origin is not None and _can_fill(graph.inputs[origin], inputs[port])
    }


def read_texts(graph: Graph) -> dict[str, str]:
    """Return what fills each input of ids of the deployed model that decoding does not write."""
    model = deployed_graph(graph)
    moving = root_moving(model) if model.step_axis is not None else frozenset()
    return {
        port: name
        for port, name in feeds_of(graph).items()
        if model.inputs[port].kind == "ids" and port not in moving
    }


def source_among(texts: Collection[str]) -> str | None:
    """Return the text that is translated: the only one; of several `source`, or the first by name.

    None without a text.
    """
    return "source" if "source" in texts else min(texts, default=None)


def _can_fill(source: ValueType, target: ValueType) -> bool:
    same = source.kind == target.kind
    return same and (source.kind != "ids" or int(source.size or 0) <= int(target.size or 0))


def _origin(value: str, nodes: Mapping[str, Any], graph: Graph) -> str | None:
    """Return the input of an objective of whose kind a value is, and from which it is made.

    None if a block makes it from another kind, or from several values of its kind of which none is
    at the port `ids`.
    """
    kind = graph.root.type_of(value).kind
    while value not in graph.inputs:
        wires = nodes[value.partition(".")[0]].wires
        same = [value for value in wires.values() if graph.root.type_of(value).kind == kind]
        if "ids" in wires and wires["ids"] in same:
            value = wires["ids"]
        elif len(same) == 1:
            [value] = same
        else:
            return None
    return value


def counted_inputs(graph: Graph) -> dict[str, dict[str, tuple[str, bool]]]:
    """Return where the data tell how many positions of a model's input are not padding.

    A mask has as many as the input of the objective that it is, or is made from; ids that are
    shifted right have as many as that input, shifted.  Models that run several times are left out.

    Returns:
        Node of a model to its inputs, each with the input of the objective and whether it is
        shifted.
    """
    nodes = {node.name: node for node in graph.root.nodes}
    calls = Counter(node.module for node in graph.root.nodes)
    counted: dict[str, dict[str, tuple[str, bool]]] = {}
    for name, model in nodes.items():
        if not isinstance(model, TemplateNode) or model.model is None or calls[name] != 1:
            continue
        counts = {port: _counted(value, nodes, graph) for port, value in model.wires.items()}
        counted[name] = {port: count for port, count in counts.items() if count is not None}
    return counted


def _counted(value: str, nodes: Mapping[str, Any], graph: Graph) -> tuple[str, bool] | None:
    """Return the input whose positions a value has, and whether it is shifted; None if unknown."""
    if value in graph.inputs:
        return (value, False) if graph.inputs[value].kind == "mask" else None
    node = nodes[value.partition(".")[0]]
    counts = node.part.block.counts if isinstance(node, BlockNode) else ""
    if not counts or not isinstance(node, BlockNode) or len(node.wires) != 1:
        return None
    (read,) = node.wires.values()
    arguments, type_ = node.part.arguments, graph.inputs.get(read)
    if type_ is None or type_.kind != "ids" or arguments.get("pad", _PAD) != _PAD:
        return None
    return (read, counts == "shifted") if arguments.get("by", 1) == 1 else None
