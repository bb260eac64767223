"""Checkpoints of objectives as checkpoints of the model that is deployed.

A checkpoint that can be resumed has the weights of the whole objective; what training leaves behind
is its model, without losses, teachers and noise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ...graphs.ir.block_type import BlockType
from ...graphs.ir.canonical import canonical
from ...graphs.ir.graph import Graph
from ...graphs.passes.objective import deployed_graph
from ...specs.findings import InputError, SpecError
from ...specs.reader import shipped_names
from ..data.columns.objective import objective_graph
from ..data.columns.registry import columns_of
from ..data.columns.settings import AnyColumn
from .checkpoint import Checkpoint, open_checkpoint
from .saving import weights_of_deployed
from .tokenizers import vocabularies_in

_COLUMNS: TypeAdapter[dict[str, AnyColumn]] = TypeAdapter(dict[str, AnyColumn])


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
    if checkpoint.run and checkpoint.objective is None:
        return replace(checkpoint, objective=_of_its_task(checkpoint))
    return checkpoint


def _of_its_task(checkpoint: Checkpoint) -> Graph | None:
    """Return the objective of a checkpoint from a run of format 2, which stored none.

    Its run was upgraded, so it names the shipped objective of its task; None if the model does not
    fit that.
    """
    run: dict[str, Any] = dict(checkpoint.run)
    file = shipped_names("objectives").get(str(run.get("objective")))
    if file is None:
        return None
    params = {**run.get("params", {}), "model": {"spec": canonical(checkpoint.graph)}}
    try:
        columns = _COLUMNS.validate_python(run["data"]["columns"])
        made = columns_of(columns, vocabularies_in(checkpoint), checkpoint.tokenizers)
        return objective_graph(str(file), params, made, checkpoint.graph.blocks)
    except (InputError, SpecError, ValidationError, KeyError, TypeError):
        return None
