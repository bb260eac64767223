"""Losses that a block computes and that training does not see."""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.graph import Graph, RepeatNode, Scope
from ..ir.traverse import holds_model, scopes
from .remark import Remark


def dropped_losses(graph: Graph) -> Iterator[Remark]:
    """Yield the nodes with an output of kind loss that nothing reads.

    Training adds the losses among the outputs of the spec, such as the balance of experts.
    """
    for scope in scopes(graph.root, models=False):
        yield from _in_scope(scope)


def _in_scope(scope: Scope) -> Iterator[Remark]:
    read = {value for node in scope.nodes for value in node.wires.values()}
    read |= {*scope.outputs.values()}
    for node in scope.nodes:
        if holds_model(node):
            continue  # training adds the losses of a model
        dropped = [
            port
            for port, type_ in node.outputs.items()
            if type_.kind == "loss" and f"{node.name}.{port}" not in read
        ]
        if isinstance(node, RepeatNode):
            kept = {*node.carry, *node.collect}
            types = node.body.gives()
            dropped += [p for p, type_ in types.items() if type_.kind == "loss" and p not in kept]
        for port in dropped:
            yield Remark(
                at=node.at,
                problem=f"nothing reads the loss '{port}' of node '{node.name}'",
                help=f"make '{node.name}.{port}' an output of the spec; repeats 'collect' it",
            )
