"""Tests of the plots of a run's history."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from weft.runtime.train import history
from weft.runtime.train.history import plot_curves
from weft.specs.findings import InputError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration


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


@pytest.mark.parametrize("bleu", [None, 12.5])
def test_a_run_becomes_a_png(tmp_path: Path, bleu: float | None) -> None:
    """Plots have training and validation curves, with or without BLEU."""
    metrics = write(tmp_path / "metrics.jsonl", train(1), train(2), valid(2, bleu), train(3))

    plot_curves(metrics, tmp_path / "curves.png")

    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("events", [[train(1)], [valid(1)]])
def test_a_single_event_is_enough(tmp_path: Path, events: list[dict[str, object]]) -> None:
    """A run that was stopped at once, or only evaluated, can be plotted without a warning."""
    plot_curves(write(tmp_path / "metrics.jsonl", *events), tmp_path / "curves.png")

    assert (tmp_path / "curves.png").stat().st_size > 0


def test_a_cut_off_last_line_is_passed_over(tmp_path: Path) -> None:
    """A run that was killed while writing can be plotted."""
    metrics = write(tmp_path / "metrics.jsonl", train(1), train(2), rest='{"type": "tra')

    events = history._read(metrics)

    assert [event["update"] for event in events["train"]] == [1, 2]


def test_another_broken_line_is_named(tmp_path: Path) -> None:
    """A cut-off line in the middle is an error with its line number."""
    metrics = write(tmp_path / "metrics.jsonl", train(1), rest='{"type": "tra\n{}\n')

    with pytest.raises(InputError, match=r"metrics\.jsonl:2"):
        plot_curves(metrics, tmp_path / "curves.png")


def test_the_last_line_of_an_update_is_used(tmp_path: Path) -> None:
    """A run that resumed from an older checkpoint writes some updates again."""
    metrics = write(tmp_path / "metrics.jsonl", train(1), train(2, 9.0), train(3), train(2, 4.0))

    updates, losses = history._curve(history._read(metrics)["train"], "loss")

    assert (updates, losses) == ([1, 2, 3], [3.0, 4.0, 3.0])


def test_the_running_mean_keeps_straight_lines() -> None:
    """The running mean is centered, so it does not lag behind a falling loss."""
    line = [100.0 - update for update in range(100)]

    assert history._smoothed(line) == pytest.approx(line)
    peak = [0.0] * 50 + [3.0] + [0.0] * 49
    assert history._smoothed(peak)[47:54] == pytest.approx([0.0, *[0.6] * 5, 0.0])


@pytest.mark.parametrize("text", ["", '{"type": "other", "update": 1}\n'])
def test_a_run_without_reports_cannot_be_plotted(tmp_path: Path, text: str) -> None:
    """A run without a report has nothing to draw."""
    (tmp_path / "metrics.jsonl").write_text(text)

    with pytest.raises(InputError, match="nothing to draw"):
        plot_curves(tmp_path / "metrics.jsonl", tmp_path / "curves.png")


def test_missing_metrics_are_reported(tmp_path: Path) -> None:
    """A folder without a run has no metrics file."""
    with pytest.raises(InputError, match="no metrics file"):
        plot_curves(tmp_path / "metrics.jsonl", tmp_path / "curves.png")
