"""Checkpoints of objectives as checkpoints of the model that is deployed.

A checkpoint that can be resumed has the weights of the whole objective; what training leaves behind
is its model, without losses, teachers and noise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ...graphs.ir.block_type import BlockType
from ...graphs.passes.objective import deployed_graph
from .checkpoint import Checkpoint, open_checkpoint
from .saving import weights_of_deployed


def open_deployed(
    folder: Path | str, blocks: Iterable[BlockType] = (), *, verify: bool = True
) -> Checkpoint:
    """Open a checkpoint folder; one of an objective as that of its deployed model.

    Args:
        folder: the folder.
        blocks: block types that its spec uses besides the installed ones.
        verify: whether to compare the files with the manifest.

    Raises:
        InputError: as of `open_checkpoint`.
        SpecError: its spec is invalid.
    """
    return deployed(open_checkpoint(folder, blocks, verify=verify))


def deployed(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint of the model that an objective deploys; others are not changed."""
    graph = checkpoint.graph
    if graph.deploy is not None:
        weights = weights_of_deployed(graph, checkpoint.weights)
        return replace(checkpoint, graph=deployed_graph(graph), weights=weights, objective=graph)
    return checkpoint
