"""Rewrite a checkpoint in today's format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .checkpoint import Checkpoint
from .saving import Contents, save

if TYPE_CHECKING:
    from pathlib import Path


def migrated(checkpoint: Checkpoint, folder: Path) -> Path:
    """Write an open checkpoint of any format to a folder in the current format.

    The objective, the optimizer state, the state between segments and the metrics are copied if the
    checkpoint has them.

    Raises:
        InputError: the disk is full or the folder cannot be written.
    """
    before = checkpoint.folder
    metrics = before / "metrics.jsonl"
    contents = Contents(
        graph=checkpoint.graph,
        weights=checkpoint.weights,
        objective=checkpoint.objective,
        run=checkpoint.run,
        state=checkpoint.state,
        tokenizers=checkpoint.tokenizers,
        optimizer=checkpoint.optimizer() if checkpoint.can_resume else None,
        memory=checkpoint.memory(),
        metrics=metrics if metrics.is_file() else None,
    )
    return save(folder, contents)
