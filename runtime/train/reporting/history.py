"""History: what a run measured, as lines of JSON and for TensorBoard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = "metrics.jsonl"


class History:
    """Writes each event once to `metrics.jsonl` and to TensorBoard."""

    def __init__(self, folder: Path | None, *, update: int) -> None:
        """Go on after an update; what was written past it is dropped.

        Args:
            folder: the run's; None writes nothing.
            update: the newest update that the checkpoint holds; 0 starts anew.
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
        """Add one event; it has a `type` and an `update`."""
        if self.path is None:
            return
        self._file.write(json.dumps(event) + "\n")
        self._file.flush()
        for name, value in event.items():
            if isinstance(value, int | float) and name != "update":
                self._board.add_scalar(f"{event['type']}/{name}", value, event["update"])

    def close(self) -> None:
        """Finish both files."""
        if self.path is None:
            return
        self._file.close()
        self._board.close()


def read(path: Path) -> list[dict[str, Any]]:
    """Return the events of a history; a last line that is cut off is left out."""
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
