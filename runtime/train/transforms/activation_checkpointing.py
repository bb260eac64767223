"""Activation checkpointing: the backward pass computes activations again.

Only the inputs of a checkpointed module are stored, not its intermediate activations; this
costs one more forward pass of the module.  Dropout is the same in both passes.

Source: Chen et al. 2016, section 3, https://arxiv.org/abs/1604.06174
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ....graphs.ir.graph import Graph
from ....graphs.passes.select import chosen
from .subclass import like

if TYPE_CHECKING:
    from ..context import TrainingContext


def checkpoint_activations_of_run(model: nn.Module, context: TrainingContext) -> None:
    """Enable activation checkpointing for the modules that a run selects, and log it."""
    wanted = context.run.activation_checkpointing
    selections = (wanted,) if isinstance(wanted, str) else wanted
    if paths := checkpoint_activations(model, context.graph, selections):
        context.listener.log(f"activation checkpointing: {len(paths)} modules, from {paths[0]}")


def checkpoint_activations(
    model: nn.Module, graph: Graph, selections: Iterable[str]
) -> tuple[str, ...]:
    """Enable activation checkpointing, during training, for the selected modules.

    Args:
        model: model built from `graph`; changed in place, parameter names stay the same.
        graph: graph that the selections refer to.
        selections: selections such as `encoder.*`; see `chosen`.

    Returns:
        Paths of the modules.

    Raises:
        InputError: a selection is invalid or matches nothing.
    """
    paths = {
        path
        for text in selections
        for path in chosen(graph, text, place="/activation_checkpointing")
    }
    outermost = sorted(p for p in paths if not any(p.startswith(f"{one}.") for one in paths))
    for path in outermost:
        module = model.get_submodule(path)
        kind: Any = type(module)
        module.__class__ = _checkpointed(kind)
    return tuple(outermost)


@functools.cache
def _checkpointed(kind: Any) -> Any:
    """Return a subclass of a module class whose `forward` is checkpointed.

    There is one subclass per class and no state in the modules, so the copies of a template
    still share a class and are compiled once.
    """
    plain = kind.forward

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not (self.training and torch.is_grad_enabled()):
            return plain(self, *args, **kwargs)

        def inside(*args: Any, **kwargs: Any) -> Any:
            return plain(self, *args, **kwargs)

        return checkpoint(inside, *args, use_reentrant=False, **kwargs)

    return like(kind, forward, _checkpointed)
