"""Pictures of attention weights reach the trackers of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from weft.runtime import api
from weft.specs.findings import SpecError

from .conftest import Writer

pytestmark = pytest.mark.integration

SETTINGS = {
    "predict": {"type": "greedy", "max_length": 8},
    "answers": "target",
    "updates": 2,
    "trackers": ["tensorboard"],
}


def test_a_translation_run_logs_pictures_at_each_validation(
    objective_run: Writer, tmp_path: Path
) -> None:
    """One file for each picture, and an image of each in the event file."""
    evaluate = {"every": 1, "pictures": 2, "samples": 2}
    file = objective_run("translation", **SETTINGS, evaluate=evaluate)

    api.train(file, out=tmp_path / "run")

    events = EventAccumulator(str(tmp_path / "run/tensorboard")).Reload()
    assert [one.step for one in events.Images("attention/2")] == [1, 2]
    names = sorted(path.name for path in (tmp_path / "run/pictures").iterdir())
    assert names == ["attention-1.png", "attention-2.png"]


def test_pictures_without_trackers_are_refused(objective_run: Writer, tmp_path: Path) -> None:
    """Nothing would show them."""
    settings = {**SETTINGS, "trackers": []}
    file = objective_run("translation", **settings, evaluate={"every": 2, "pictures": 2})

    with pytest.raises(SpecError, match="'pictures' are logged to trackers, but the run has none"):
        api.train(file, out=tmp_path / "run")
