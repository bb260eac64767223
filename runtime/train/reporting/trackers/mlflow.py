"""MLflow; the server is that of `uri` or of the environment variable MLFLOW_TRACKING_URI."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from .tracker import TrackedRun, Tracker, TrackerSettings

_FOLDER = "weft.folder"
"""Tag with the folder of the run, by which a resumed run is found."""
_LONGEST = 500
"""Maximum characters of a param."""
_AT_ONCE = 100
"""Maximum params of one request."""


class MLflow(TrackerSettings):
    """A run of MLflow."""

    extra: ClassVar[str] = "mlflow"

    type: Literal["mlflow"] = "mlflow"
    experiment: str = "weft"
    """Experiment that shows the run."""
    uri: str | None = None
    """Server or store, such as `sqlite:///mlflow.db`; `null` follows MLFLOW_TRACKING_URI."""

    def open(self, run: TrackedRun) -> Tracker:
        """Return an open tracker; a resumed run continues the run of the same folder."""
        from mlflow import MlflowClient
        from mlflow.entities import Param

        client = MlflowClient(tracking_uri=self.uri)
        existing = client.get_experiment_by_name(self.experiment)
        experiment = (
            client.create_experiment(self.experiment)
            if existing is None
            else existing.experiment_id
        )
        folder = str(run.folder.resolve())
        if run.update:
            quoted = folder.replace("'", "\\'")
            runs = client.search_runs([experiment], f"tags.`{_FOLDER}` = '{quoted}'")
            if runs:
                client.update_run(runs[0].info.run_id, status="RUNNING")
                return _Run(client, runs[0].info.run_id)
        created = client.create_run(experiment, tags={_FOLDER: folder}, run_name=run.name)
        params = [Param(key, value) for key, value in _flat(run.settings).items()]
        for start in range(0, len(params), _AT_ONCE):
            client.log_batch(created.info.run_id, params=params[start : start + _AT_ONCE])
        return _Run(client, created.info.run_id)


def _flat(settings: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """Return settings as text by dotted path."""
    flattened: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flattened |= _flat(value, f"{above}{_plain(key)}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            flattened[f"{above}{_plain(key)}"] = text[:_LONGEST]
    return flattened


def _plain(name: str) -> str:
    """Return a name with only the characters that MLflow permits."""
    return re.sub(r"[^\w./ -]", "_", name)


class _Run:
    """Logs to a run."""

    def __init__(self, client: Any, run: str) -> None:
        self._client, self._run = client, run

    def log(self, values: Mapping[str, float], update: int) -> None:
        """Log numbers by name."""
        from mlflow.entities import Metric

        metrics = [Metric(_plain(name), value, 0, update) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def text(self, name: str, text: str, update: int) -> None:
        """Log a text as a file."""
        self._client.log_text(self._run, text, f"{_plain(name)}/{update:08d}.txt")

    def image(self, name: str, path: Path, update: int) -> None:
        """Log a PNG file."""
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / f"{update:08d}.png"
            shutil.copyfile(path, copy)
            self._client.log_artifact(self._run, str(copy), _plain(name))

    def close(self) -> None:
        """Finish the run."""
        self._client.set_terminated(self._run)
