"""Recompute: activations that are computed again when the backward pass needs them.

Of a recomputed module only what goes in is kept until then, not what lies between; it
costs one more forward pass of that module.  What it drops is dropped alike both times.

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
    """Let the modules that a run selects recompute what lies inside them, and say it."""
    wanted = context.run.activation_checkpointing
    selections = (wanted,) if isinstance(wanted, str) else wanted
    if again := checkpoint_activations(model, context.graph, selections):
        context.listener.log(f"activation checkpointing: {len(again)} modules, from {again[0]}")


def checkpoint_activations(
    model: nn.Module, graph: Graph, selections: Iterable[str]
) -> tuple[str, ...]:
    """Let the modules that selections name recompute what lies inside them, while training.

    Args:
        model: built from the graph; changed in place, names of parameters stay.
        graph: what the selections are about.
        selections: such as `encoder.*`; see `chosen`.

    Returns:
        Paths of the modules.

    Raises:
        InputError: a selection cannot be read, or names nothing.
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
    """Return a class of modules that recompute.

    One for each class, and nothing kept in the modules themselves: so the copies of a
    template are still alike, and are compiled once.
    """
    plain = kind.forward

    def forward(self: nn.Module, *given: Any, **named: Any) -> Any:
        if not (self.training and torch.is_grad_enabled()):
            return plain(self, *given, **named)

        def inside(*given: Any, **named: Any) -> Any:
            return plain(self, *given, **named)

        return checkpoint(inside, *given, use_reentrant=False, **named)

    return like(kind, forward)
