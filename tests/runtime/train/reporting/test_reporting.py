"""Curves and trackers of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
from matplotlib.figure import Figure
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from weft.runtime.train import history
from weft.runtime.train.history import plot_curves
from weft.runtime.train.trackers import TRACKERS, TrackedRun, Tracker, Trackers, TrackerSettings
from weft.runtime.train.validation import sample_table
from weft.specs.findings import InputError


def write(path: Path, *events: dict[str, object], rest: str = "") -> Path:
    """Write events as a run does, optionally with a cut-off last line."""
    path.write_text("".join(json.dumps(event) + "\n" for event in events) + rest)
    return path


def train(update: int, loss: float = 3.0) -> dict[str, object]:
    """Return a training event as the trainer writes it."""
    return {
        "type": "train",
        "update": update,
        "loss": loss,
        "nll": loss - 0.5,
        "rate": 1e-4 * update,
        "tokens_per_second": 1000.0,
    }


def valid(update: int, bleu: float | None = None) -> dict[str, object]:
    """Return a validation event as the trainer writes it."""
    return {"type": "valid", "update": update, "nll": 2.0, "perplexity": 7.4, "bleu": bleu}


@pytest.mark.integration
@pytest.mark.parametrize("bleu", [None, 12.5])
def test_a_run_becomes_a_png(tmp_path: Path, bleu: float | None) -> None:
    """Plots have training and validation curves, with or without BLEU."""
    metrics = write(tmp_path / "metrics.jsonl", train(1), train(2), valid(2, bleu), train(3))

    plot_curves(metrics, tmp_path / "curves.png")

    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.integration
@pytest.mark.parametrize("events", [[train(1)], [valid(1)]])
def test_a_single_event_is_enough(tmp_path: Path, events: list[dict[str, object]]) -> None:
    """A run that was stopped at once, or only evaluated, can be plotted without a warning."""
    plot_curves(write(tmp_path / "metrics.jsonl", *events), tmp_path / "curves.png")

    assert (tmp_path / "curves.png").stat().st_size > 0


@pytest.mark.integration
def test_a_cut_off_last_line_is_passed_over(tmp_path: Path) -> None:
    """A run that was killed while writing can be plotted."""
    metrics = write(tmp_path / "metrics.jsonl", train(1), train(2), rest='{"type": "tra')

    events = history._read(metrics)

    assert [event["update"] for event in events["train"]] == [1, 2]


@pytest.mark.integration
def test_another_broken_line_is_named(tmp_path: Path) -> None:
    """A cut-off line in the middle is an error with its line number."""
    metrics = write(tmp_path / "metrics.jsonl", train(1), rest='{"type": "tra\n{}\n')

    with pytest.raises(InputError, match=r"metrics\.jsonl:2"):
        plot_curves(metrics, tmp_path / "curves.png")


@pytest.mark.integration
def test_the_last_line_of_an_update_is_used(tmp_path: Path) -> None:
    """A run that resumed from an older checkpoint writes some updates again."""
    metrics = write(tmp_path / "metrics.jsonl", train(1), train(2, 9.0), train(3), train(2, 4.0))

    updates, losses = history._curve(history._read(metrics)["train"], "loss")

    assert (updates, losses) == ([1, 2, 3], [3.0, 4.0, 3.0])


@pytest.mark.integration
def test_the_running_mean_keeps_straight_lines() -> None:
    """The running mean is centered, so it does not lag behind a falling loss."""
    line = [100.0 - update for update in range(100)]

    assert history._smoothed(line) == pytest.approx(line)
    peak = [0.0] * 50 + [3.0] + [0.0] * 49
    assert history._smoothed(peak)[47:54] == pytest.approx([0.0, *[0.6] * 5, 0.0])


@pytest.mark.integration
@pytest.mark.parametrize("text", ["", '{"type": "other", "update": 1}\n'])
def test_a_run_without_reports_cannot_be_plotted(tmp_path: Path, text: str) -> None:
    """A run without a report has nothing to draw."""
    (tmp_path / "metrics.jsonl").write_text(text)

    with pytest.raises(InputError, match="nothing to draw"):
        plot_curves(tmp_path / "metrics.jsonl", tmp_path / "curves.png")


@pytest.mark.integration
def test_missing_metrics_are_reported(tmp_path: Path) -> None:
    """A folder without a run has no metrics file."""
    with pytest.raises(InputError, match="no metrics file"):
        plot_curves(tmp_path / "metrics.jsonl", tmp_path / "curves.png")


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
