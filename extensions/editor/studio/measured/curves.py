"""Curves of a run: its losses, validation metrics and learning rate, as few points."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

MOST_POINTS = 600
"""Maximum number of points of a curve; more are replaced by means of neighbors."""
_OTHERS = frozenset({"update", "epoch", "seconds"})
"""Numbers of an event that are not drawn as curves."""


def curves(checkpoint: Path) -> dict[str, Any]:
    """Return the curves of the run that wrote a checkpoint.

    Args:
        checkpoint: the folder of the checkpoint.

    Returns:
        `update`, that of the checkpoint; `train` and `valid`, each a name to the updates and the
        values of a curve; `best`, the metric that selects the best checkpoint, or an empty text.
    """
    # The package of training needs torch.
    from .....runtime.train.reporting.history import FILE, read  # noqa: PLC0415

    events = read(checkpoint / FILE)
    run_events = events
    for folder in checkpoint.absolute().parents[:2]:
        later_events = read(folder / FILE)
        if events and later_events[: len(events)] == events:
            run_events = later_events  # the run went on after this checkpoint
            break
    return {
        "update": events[-1]["update"] if events else 0,
        "train": series(run_events, "train"),
        "valid": series(run_events, "valid"),
        "best": _best(checkpoint),
    }


def series(events: Sequence[Mapping[str, Any]], kind: str) -> dict[str, list[list[float]]]:
    """Return the curves of one type of event: name to updates and values.

    Of two events of an update, as after a run was resumed, the later one counts. Values that are
    not finite are left out.
    """
    newest = {event["update"]: event for event in events if event.get("type") == kind}
    points: dict[str, list[list[float]]] = {}
    for update, event in sorted(newest.items()):
        for name, value in event.items():
            if name in _OTHERS or isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if isfinite(value):
                updates, values = points.setdefault(name, [[], []])
                updates.append(update)
                values.append(value)
    return {
        name: [_thinned(updates), _thinned(values)] for name, (updates, values) in points.items()
    }


def _thinned(values: Sequence[float]) -> list[float]:
    """Return at most `MOST_POINTS` means of neighbors."""
    size = -(-len(values) // MOST_POINTS)
    if size <= 1:
        return [*values]
    parts = [values[start : start + size] for start in range(0, len(values), size)]
    return [sum(part) / len(part) for part in parts]


def _best(checkpoint: Path) -> str:
    try:
        best = json.loads((checkpoint / "run.json").read_text())["evaluate"]["best"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return str(best.get("type", "") if isinstance(best, dict) else best)
