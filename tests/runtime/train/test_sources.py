"""Sources of data in a training: validation by source, and mixtures of a resumed run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from weft.runtime.api import Silent
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.train.run import Run

Maker = Callable[..., Run]
EVALUATION = {"every": 2, "best": "nll", "metrics": ["perplexity", "bleu"], "samples": 0}


def lines(name: str) -> dict[str, Any]:
    """Return a source of the toy data."""
    return {"lines": {"source": [f"{name}.src"], "target": [f"{name}.tgt"]}}


def changed(run: Run, **data: Any) -> dict[str, Any]:
    """Return the data of a run with some keys changed."""
    written: dict[str, Any] = run.data.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return {**written, **data}


def validations(folder: Path) -> list[dict[str, Any]]:
    """Return the validations of a run."""
    events = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [event for event in events if event["type"] == "valid"]


@pytest.mark.slow
def test_each_source_is_measured_as_if_it_were_alone(toy_run: Maker, tmp_path: Path) -> None:
    """The source named by `best_on` selects the checkpoint; the state has all values."""
    sources = {"train": lines("train"), "test": lines("test")}
    settings = {"updates": 4, "evaluate": EVALUATION}
    evaluate = {**EVALUATION, "best_on": "test"}
    valid = changed(toy_run(), valid={"sources": sources})

    both = weft.train(toy_run(data=valid, updates=4, evaluate=evaluate), out=tmp_path / "both")

    values = validations(tmp_path / "both")
    for name, source in sources.items():
        data = changed(toy_run(), valid=source)
        weft.train(toy_run(data=data, **settings), out=tmp_path / name)
        for alone, beside in zip(validations(tmp_path / name), values, strict=True):
            for key in ("loss", "nll", "perplexity", "bleu"):
                assert beside[f"{name}/{key}"] == pytest.approx(alone[key], rel=1e-6)
    for event in values:
        assert event["test/nll"] != event["train/nll"]
        low, high = sorted((event["test/nll"], event["train/nll"]))
        assert low < event["nll"] < high
    best = min(values, key=lambda event: event["test/nll"])
    assert both.state.best == -best["test/nll"]
    assert both.checkpoint is not None
    state = json.loads((both.checkpoint / "state.json").read_text())
    assert state["valid"]["test/bleu"] == values[-1]["test/bleu"]


@pytest.mark.slow
def test_a_run_with_stages_resumes_bit_for_bit(toy_run: Maker, tmp_path: Path) -> None:
    """Killed within a stage, and at the end of one."""
    data = changed(
        toy_run(),
        train={"sources": {"real": lines("train"), "small": lines("valid")}},
        mixture=[
            {"until": 4, "weights": {"real": 0.3}},
            {"until": 6, "temperature": 5},
            {"weights": {"real": 0}},
        ],
    )
    settings = {"data": data, "batch": {"tokens": 60, "pool": 1, "count": "real"}, "accumulate": 2}

    weft.train(toy_run(updates=8, **settings), out=tmp_path / "whole")
    for stop in (3, 4, 6):
        overrides = {"updates": stop}
        out = tmp_path / str(stop)
        run = toy_run(updates=8, **settings)
        weft.train(run.model_copy(update=overrides), out=out, overrides=overrides)
        weft.train(run, out=out, resume=True)
        weights = [
            open_checkpoint(folder / "checkpoints" / "000008").weights
            for folder in (tmp_path / "whole", out)
        ]
        assert all(torch.equal(tensor, weights[1][path]) for path, tensor in weights[0].items())


@pytest.mark.integration
@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({"accumulate": 1}, 1),
        ({"accumulate": 6}, 0),
        ({"accumulate": 1, "batch": {"tokens": 40, "pool": 1, "count": "real"}}, 0),
    ],
)
def test_training_tells_how_lengths_mix_in_an_update(
    toy_run: Maker, tmp_path: Path, settings: dict[str, Any], warned: int
) -> None:
    """By the lengths themselves: an epoch is too short for the estimate of a check."""
    messages: list[str] = []

    class Listener(Silent):
        def log(self, text: str) -> None:
            messages.append(text)

    run = toy_run(updates=1, **{"batch": {"tokens": 40}, **settings})
    weft.train(run, out=tmp_path / "run", listener=Listener())

    assert sum(text.startswith("an update: ") for text in messages) == 1
    assert sum("an update holds texts of one length" in text for text in messages) == warned
