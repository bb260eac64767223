"""Contract of a tracker: a service or folder that shows a run's values, texts and pictures.

The settings of a tracker are a class whose fields appear in a run file; `open` returns the tracker.
The history in `metrics.jsonl` does not depend on trackers.
"""

from __future__ import annotations

import importlib.util
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from .....specs.findings import InputError
from ....system.plugins import Named


class Tracker(Protocol):
    """An open tracker."""

    def log(self, values: Mapping[str, float], update: int) -> None:
        """Log numbers by name, such as `valid/nll`."""

    def text(self, name: str, text: str, update: int) -> None:
        """Log a text, such as a table of sample outputs; it is shown with a fixed-width font."""

    def image(self, name: str, path: Path, update: int) -> None:
        """Log a PNG file; a tracker without images leaves the method out."""

    def close(self) -> None:
        """Write what is pending, and close the tracker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """The run that is tracked."""

    name: str
    folder: Path
    """Folder of the run's outputs."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The run as JSON data."""
    update: int = 0
    """Update of the checkpoint that training resumes from; 0 for a new run."""


class TrackerSettings(Named):
    """Base class of the settings of a tracker."""

    short: ClassVar[str] = ""
    extra: ClassVar[str] = ""
    """Extra of weft that installs the tracker's package, which has the same name."""

    def check(self) -> None:
        """Raise if the tracker cannot be used here; called before anything is trained.

        Raises:
            InputError: its package is not installed.
        """
        if self.extra and importlib.util.find_spec(self.extra) is None:
            raise InputError(
                f"the tracker '{self.type}' needs the package '{self.extra}'",
                help=f"run pip install 'weft[{self.extra}]'",
            )

    @abstractmethod
    def open(self, run: TrackedRun) -> Tracker:
        """Return an open tracker, which continues that of a resumed run."""
