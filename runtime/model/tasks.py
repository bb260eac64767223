"""The task of a checkpoint, which converts text for its model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...specs.load import LoadedSpec, load
from ..checkpoint.tokenizers import is_of_objective, tokenizers_of
from ..spec.check import graph_of
from ..tasks.registry import sizes_of, task_of
from ..tasks.translation import vocabulary_params

if TYPE_CHECKING:
    from ...graphs.ir.graph import Graph
    from ..checkpoint.checkpoint import Checkpoint
    from ..tasks.translation import Translation


def task_of_checkpoint(checkpoint: Checkpoint) -> Translation | None:
    """Return the task of a checkpoint; None if it reads and writes only ids.

    Raises:
        InputError: it needs a tokenizer that is missing or does not match the model.
    """
    if is_of_objective(checkpoint):
        return None
    inputs = checkpoint.graph.inputs
    parses = checkpoint.run.get("task") == "parsing"
    both = {"source", "target"} <= inputs.keys() and inputs["source"].kind == "ids"
    for_text = both or parses
    imported = "imported" in checkpoint.state and "tokenizer.model" not in checkpoint.tokenizers
    if not for_text or imported:
        return None
    task = task_of(checkpoint.run, *tokenizers_of(checkpoint))
    task.check(checkpoint.graph)
    return task


def graph_for_task(checkpoint: Checkpoint, spec: LoadedSpec | str | Path) -> Graph:
    """Return the graph of another spec with the vocabulary of a checkpoint, for the same task.

    Raises:
        InputError: the spec has another vocabulary, or does not fit the task.
        SpecError: the spec has errors; all of them are listed.
    """
    loaded = spec if isinstance(spec, LoadedSpec) else load(spec)
    tokenizers = tokenizers_of(checkpoint)
    sizes = sizes_of(checkpoint.run, *tokenizers)
    params = vocabulary_params(loaded.overrides, sizes, loaded.form.params)
    graph = graph_of(replace(loaded, overrides=params))
    task_of(checkpoint.run, *tokenizers).check(graph)
    return graph
