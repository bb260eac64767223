"""Open a checkpoint folder as a `Model`, and combine models to an ensemble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...specs.findings import InputError
from ..checkpoint.checkpoint import open_checkpoint
from ..checkpoint.tokenizers import tokenizers_of
from ..compile.decode_compile import use_steps
from ..decode.settings import search_settings
from ..tasks.registry import task_of
from .model import Model

if TYPE_CHECKING:
    from ..checkpoint.checkpoint import Checkpoint
    from ..compile.decode_compile import Steps
    from ..decode.settings import SearchSettings
    from ..tasks.translation import Translation


def open_model(
    folder: Path | str,
    *,
    search: Mapping[str, Any] | None = None,
    device: str = "cpu",
    precision: str = "float32",
    steps: Steps | None = None,
) -> Model:
    """Open a checkpoint folder, which is self-contained.

    Args:
        folder: a checkpoint folder, such as `outputs/demo/averaged`.
        search: overrides of the run's search settings, such as `{"beam": 5}`.
        device: device of the model.
        precision: `float32` or `bfloat16`.
        steps: how decoding steps are run; default: not compiled.

    Raises:
        InputError: the checkpoint is incomplete, or its tokenizer does not match the model.
    """
    checkpoint = open_checkpoint(folder)
    settings = search_settings({**checkpoint.run.get("search", {}), **(search or {})})
    model = ready(checkpoint, settings, device, half=precision == "bfloat16")
    if steps is not None:
        use_steps(model.module, steps)
    return model


def ready(checkpoint: Checkpoint, search: SearchSettings, device: str, *, half: bool) -> Model:
    """Build the module of a checkpoint and return its model."""
    task = _task_of(checkpoint)
    return Model(checkpoint, checkpoint.build(device), search, half, task)


def _task_of(checkpoint: Checkpoint) -> Translation | None:
    """Return the task of a checkpoint; None if it reads and writes only ids.

    Raises:
        InputError: it needs a tokenizer that is missing or does not match the model.
    """
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


def ensemble(first: Model, others: Sequence[Model]) -> Model:
    """Return a model that translates with the mean of several models' probabilities.

    Its graph, weights and settings are those of the first model.

    Raises:
        InputError: the models have different tokenizers.
    """
    for other in others:
        if other.checkpoint.tokenizers != first.checkpoint.tokenizers:
            raise InputError(
                "the tokenizer differs from that of the ensemble's first model",
                place=str(other.checkpoint.folder),
                help="train the models on data prepared with one tokenizer",
            )
    return replace(first, others=tuple(other.module for other in others))
