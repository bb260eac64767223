"""Freezing: parts of a model whose weights do not train."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from ....graphs.passes.freeze import frozen_weights

if TYPE_CHECKING:
    from ..context import TrainingContext


def freeze(model: nn.Module, context: TrainingContext) -> None:
    """Freeze the weights of the parts that a run selects, and log their number.

    Raises:
        InputError: a selection is wrong, or selects nothing.
    """
    names = frozen_weights(context.graph, context.freeze, context.train)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    shared = {id(parameters[name]) for name in names}
    for parameter in parameters.values():
        if id(parameter) in shared:
            parameter.requires_grad = False
    if names:
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        context.listener.log(f"frozen: {len(names)} weights; {trained:,} parameters train")
