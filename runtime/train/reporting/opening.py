"""What a training reports when it opens: its data, and its trackers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...data.settings import Settings
from .trackers.group import Trackers, Warn
from .trackers.tracker import TrackedRun, TrackerSettings


def opener(
    settings: Sequence[TrackerSettings], run: Settings, name: str, folder: Path, warn: Warn
) -> Callable[[int], Trackers]:
    """Return a function that opens the trackers of a run, given the update that it starts from.

    Args:
        settings: the trackers.
        run: settings of the run, which are logged.
        name: name of the run.
        folder: its folder.
        warn: called once for each tracker that fails.
    """

    def opened(update: int) -> Trackers:
        written = run.model_dump(mode="json", by_alias=True)
        tracked = TrackedRun(name=name, folder=folder, settings=written, update=update)
        return Trackers(settings, tracked, warn)

    return opened


def counted(split: str, report: Mapping[str, Any], what: str) -> str:
    """Return a log line with the size of a split, and the dropped examples by reason.

    Args:
        split: name of the split.
        report: report of its preparation.
        what: what the split consists of, such as `pairs`.
    """
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in report["dropped"].items())
    return f"{split}: {report['kept']:,} {what}" + (f"; dropped {dropped}" if dropped else "")
