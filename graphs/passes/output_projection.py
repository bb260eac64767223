"""Output projection: find the linear map that computes an output of a graph."""

from __future__ import annotations

from ..ir.graph import BlockNode, Graph, Node


def head_of(graph: Graph, output: str) -> str | None:
    """Return the name of the node that computes an output with a single linear map, else None.

    The node must be a linear map (see `is_plain_map`), nothing else may read its output, and no
    other node may call its module.

    Args:
        graph: a checked graph.
        output: name of one of its outputs.
    """
    value = graph.root.outputs.get(output, "")
    name, _, _port = value.partition(".")
    node = next((node for node in graph.root.nodes if node.name == name), None)
    if node is None or not is_plain_map(node):
        return None
    if [other.module for other in graph.root.nodes].count(node.module) > 1:
        return None
    read = [wire for other in graph.root.nodes for wire in other.wires.values()]
    outputs = list(graph.root.outputs.values())
    return name if value not in read and outputs.count(value) == 1 else None


def is_plain_map(node: Node) -> bool:
    """Return whether a node is a product with a weight and nothing else: no LoRA adds to it."""
    return isinstance(node, BlockNode) and node.part.block.is_linear_map and node.part.lora is None
