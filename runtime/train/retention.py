"""Retention of a run's checkpoints: list them, and delete old ones; no torch."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .run import CheckpointSettings

RESUMABLE = 2
"""Number of newest checkpoints that keep their optimizer state: if the newest one is damaged, the
run continues from the one before it."""


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoint folders of a run, oldest first; other folders are ignored."""
    paths = (folder / "checkpoints").glob("[0-9]*")
    mine = (path for path in paths if path.is_dir() and path.name.isdecimal())
    return sorted(mine, key=lambda path: int(path.name))


def thin(folder: Path, settings: CheckpointSettings) -> None:
    """Delete old checkpoints, and the optimizer state of all but the newest `RESUMABLE`."""
    all_ = checkpoints(folder)
    resumable = all_[-RESUMABLE:]
    retained = [
        *regular(all_, settings)[-max(settings.keep, 0 if settings.ema else settings.average) :],
        *resumable,
    ]
    for path in all_:
        if path not in retained:
            _remove(path)
        elif path not in resumable:
            (path / "optimizer.safetensors").unlink(missing_ok=True)
            shutil.rmtree(path / "optimizer", ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Remove the hidden folders that a killed process has left: unfinished or half deleted ones.

    Call it while no process writes checkpoints of the run, and after `recover`.
    """
    for parent, names in (
        (folder / "checkpoints", "[0-9]*"),
        (folder, "best"),
        (folder, "averaged"),
    ):
        for ending in ("partial", "old"):
            for path in parent.glob(f".{names}.{ending}"):
                shutil.rmtree(path, ignore_errors=True)


def regular(all_: list[Path], settings: CheckpointSettings) -> list[Path]:
    """Return the last checkpoint and those at multiples of `every`, without those by time."""
    return [path for path in all_ if int(path.name) % settings.every == 0 or path == all_[-1]]


def differs(now: Any, before: Any) -> bool:
    """Return whether settings differ; settings missing from `before` are ignored."""
    if isinstance(now, dict) and isinstance(before, Mapping):
        return any(key in before and differs(value, before[key]) for key, value in now.items())
    return bool(now != before)


def _remove(folder: Path) -> None:
    """Rename, then delete a checkpoint, so that a partial one never looks complete."""
    hidden = folder.with_name(f".{folder.name}.old")
    folder.rename(hidden)
    shutil.rmtree(hidden)
