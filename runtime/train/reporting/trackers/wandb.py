"""Weights & Biases; offline with the environment variable WANDB_MODE=offline."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Literal

from .tracker import TrackedRun, Tracker, TrackerSettings


class WeightsAndBiases(TrackerSettings):
    """A run of Weights & Biases; the files are in the folder `wandb` of the run."""

    extra: ClassVar[str] = "wandb"

    type: Literal["wandb"] = "wandb"
    project: str = "weft"
    """Project that shows the run."""
    entity: str | None = None
    """User or team; `null` is the default of the account."""
    mode: Literal["online", "offline"] | None = None
    """Whether to upload; `null` follows WANDB_MODE, whose default is `online`."""

    def open(self, run: TrackedRun) -> Tracker:
        """Return an open tracker; a resumed run continues under the same id."""
        import wandb

        folder = str(run.folder.resolve())
        run_id = f"{run.name[:50]}-{hashlib.sha256(folder.encode()).hexdigest()[:10]}"
        opened = wandb.init(
            project=self.project,
            entity=self.entity,
            name=run.name,
            id=run_id.replace(".", "-"),
            resume="allow" if run.update else None,
            dir=str(run.folder),
            mode=self.mode,
            config=dict(run.settings),
        )
        return _Run(opened)


class _Run:
    """Logs to a run; the update is its own axis, because steps may not decrease after resuming."""

    def __init__(self, run: Any) -> None:
        self._run = run
        run.define_metric("update")
        run.define_metric("*", step_metric="update")

    def log(self, values: Mapping[str, float], update: int) -> None:
        """Log numbers by name."""
        self._run.log({**values, "update": update})

    def text(self, name: str, text: str, update: int) -> None:
        """Log a text."""
        import wandb

        self._run.log({name: wandb.Html(f"<pre>{escape(text)}</pre>"), "update": update})

    def image(self, name: str, path: Path, update: int) -> None:
        """Log a PNG file."""
        import wandb

        self._run.log({name: wandb.Image(str(path)), "update": update})

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()
