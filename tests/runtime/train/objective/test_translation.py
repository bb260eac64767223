"""Tests that the objective of translation trains as the task of format 2, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from weft.runtime import api
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.train.reporting.history import read
from weft.runtime.train.run import Run

from .conftest import MODEL, Writer, equal, weights

SETTINGS: dict[str, dict[str, Any]] = {
    "accumulated": {},
    "one batch": {"accumulate": 1},
    "late dropout": {"dropout_from": 4},
    "unpadded": {"padding": "unpadded"},
    "padded": {"padding": "padded"},
    "bfloat16": {"precision": "bfloat16"},
    "clipped": {"optimizer": {"clip": 0.1}},
    "activation checkpointing": {"activation_checkpointing": ["decoder.*"]},
}
MIXTURE = {"experts": 2, "top_k": 1, "d_model": 16, "heads": 2, "d_ff": 32, "layers": 2}


@pytest.mark.parametrize("name", SETTINGS)
def test_weights_and_losses_are_those_of_the_task(
    toy_run: Callable[..., Run], objective_run: Writer, tmp_path: Path, name: str
) -> None:
    """Twelve updates with dropout and a fused loss give the same weights, losses and nll."""
    settings = dict(SETTINGS[name])
    task = api.train(toy_run(**settings), out=tmp_path / "task")
    if "activation_checkpointing" in settings:
        settings["activation_checkpointing"] = ["model.decoder.*"]
    objective = api.train(objective_run("translation", **settings), out=tmp_path / "objective")

    _same(task, objective)
    events = [read(tmp_path / each / "metrics.jsonl") for each in ("task", "objective")]
    for left, right in zip(*events, strict=True):
        if left["type"] == "train":
            assert (left["loss"], left["nll"]) == (right["loss"], right["nll"])
        # The task fuses its loss in validations too, which adds in another order.
        assert left["nll"] == pytest.approx(right["nll"], rel=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_label_smoothing_is_that_of_the_task(
    toy_run: Callable[..., Run], objective_run: Writer, tmp_path: Path, smoothing: float
) -> None:
    """The param of the objective is the setting of the task."""
    task = api.train(toy_run(loss={"smoothing": smoothing}), out=tmp_path / "task")
    params = {"model": MODEL, "label_smoothing": smoothing}
    objective = api.train(objective_run("translation", params=params), out=tmp_path / "objective")

    _same(task, objective)


def test_the_balance_of_experts_is_added_as_in_the_task(
    toy_run: Callable[..., Run], objective_run: Writer, tmp_path: Path
) -> None:
    """A loss that the objective does not wire is trained with the weight `auxiliary`."""
    task = api.train(
        toy_run(spec="moe-transformer", params=MIXTURE, loss={"auxiliary": 0.1}),
        out=tmp_path / "task",
    )
    params = {"model": {"spec": "moe-transformer", "params": MIXTURE}}
    file = objective_run("translation", params=params, auxiliary=0.1)
    objective = api.train(file, out=tmp_path / "objective")

    _same(task, objective)
    events = [read(tmp_path / each / "metrics.jsonl") for each in ("task", "objective")]
    added = [[e["auxiliary"] for e in each if e["type"] == "train"] for each in events]
    assert added[0] == added[1]
    assert min(added[0]) > 0


def test_the_deployed_checkpoint_opens_and_equals_the_model_inside(
    objective_run: Writer, tmp_path: Path
) -> None:
    """`averaged` and `best` hold the model alone; a training checkpoint holds the objective."""
    result = api.train(objective_run("translation"), out=tmp_path / "run")
    assert result.averaged is not None
    assert result.checkpoint is not None

    inside = weights(result.checkpoint)
    last = {k.removeprefix("model."): v for k, v in inside.items() if k.startswith("model.")}
    deployed = open_checkpoint(result.averaged)
    assert deployed.graph.name == "transformer-tiny"
    assert weights(result.averaged).keys() == last.keys()
    assert equal(weights(tmp_path / "run/best"), last)


def _same(task: Any, objective: Any) -> None:
    """Assert that the last and the averaged weights of two runs are the same."""
    model = {k.removeprefix("model."): v for k, v in weights(objective.checkpoint).items()}
    assert equal(weights(task.checkpoint), model)
    assert equal(weights(task.averaged), weights(objective.averaged))
