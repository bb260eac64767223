"""What training leaves of an objective: its model, without losses, teachers and noise."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from torch import nn

from ....graphs.passes.select import chosen
from ...checkpoint.saving import Contents
from .graphs import deployed_graph

if TYPE_CHECKING:
    from ..context import TrainingContext


def deployed(contents: Contents) -> Contents:
    """Return the contents of a checkpoint of the deployed model, from those of its objective."""
    graph = contents.graph
    if graph.deploy is None:
        return contents
    start = f"{graph.deploy}."
    model = deployed_graph(graph)
    known = model.weights().keys()
    weights = {
        path.removeprefix(start): tensor
        for path, tensor in contents.weights.items()
        if path.startswith(start) and path.removeprefix(start) in known
    }
    return replace(contents, graph=model, weights=weights, optimizer=None)


def freeze(model: nn.Module, context: TrainingContext) -> None:
    """Freeze the weights of the parts that a run selects, and log their number.

    Raises:
        InputError: a selection is wrong or selects nothing.
    """
    paths = {
        path
        for number, text in enumerate(context.freeze)
        for path in chosen(context.graph, text, place=f"/freeze/{number}")
    }
    frozen = {
        id(parameter): parameter.numel()
        for path in paths
        for parameter in model.get_submodule(path).parameters()
    }
    for parameter in model.parameters():
        if id(parameter) in frozen:
            parameter.requires_grad_(requires_grad=False)
    if frozen:
        context.listener.log(f"frozen: {sum(frozen.values()):,} parameters of {len(paths)} parts")
