"""Checking a run of an objective: what can be known without its data is a finding with a place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from weft.runtime import api
from weft.runtime.cli.main import main
from weft.runtime.train.plan import load_run, plan_run
from weft.specs.findings import InputError, SpecError

Make = Callable[..., Path]
FAULTS: list[tuple[dict[str, Any], str, str, str]] = [
    ({"data.columns.label": ..., "predict": ..., "answers": ..., "evaluate": ...},
     "R06", "/inputs/label", "add a column"),
    ({"data.columns.label": {"type": "number"}, "predict": ..., "answers": ..., "evaluate": ...},
     "R06", "/inputs/label", "change the type"),
    ({"objective": "clasify.json"}, "R02", "/objective", "did you mean"),
    ({"objective": "mine.json"}, "R02", "/objective", "name a file"),
    ({"params": {"model": {"checkpoint": "no"}}}, "R02", "/params/model/checkpoint", "outputs"),
    ({"freeze": ["encodr.*"]}, "R03", "/freeze/0", ""),
    ({"data.train": {"jsonl": {"files": ["trian.jsonl"]}}},
     "R02", "/data/train/jsonl/files/0", "train"),
    ({"auxiliary": 0.5}, "R01", "/auxiliary", "remove"),
    ({"evaluate.patience": 3}, "R01", "/evaluate/patience", "lower 'patience'"),
    ({"evaluate.metrics": ["f1:labl"], "evaluate.best": "loss"},
     "R04", "/evaluate/metrics/0/column", "label"),
    ({"checkpoint.keep": 1}, "R01", "/checkpoint/keep", "lower 'average'"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "code", "at", "help_"), FAULTS)
def test_a_mistake_is_a_finding_with_a_place_and_a_fix(
    make_run: Make, changes: dict[str, Any], code: str, at: str, help_: str
) -> None:
    """Each is reported before any data is read."""
    run, source = load_run(make_run(changes))

    found = plan_run(run, source).findings

    assert [(one.code, one.at) for one in found] == [(code, at)]
    assert help_ in found[0].help


def test_a_correct_run_has_no_findings(make_run: Make, capsys: pytest.CaptureFixture[str]) -> None:
    """`weft check` names the model, the objective and its losses."""
    path = make_run()

    assert main(["check", str(path)]) == 0
    assert "trains classifier with 'classify' (loss;" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "at"),
    [
        ({"predict": ...}, "#/evaluate"),
        ({"predict": "argmx"}, "#/predict"),
        ({"answers": "labl"}, "#/answers"),
        ({"evaluate.metrics": ["acuracy"]}, "#/evaluate/metrics/0"),
        ({"optimizer": {"momentum": 0.5}}, "#/optimizer/momentum"),
    ],
)
def test_settings_that_do_not_fit_each_other_or_are_unknown_are_refused(
    make_run: Make, changes: dict[str, Any], at: str
) -> None:
    """The place is the setting."""
    with pytest.raises(SpecError) as caught:
        load_run(make_run(changes))

    [finding] = caught.value.findings
    assert f"#{finding.at}".startswith(at)


def test_images_need_a_number_of_rows(make_run: Make) -> None:
    """Without a time axis, no number of tokens limits a batch."""
    columns = {"text": {"type": "number"}, "label": {"type": "class"}}
    run, source = load_run(make_run({"data.columns": columns, "tokenizers": {}}))

    assert ("R04", "/batch") in [(one.code, one.at) for one in plan_run(run, source).findings]


def test_a_loss_over_logits_of_another_vocabulary_is_a_finding(make_run: Make) -> None:
    """The model has 7 classes and the labels 2: the mistake is the param, not each wire."""
    path = make_run({"data.columns.label": {"type": "class", "classes": ["de", "en"]}})
    value = json.loads((path.parent / "classify.json").read_text())
    value["params"]["model"]["params"] = {"classes": 7}
    (path.parent / "classify.json").write_text(json.dumps(value))

    found = plan_run(*load_run(path)).findings

    assert [one.at for one in found] == ["/params/model/params/classes"]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ('{"text": "the dog", "label": "fr"}', "fr"),
        ('{"text": "the dog"}', "label"),
        ('{"text": 3, "label": "en"}', "text"),
    ],
)
def test_a_wrong_row_names_its_line(
    make_run: Make, row: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A class that training never saw, a column that the file lacks, a value of another type."""
    path = make_run()
    with (path.parent / "valid.jsonl").open("a") as file:
        file.write(f"{row}\n")

    assert main(["prepare", str(path), "--out", str(path.parent / "out")]) == 1

    error = capsys.readouterr().err
    assert says in error
    assert "valid.jsonl" in error
    assert "11" in error


def test_a_predictor_that_does_not_fit_is_refused(make_run: Make) -> None:
    """Beam search needs a model that writes a text."""
    path = make_run({"predict": "beam"})

    with pytest.raises(InputError):
        api.train(path, out=path.parent / "out")
