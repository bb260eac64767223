"""Output projection: find the linear map that computes an output of a graph."""

from __future__ import annotations

from ..ir.graph import BlockNode, Graph


def head_of(graph: Graph, output: str) -> str | None:
    """Return the name of the node that computes an output with a single linear map, else None.

    The block of the node must be a linear map (`BlockType.is_linear_map`) without LoRA, nothing
    else may read its output, and no other node may call its module.

    Args:
        graph: a checked graph.
        output: name of one of its outputs.
    """
    value = graph.root.outputs.get(output, "")
    name, _, _port = value.partition(".")
    node = next((node for node in graph.root.nodes if node.name == name), None)
    if not isinstance(node, BlockNode) or not node.part.block.is_linear_map:
        return None
    if "lora_rank" in node.part.arguments:
        return None  # it adds to the product with its weight
    if [other.module for other in graph.root.nodes].count(node.module) > 1:
        return None
    read = [wire for other in graph.root.nodes for wire in other.wires.values()]
    given = list(graph.root.outputs.values())
    return name if value not in read and given.count(value) == 1 else None
