"""Fuse: let a loss compute the linear map that its logits come from.

The loss then never holds all logits (`blocks/kernels/losses/fused_linear_cross_entropy.py`).
"""

from __future__ import annotations

from dataclasses import replace

from ...specs.findings import InputError
from ..ir.execution import PLAIN, Fused
from ..ir.graph import BlockNode, Graph, TemplateNode
from .output_projection import head_of


def fuse(graph: Graph) -> Graph:
    """Return an objective whose losses compute the output projections of its models in training.

    Args:
        graph: a checked graph.

    Raises:
        InputError: it has no loss over a linear map that nothing else reads.
    """
    found = fusible(graph)
    if not found:
        raise InputError(
            f"'{graph.name}' has no loss over a linear map that nothing else reads",
            place=graph.source,
            help="a cross_entropy@1 that reads the logits of a model directly can be fused",
        )
    models = dict(graph.execution.models)
    for one in found.values():
        before = models.get(one.model, PLAIN)
        models[one.model] = replace(before, left=(*before.left, one.head))
    return replace(graph, execution=replace(graph.execution, fused=found, models=models))


def leave_projection(graph: Graph, output: str = "logits") -> Graph:
    """Return a graph whose module may leave the last linear map to a loss.

    Its `forward` takes `projected`; if that is false, the output is the input of the map.

    Args:
        graph: a checked graph.
        output: the output that the map computes.

    Raises:
        InputError: the output is not computed by a linear map, or something else reads it.
    """
    head = head_of(graph, output)
    if head is None:
        problem = f"no linear map that nothing else reads computes the output '{output}'"
        raise InputError(problem, place=graph.source)
    left = (*graph.execution.left, head)
    return replace(graph, execution=replace(graph.execution, left=left))


def fusible(graph: Graph) -> dict[str, Fused]:
    """Return the losses that can be fused with the linear map that computes their logits.

    Nothing else may read the logits, and the model and the loss may be applied only once.

    Returns:
        Name of the loss node to the map.
    """
    readers: dict[str, int] = {}
    wires = [value for node in graph.root.nodes for value in node.wires.values()]
    for value in (*wires, *graph.root.outputs.values()):
        readers[value] = readers.get(value, 0) + 1
    models = {n.name: n for n in graph.root.nodes if isinstance(n, TemplateNode) and n.model}
    calls: dict[str, int] = {}
    for node in graph.root.nodes:
        calls[node.module] = calls.get(node.module, 0) + 1
    found = {}
    for node in graph.root.nodes:
        if not isinstance(node, BlockNode) or not node.part.block.takes_linear_output:
            continue
        owner, _, port = node.wires.get("logits", "").partition(".")
        if owner not in models or readers[f"{owner}.{port}"] != 1:
            continue
        model = models[owner].model
        head = head_of(model, port) if model is not None and not models[owner].shares else None
        if head is not None and calls[owner] == 1 and calls[node.name] == 1:
            found[node.name] = Fused(owner, head, port)
    return found
