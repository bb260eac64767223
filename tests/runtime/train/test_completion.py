"""`weft expand RUN` prints the same run with every setting, which can be edited and trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from weft.graphs.ir.canonical import fingerprint
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.cli.main import main
from weft.runtime.train.objective import Objective
from weft.runtime.train.plan import complete, load_run, plan_run, run_of
from weft.runtime.train.run import Run
from weft.specs.reader import shipped_names

pytestmark = pytest.mark.integration
RUNS = sorted(name for name in shipped_names("runs") if "distillation" not in name)
"""Those that need no checkpoint."""


@pytest.mark.parametrize("name", RUNS)
def test_a_complete_run_is_the_same_run(name: str) -> None:
    """It is read again, has the same settings, objective and findings, and all keys."""
    run, source = load_run(name)

    value = complete(run, source)

    again = run_of(value, source)
    assert again.model_copy(update={"params": run.params}) == run
    assert fingerprint(Objective.of(again, source).graph) == fingerprint(
        Objective.of(run, source).graph
    )
    assert plan_run(again, source).findings == plan_run(run, source).findings
    assert {"optimizer", "batch", "seed", "threads", "schedule", "params"} <= value.keys()


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """Return what `weft expand` prints."""
    assert main(["expand", *arguments]) == 0
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    return value


def test_params_of_the_objective_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    """Its own as its file has them, those of the run as they are set; sizes follow the columns."""
    value = printed(capsys, "multi30k-en-de", "--set", "params.label_smoothing=0.2")

    assert value["params"]["label_smoothing"] == 0.2
    assert value["params"]["spread"] == "vocabulary"
    assert (
        value["params"]["model"]
        == {"spec": "transformer-tiny", "params": {}}
        | (load_run("multi30k-en-de")[0].params["model"])
    )
    assert not {"vocab", "source_vocab"} & value["params"].keys()


def test_a_printed_run_trains_to_the_same_bits(
    toy_run: Callable[..., Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two updates of a run, and of what was printed of it."""
    value = toy_run(updates=2).model_dump(mode="json", by_alias=True, exclude_unset=True)
    (tmp_path / "run.json").write_text(json.dumps(value))
    copy = printed(capsys, str(tmp_path / "run.json"))
    (tmp_path / "copy.json").write_text(json.dumps(copy))

    weights = []
    for name in ("run", "copy"):
        weft.train(tmp_path / f"{name}.json", out=tmp_path / name)
        weights.append(open_checkpoint(tmp_path / name / "best").weights)

    assert len(copy) > len(value)
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[1][name], tensor) for name, tensor in weights[0].items())


def test_the_run_of_a_checkpoint_is_expanded(
    toy_run: Callable[..., Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its file `run.json` is a run like any other."""
    weft.train(toy_run(updates=2), out=tmp_path / "out")

    assert printed(capsys, str(tmp_path / "out/best/run.json"))["updates"] == 2


def test_a_run_has_no_provenance(capsys: pytest.CaptureFixture[str]) -> None:
    """The option is for specs, which inherit."""
    assert main(["expand", "demo", "--provenance"]) == 2
    assert "a run inherits nothing" in capsys.readouterr().err
