"""History of a run's metrics, as JSON lines and TensorBoard events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = "metrics.jsonl"


class History:
    """Writes each event once to `metrics.jsonl` and to TensorBoard."""

    def __init__(self, folder: Path | None, *, update: int) -> None:
        """Open the history; drop events after `update`.

        Args:
            folder: folder of the run; None writes nothing.
            update: update of the checkpoint that training resumes from; 0 for a new run.
        """
        self.path: Path | None = None
        if folder is None:
            return
        self.path = folder / FILE
        kept = [event for event in read(self.path) if event["update"] <= update]
        text = "".join(json.dumps(event) + "\n" for event in kept)
        partial = self.path.with_suffix(".partial")
        partial.write_text(text)
        partial.replace(self.path)
        self._file = self.path.open("a")
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - slow to load

        self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=update + 1)

    def write(self, **event: Any) -> None:
        """Append one event, which must have the keys `type` and `update`."""
        if self.path is None:
            return
        self._file.write(json.dumps(event) + "\n")
        self._file.flush()
        for name, value in event.items():
            if isinstance(value, int | float) and name != "update":
                self._board.add_scalar(f"{event['type']}/{name}", value, event["update"])

    def close(self) -> None:
        """Close both files."""
        if self.path is None:
            return
        self._file.close()
        self._board.close()


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
