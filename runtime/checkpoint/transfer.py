"""Weight transfer: loads the weights of a checkpoint into the model of another spec.

Weights with equal paths and shapes are copied, also between renamed nodes; all others are
newly initialized.  A `WeightTransfer` lists both.
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
from .checkpoint import Checkpoint
from .saving import weights_of

if TYPE_CHECKING:
    from torch import Tensor, nn


def carry_over(
    model: nn.Module, weights: Mapping[str, Tensor], old: Graph, new: Graph
) -> WeightTransfer:
    """Copy the weights of one graph into the model of another where they fit.

    Args:
        model: model built from `new`; its other weights are not changed.
        weights: weights of `old`, each once.
        old: source graph.
        new: target graph.

    Returns:
        Which weights were carried over, from where, and which were not.
    """
    transfer = diff(old, new).weight_transfer
    parameters = model.state_dict()
    with torch.no_grad():
        for path, source in transfer.sources.items():
            parameters[path].copy_(weights[source])
    return transfer


def adapted(checkpoint: Checkpoint, graph: Graph, seed: int) -> tuple[Checkpoint, WeightTransfer]:
    """Return a checkpoint of another graph, with the weights that fit it.

    Args:
        checkpoint: checkpoint with the weights; not changed.
        graph: target graph.
        seed: determines the newly initialized weights, together with their paths.
    """
    model = build(graph, seed=seed)
    weight_transfer = carry_over(model, checkpoint.weights, checkpoint.graph, graph)
    state = {"adapted_from": fingerprint(checkpoint.graph), "update": 0}
    run = {key: value for key, value in checkpoint.run.items() if key not in ("spec", "params")}
    weights = {path: tensor.clone() for path, tensor in weights_of(model, graph).items()}
    adapted_checkpoint = replace(checkpoint, graph=graph, weights=weights, run=run, state=state)
    return adapted_checkpoint, weight_transfer
