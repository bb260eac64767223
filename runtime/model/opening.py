"""Open a checkpoint folder as a `Model`, and combine models to an ensemble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...specs.findings import InputError
from ..checkpoint.checkpoint import open_checkpoint
from ..compile.decode_compile import use_steps
from ..decode.settings import search_settings
from .model import Model, ready

if TYPE_CHECKING:
    from ..compile.decode_compile import Steps


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
