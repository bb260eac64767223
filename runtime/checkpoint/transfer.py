"""Adapt: the weights of a checkpoint in the model of another spec, as far as they go.

What both have by path and shape is copied, renamed nodes included; the rest is drawn
anew.  Which is which is in the `WeightTransfer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from ...graphs.diff.diff import diff
from ...graphs.diff.weight_transfer import WeightTransfer
from ...graphs.ir.canonical import fingerprint
from ...graphs.ir.graph import Graph
from ..codegen.build import build
from .checkpoint import Checkpoint, weights_of

if TYPE_CHECKING:
    from torch import Tensor, nn


def carry_over(
    model: nn.Module, weights: Mapping[str, Tensor], old: Graph, new: Graph
) -> WeightTransfer:
    """Copy the weights of a graph into the model of another, as far as they fit.

    Args:
        model: was built from `new`; what is not carried stays as it is.
        weights: those of `old`, each once.
        old: the graph that has the weights.
        new: the graph that wants them.

    Returns:
        Which weights were carried, from where, and which not.
    """
    found = diff(old, new).weight_transfer
    parameters = model.state_dict()
    with torch.no_grad():
        for path, source in found.sources.items():
            parameters[path].copy_(weights[source])
    return found


def adapted(held: Checkpoint, graph: Graph, seed: int) -> tuple[Checkpoint, WeightTransfer]:
    """Return a checkpoint of another graph with the weights that it can have.

    Args:
        held: has the weights; it is not changed.
        graph: wants them.
        seed: decides the weights that are drawn anew, together with their paths.
    """
    model = build(graph, seed=seed)
    weight_transfer = carry_over(model, held.weights, held.graph, graph)
    begun = {"adapted_from": fingerprint(held.graph), "update": 0}
    run = {key: value for key, value in held.run.items() if key not in ("spec", "params")}
    weights = {path: tensor.clone() for path, tensor in weights_of(model, graph).items()}
    made = replace(held, graph=graph, weights=weights, run=run, state=begun)
    return made, weight_transfer
