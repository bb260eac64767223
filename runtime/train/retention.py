"""Keeping: the checkpoints of a run's folder: which there are, which stay, their mean."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..checkpoint.average import average_weights
from ..checkpoint.checkpoint import Contents, save, tensors_in
from .run import CheckpointSettings


def checkpoints(folder: Path) -> list[Path]:
    """Return a run's checkpoints, oldest first."""
    found = (folder / "checkpoints").glob("[0-9]*")
    return sorted((path for path in found if path.is_dir()), key=lambda path: int(path.name))


def thin(folder: Path, settings: CheckpointSettings) -> None:
    """Drop checkpoints, and what the optimizer remembered, that nothing needs any more."""
    all_ = checkpoints(folder)
    every = settings.every
    regular = [path for path in all_ if int(path.name) % every == 0 or path == all_[-1]]
    kept = regular[-max(settings.keep, settings.average) :]
    for path in all_:
        if path not in kept:
            _remove(path)
        elif path != all_[-1]:
            (path / "optimizer.safetensors").unlink(missing_ok=True)
            shutil.rmtree(path / "optimizer", ignore_errors=True)


def write_mean(folder: Path, settings: CheckpointSettings, contents: Contents) -> Path | None:
    """Write the mean of the newest checkpoints as a checkpoint, where a run wants one.

    Args:
        folder: the run's.
        settings: how many.
        contents: what goes into it beside weights.
    """
    newest = checkpoints(folder)
    if not settings.average or not newest:
        return None
    last = newest[-settings.average :]
    mean = average_weights([tensors_in(path, "weights") for path in last])
    state = {**contents.state, "averaged": [path.name for path in last]}
    return save(folder / "averaged", replace(contents, weights=mean, state=state, optimizer=None))


def differs(now: Any, before: Any) -> bool:
    """Say whether settings differ; one that an older version did not have yet does not."""
    if isinstance(now, dict) and isinstance(before, Mapping):
        return any(key in before and differs(value, before[key]) for key, value in now.items())
    return bool(now != before)


def _remove(folder: Path) -> None:
    """Remove a checkpoint so that it never looks like a whole one on the way."""
    hidden = folder.with_name(f".{folder.name}.old")
    folder.rename(hidden)
    shutil.rmtree(hidden)
