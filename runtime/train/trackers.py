"""Trackers: services and folders that show the values, texts and pictures of a run.

The settings of a tracker are a class whose fields appear in a run file; `open` returns the tracker.
The history in `metrics.jsonl` does not depend on trackers.
To register one, add a line to `SHIPPED`; installed packages add theirs through the entry-point
group `weft.trackers`, and a run can never name code.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import shutil
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from ...specs.escaping import html_text
from ...specs.findings import InputError
from ..system.plugins import Named, Plugins


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
        return _TrackioRun(opened)


class _TrackioRun:
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
        return _WandbRun(opened)


class _WandbRun:
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

        self._run.log({name: wandb.Html(f"<pre>{html_text(text)}</pre>"), "update": update})

    def image(self, name: str, path: Path, update: int) -> None:
        """Log a PNG file."""
        import wandb

        self._run.log({name: wandb.Image(str(path)), "update": update})

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


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
                return _MlflowRun(client, runs[0].info.run_id)
        created = client.create_run(experiment, tags={_FOLDER: folder}, run_name=run.name)
        params = [Param(key, value) for key, value in _flat(run.settings).items()]
        for start in range(0, len(params), _AT_ONCE):
            client.log_batch(created.info.run_id, params=params[start : start + _AT_ONCE])
        return _MlflowRun(client, created.info.run_id)


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


class _MlflowRun:
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


Warn = Callable[[str], None]


class Trackers:
    """Logs to every tracker of a run."""

    def __init__(self, settings: Sequence[TrackerSettings], run: TrackedRun, warn: Warn) -> None:
        """Open the trackers.

        Args:
            settings: the trackers.
            run: the run that is tracked.
            warn: called once for each tracker that fails.
        """
        self._warn = warn
        self._open: dict[int, tuple[str, Tracker]] = {}
        self._warned: set[int] = set()
        for number, tracker in enumerate(settings):
            self._guarded(number, tracker.type, self._opening(number, tracker, run))

    def _opening(
        self, number: int, tracker: TrackerSettings, run: TrackedRun
    ) -> Callable[[], None]:
        def opening() -> None:
            self._open[number] = tracker.type, tracker.open(run)

        return opening

    def _guarded(self, number: int, name: str, act: Callable[[], None]) -> None:
        """Call a tracker; warn if this is its first error."""
        try:
            act()
        except Exception as error:  # noqa: BLE001 - whatever a service does, training continues
            if number not in self._warned:
                self._warned.add(number)
                text = str(error).partition("\n")[0]
                self._warn(
                    f"the tracker '{name}' failed, and may lack values from now on: "
                    f"{type(error).__name__}: {text:.200}"
                )

    def _each(self, act: Callable[[Tracker], None]) -> None:
        for number, (name, tracker) in list(self._open.items()):
            self._guarded(number, name, lambda tracker=tracker: act(tracker))  # type: ignore[misc]

    def log(self, values: Mapping[str, float], update: int) -> None:
        """Log numbers by name, such as `valid/nll`."""
        if values:
            self._each(lambda tracker: tracker.log(values, update))

    def event(self, event: Mapping[str, object]) -> None:
        """Log the numbers of an event of the history as `TYPE/NAME`.

        Args:
            event: has the keys `type` and `update`, as `History.write` takes it.
        """
        numbers = {
            f"{event['type']}/{name}": value
            for name, value in event.items()
            if isinstance(value, int | float) and name != "update"
        }
        self.log(numbers, int(str(event["update"])))

    def text(self, name: str, text: str, update: int) -> None:
        """Log a text."""
        self._each(lambda tracker: tracker.text(name, text, update))

    @property
    def take_images(self) -> bool:
        """Whether a tracker takes images; one of a plug-in may lack the method."""
        return any(hasattr(tracker, "image") for _, tracker in self._open.values())

    def image(self, name: str, path: Path, update: int) -> None:
        """Log a PNG file to the trackers that take images."""
        self._each(lambda t: t.image(name, path, update) if hasattr(t, "image") else None)

    def close(self) -> None:
        """Close every tracker."""
        self._each(lambda tracker: tracker.close())
        self._open.clear()


SHIPPED = {
    "tensorboard": ".trackers:TensorBoard",
    "trackio": ".trackers:Trackio",
    "wandb": ".trackers:WeightsAndBiases",
    "mlflow": ".trackers:MLflow",
}
"""Name of a shipped tracker to `file:Class`, relative to this folder."""

TRACKERS: Plugins[TrackerSettings] = Plugins(
    "tracker",
    "weft.trackers",
    TrackerSettings,  # type: ignore[type-abstract]  # plug-ins are subclasses of it
    SHIPPED,
    __package__,
)
"""All trackers; `TRACKERS.parse("tensorboard", place)` returns the settings of one."""
