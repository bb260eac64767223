"""TensorBoard: event files in the folder `tensorboard` of the run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from .tracker import TrackedRun, Tracker, TrackerSettings

FOLDER = "tensorboard"


class TensorBoard(TrackerSettings):
    """Event files for TensorBoard."""

    type: Literal["tensorboard"] = "tensorboard"

    def open(self, run: TrackedRun) -> Tracker:
        """Return an open tracker."""
        from torch.utils.tensorboard import SummaryWriter

        return _Board(SummaryWriter(str(run.folder / FOLDER), purge_step=run.update + 1))


class _Board:
    """Writes event files."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def log(self, values: Mapping[str, float], update: int) -> None:
        """Log numbers by name."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, update)

    def text(self, name: str, text: str, update: int) -> None:
        """Log a text; TensorBoard reads it as Markdown."""
        indented = "".join(f"    {line}\n" for line in text.splitlines())
        self._writer.add_text(name, indented, update)

    def image(self, name: str, path: Path, update: int) -> None:
        """Log a PNG file."""
        from matplotlib.image import imread

        self._writer.add_image(name, imread(str(path))[..., :3], update, dataformats="HWC")

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()
