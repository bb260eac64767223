"""Trackers: what is logged, and that a failing one does not stop the training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
from matplotlib.figure import Figure
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from weft.runtime.train.trackers import TRACKERS, TrackedRun, Tracker, Trackers, TrackerSettings
from weft.runtime.train.validation import sample_table

LOGGED: list[tuple[Any, ...]] = []


class Fake(TrackerSettings):
    """Tracker that stores what is logged, or fails."""

    type: Literal["fake"] = "fake"
    fails: bool = False

    def open(self, run: TrackedRun) -> Tracker:
        """Return the tracker."""
        del run
        return _Fake(fails=self.fails)


class _Fake:
    def __init__(self, *, fails: bool) -> None:
        self.fails = fails

    def log(self, values: Mapping[str, float], update: int) -> None:
        if self.fails:
            msg = "no network"
            raise OSError(msg)
        LOGGED.append((dict(values), update))

    def text(self, name: str, text: str, update: int) -> None:
        LOGGED.append((name, text, update))

    def image(self, name: str, path: Path, update: int) -> None:
        LOGGED.append((name, path, update))

    def close(self) -> None:
        LOGGED.append(("close",))


def test_a_failing_tracker_is_reported_once(tmp_path: Path) -> None:
    """The other tracker receives every value."""
    LOGGED.clear()
    warnings: list[str] = []
    run = TrackedRun(name="run", folder=tmp_path)
    trackers = Trackers([Fake(fails=True), Fake()], run, warnings.append)

    trackers.event({"type": "valid", "update": 5, "nll": 1.5, "signature": "x"})
    trackers.event({"type": "valid", "update": 6, "nll": 1.0})

    assert LOGGED == [({"valid/nll": 1.5}, 5), ({"valid/nll": 1.0}, 6)]
    assert len(warnings) == 1
    assert "the tracker 'fake' failed" in warnings[0]
    assert "no network" in warnings[0]


def test_tensorboard_shows_values_texts_and_pictures(tmp_path: Path) -> None:
    """Read back from the event file."""
    Figure(figsize=(1, 1)).savefig(tmp_path / "one.png")
    run = TrackedRun(name="run", folder=tmp_path)
    warnings: list[str] = []
    trackers = Trackers([TRACKERS.parse("tensorboard", "")], run, warnings.append)
    trackers.event({"type": "valid", "update": 5, "nll": 1.5})
    trackers.text("samples", "a\n  b", 5)
    trackers.image("attention", tmp_path / "one.png", 5)
    trackers.close()

    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert warnings == []
    assert [(one.step, one.value) for one in events.Scalars("valid/nll")] == [(5, 1.5)]
    assert [one.step for one in events.Images("attention")] == [5]
    assert events.Tags()["tensors"] == ["samples/text_summary"]


def test_a_table_shows_predictions_with_references() -> None:
    """One value on each line."""
    rows = [{"source": "ein Hund", "target": "a dog"}, {"source": "x", "target": "y"}]

    assert sample_table(rows, ["the dog", "z"], "target", most=1) == (
        "[1]\n  source     ein Hund\n  predicted  the dog\n  reference  a dog"
    )


@pytest.mark.parametrize("name", ["trackio", "wandb", "mlflow"])
def test_settings_need_no_installed_package(name: str) -> None:
    """A run is checked on another machine than the one that trains."""
    assert TRACKERS.parse(name, "").type == name
