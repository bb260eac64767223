"""Freezing: parts of a model whose weights do not train."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from typing import TYPE_CHECKING

from torch import nn

from ....graphs.ir.graph import Graph
from ....graphs.passes.select import chosen
from ....specs.findings import InputError, did_you_mean

if TYPE_CHECKING:
    from ..context import TrainingContext


def freeze(model: nn.Module, context: TrainingContext) -> None:
    """Freeze the weights of the parts that a run selects, and log their number.

    Raises:
        InputError: a selection is wrong, or selects nothing.
    """
    names = frozen_weights(model, context.graph, context.freeze, context.train)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    shared = {id(parameters[name]) for name in names}
    for parameter in parameters.values():
        if id(parameter) in shared:
            parameter.requires_grad = False
    if names:
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        context.listener.log(f"frozen: {len(names)} weights; {trained:,} parameters train")


def frozen_weights(
    model: nn.Module, graph: Graph, freeze: Iterable[str], train: Iterable[str] = ()
) -> set[str]:
    """Return the paths of the weights that a run freezes.

    Args:
        model: the module of the graph.
        graph: graph of an objective.
        freeze: selections of parts.
        train: patterns of weights in these parts that train nevertheless, also under the other
            paths of a tied weight.

    Raises:
        InputError: a selection is wrong, or selects nothing.
    """
    parts = [
        path
        for number, text in enumerate(freeze)
        for path in chosen(graph, text, place=f"/freeze/{number}")
    ]
    inside = tuple(f"{path}." for path in parts)
    every = {name: id(one) for name, one in model.named_parameters(remove_duplicate=False)}
    frozen = {name for name in every if name.startswith(inside)} if inside else set[str]()
    for number, pattern in enumerate(train):
        kept = set(fnmatch.filter(frozen, pattern))
        if not kept:
            raise InputError(
                f"the pattern '{pattern}' names no frozen weight",
                place=f"/train/{number}",
                help=did_you_mean(pattern, frozen) or "write a pattern such as '*.lora_a'",
            )
        trained = {every[name] for name in kept}
        frozen -= {name for name in frozen if every[name] in trained}
    return frozen
