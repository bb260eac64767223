"""Losses: the order of the nodes of an objective, and the method that weighs its losses.

A loss is a sum over items, such as tokens, and its weight is their number.  Training divides the
sum of an update by its weight, which it must know before the first backward pass.  So the weight
may not need the outputs of models: `weights` runs only the nodes that it depends on, such as noise.
`forward` runs these nodes first and in the same order, so that both draw the same random numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...graphs.ir.graph import BlockNode, Node, Scope
from .forward import WIDTH, run_lines, signature_line


def weighing_first(scope: Scope) -> Sequence[Node]:
    """Return the nodes of a root in execution order, those that weigh its losses first."""
    first = _needed(scope)
    if not first:
        return scope.nodes
    return [
        *(node for node in scope.nodes if node.name in first),
        *(node for node in scope.nodes if node.name not in first),
    ]


def weights_text(scope: Scope, names: Mapping[str, str]) -> list[str]:
    """Return the lines of the method `weights`; none if no output of the root is a weighed loss.

    Args:
        scope: the root of an objective.
        names: value to local variable.
    """
    losses = _weighed(scope)
    if not losses:
        return []
    needed = _needed(scope)
    lines = [
        signature_line(scope, 1, root=True, method="weights"),
        '        """Return the weight of each loss: the number of items that it sums over."""',
    ]
    for node in scope.nodes:
        if node.name in needed:
            lines += run_lines(node, names, " " * 8)
    weights = []
    for output, node in losses.items():
        given = ", ".join(
            f"{port}={names[node.wires[port]]}"
            for port in node.part.block.weighs
            if port in node.wires
        )
        weights.append(f'"{output}": self.{node.module}.weight({given})')
    one_line = f"        return {{{', '.join(weights)}}}"
    if len(one_line) <= WIDTH:
        return [*lines, one_line]
    return [*lines, "        return {", *(f"            {text}," for text in weights), "        }"]


def _weighed(scope: Scope) -> dict[str, BlockNode]:
    """Return the outputs of a root that are losses of blocks which weigh them, and the nodes."""
    nodes = {node.name: node for node in scope.nodes}
    found: dict[str, BlockNode] = {}
    for output, value in scope.outputs.items():
        node = nodes.get(value.partition(".")[0])
        is_loss = scope.type_of(value).kind == "loss"
        if is_loss and isinstance(node, BlockNode) and node.part.block.weighs:
            found[output] = node
    return found


def _needed(scope: Scope) -> set[str]:
    """Return the nodes on which the weights of the losses depend."""
    nodes = {node.name: node for node in scope.nodes}
    waiting = [
        node.wires[port].partition(".")[0]
        for node in _weighed(scope).values()
        for port in node.part.block.weighs
        if port in node.wires
    ]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in nodes and name not in found:
            found.add(name)
            waiting += [value.partition(".")[0] for value in nodes[name].wires.values()]
    return found
