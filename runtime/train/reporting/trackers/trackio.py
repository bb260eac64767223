"""Trackio: a local dashboard (`trackio show`), or one in a Hugging Face Space."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from .tracker import TrackedRun, Tracker, TrackerSettings


class Trackio(TrackerSettings):
    """A run of Trackio; local data are in the folder that TRACKIO_DIR names."""

    extra: ClassVar[str] = "trackio"

    type: Literal["trackio"] = "trackio"
    project: str = "weft"
    """Project that shows the run."""
    space: str | None = None
    """Hugging Face Space, `user/name`, that the values are sent to; `null` keeps them local."""

    def open(self, run: TrackedRun) -> Tracker:
        """Return an open tracker; a resumed run continues under the same name."""
        import trackio

        opened = trackio.init(
            project=self.project,
            name=run.name,
            space_id=self.space,
            config=dict(run.settings),
            resume="allow" if run.update else "never",
            embed=False,
        )
        return _Run(opened)


class _Run:
    """Logs to a run."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, values: Mapping[str, float], update: int) -> None:
        """Log numbers by name."""
        self._run.log(dict(values), step=update)

    def text(self, name: str, text: str, update: int) -> None:
        """Log a text."""
        import trackio

        self._run.log({name: trackio.Markdown(f"```\n{text}\n```")}, step=update)

    def image(self, name: str, path: Path, update: int) -> None:
        """Log a PNG file."""
        import trackio

        self._run.log({name: trackio.Image(str(path))}, step=update)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()
