"""History of a run's metrics, as JSON lines and in trackers."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..distributed.sampler import MicroBatches
from .trackers.group import Trackers

FILE = "metrics.jsonl"


class History:
    """Writes each event once to `metrics.jsonl` and to the trackers."""

    def __init__(
        self, folder: Path | None, *, update: int, trackers: Trackers | None = None
    ) -> None:
        """Open the history; drop events after `update`.

        Args:
            folder: folder of the run; None writes nothing.
            update: update of the checkpoint that training resumes from; 0 for a new run.
            trackers: receive each event too.
        """
        self.path: Path | None = None
        self.trackers = trackers
        if folder is None:
            return
        self.path = folder / FILE
        events = [event for event in read(self.path) if event["update"] <= update]
        text = "".join(json.dumps(event) + "\n" for event in events)
        partial = self.path.with_suffix(".partial")
        partial.write_text(text)
        partial.replace(self.path)
        self._file = self.path.open("a")

    def write(self, **event: Any) -> None:
        """Append one event, which must have the keys `type` and `update`."""
        if self.path is None:
            return
        self._file.write(json.dumps(event) + "\n")
        self._file.flush()
        if self.trackers is not None:
            self.trackers.event(event)

    def close(self) -> None:
        """Close both files."""
        if self.path is None:
            return
        self._file.close()
        if self.trackers is not None:
            self.trackers.close()


def read(path: Path) -> list[dict[str, Any]]:
    """Return the events of a history file; skip invalid lines, such as a cut-off last one."""
    if not path.is_file():
        return []
    events = []
    for line in path.read_text().split("\n"):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("update"), int):
            events.append(event)
    return events


@dataclass(slots=True)
class Window:
    """Metrics accumulated since the last report."""

    sums: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    """Loss, nll, auxiliary loss and further values per item, summed over updates; on the device of
    the first update."""
    updates: int = 0
    tokens: int = 0
    """Positions on all time axes."""
    target_tokens: int = 0
    waited: float = 0.0
    """Seconds spent waiting for the next batches."""
    since: float = field(default_factory=time.monotonic)
    """Start of the window, by `time.monotonic`; moved forward by the time of validations."""

    def add(self, sums: Tensor, micro_batches: MicroBatches) -> None:
        """Add one update.

        Args:
            sums: loss, nll, auxiliary loss and further values per item.
            micro_batches: batches of the update, for their token counts.
        """
        self.sums = self.sums.to(sums.device, non_blocking=True) + sums
        self.updates += 1
        self.tokens += sum(micro_batches.tokens.values())
        self.target_tokens += micro_batches.target_tokens
