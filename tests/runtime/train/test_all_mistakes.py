"""All mistakes of a run are reported at once, and none that is only a consequence of another."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from weft.runtime import api
from weft.runtime.cli.main import main
from weft.runtime.train.plan import load_run, plan_value
from weft.runtime.train.run import Run
from weft.specs.findings import SpecError

Maker = Callable[..., Run]
Written = Callable[..., dict[str, Any]]


@pytest.fixture
def written(toy_run: Maker) -> Written:
    """Return a factory of valid runs as JSON, with changes by top-level key; None removes one."""

    def write(**changes: Any) -> dict[str, Any]:
        run = toy_run(schedule={"peak": 0.001})
        value: dict[str, Any] = run.model_dump(mode="json", by_alias=True, exclude_unset=True)
        value |= changes
        return {key: inner for key, inner in value.items() if inner is not None}

    return write


def told(value: dict[str, Any]) -> list[tuple[str, str]]:
    """Return code and place of each finding about a run."""
    return [(one.code, one.at) for one in plan_value(value, "run.json").findings]


def test_the_run_itself_is_valid(written: Written) -> None:
    """Otherwise the other tests would say nothing."""
    assert told(written()) == []


def test_mistakes_of_form_and_of_meaning_are_told_together(written: Written) -> None:
    """A wrong value does not end the check of files, of names and of the model."""
    value = written(
        tokenizers={"tokenizer": {"type": "bpe", "vocab_size": 2}},
        params={"model": {"spec": "transformer-tny"}},
        dropout=[{"over": 100}, {"from": 1}],
        accumulate="2",
    )
    value["data"]["train"]["lines"]["target"] = ["trian.tgt"]

    assert sorted(told(value)) == [
        ("N08", "/params/model/spec"),
        ("R02", "/data/train/lines/target/0"),
        ("R08", "/dropout/1"),
        ("S04", "/accumulate"),
        ("S04", "/tokenizers/tokenizer/vocab_size"),
    ]


def test_a_misspelled_key_is_read_as_the_key_that_was_meant(written: Written) -> None:
    """Its value is checked where it is written."""
    value = written(updates=None, update=5, schedule={"peak": 1, "pieces": [{"to": 1, "over": 9}]})

    assert told(value) == [("S03", "/update"), ("R08", "/schedule/pieces/0")]


def test_each_column_with_an_unknown_tokenizer_is_told_but_not_the_unused_one(
    written: Written,
) -> None:
    """The tokenizer would be used if the columns named it."""
    value = written()
    for column in value["data"]["columns"].values():
        column["tokenizer"] = "spm"

    assert told(value) == [
        ("S04", "/data/columns/source/tokenizer"),
        ("S04", "/data/columns/target/tokenizer"),
    ]


def test_wrong_entries_of_a_list_are_told_where_they_are_written(written: Written) -> None:
    """The entries between them keep their numbers, although the wrong ones are left out."""
    metrics = ["blue", "accuracy", "chrff", "loss:nothing"]
    value = written(evaluate={"metrics": metrics, "best": "loss"})

    assert [at for _, at in told(value)] == [
        "/evaluate/metrics/0",
        "/evaluate/metrics/2",
        "/evaluate/metrics/1",
        "/evaluate/metrics/3",
    ]


def test_every_setting_of_a_predictor_is_checked(written: Written) -> None:
    """A predictor is read by its own class, which reports more than its first mistake."""
    value = written(predict={"type": "beam", "beam": 0, "alhpa": 0.5, "penalty": "nothing"})

    assert {at for _, at in told(value)} == {"/predict/alhpa", "/predict/beam", "/predict/penalty"}


def test_settings_that_do_not_fit_together_are_all_told(written: Written) -> None:
    """None of them hides another one."""
    value = written(
        answers="targett",
        train=["*.bias"],
        tokenizers={
            "tokenizer": {"type": "bpe", "vocab_size": 40},
            "other": {"type": "bpe", "vocab_size": 40},
        },
    )
    value["data"]["mixture"] = [{"temperature": 2}]

    assert sorted(told(value)) == [
        ("S04", "/answers"),
        ("S04", "/data/mixture"),
        ("S04", "/tokenizers/other"),
        ("S04", "/train"),
    ]


def test_a_setting_that_another_wrong_one_may_explain_is_not_told(written: Written) -> None:
    """Metrics of predictions need the predictor that could not be read."""
    value = written(predict={"type": "beem"}, evaluate={"metrics": ["bleu"], "rows": 4})

    assert told(value) == [("S04", "/predict/type")]


def test_the_params_are_checked_for_an_objective_that_is_misspelled(written: Written) -> None:
    """Nothing else can have been meant by it."""
    value = written(objective="translaton", params={"model": {"spec": "nothing-like-it"}})

    assert told(value) == [("R02", "/objective"), ("N08", "/params/model/spec")]


def test_training_and_loading_report_the_same_as_the_check(
    written: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`weft check`, `weft.train` and `load_run` tell all mistakes of a file."""
    path = tmp_path / "run.json"
    path.write_text(json.dumps(written(accumulate=0, start="nowhere")))

    with pytest.raises(SpecError) as loading:
        load_run(path)
    with pytest.raises(SpecError) as training:
        api.train(path, out=tmp_path / "out")
    assert main(["check", str(path), "--json"]) == 1
    checking = json.loads(capsys.readouterr().out)["findings"]

    expected = ["/accumulate", "/start"]
    assert [one.at for one in loading.value.findings] == expected
    assert [one.at for one in training.value.findings] == expected
    assert [one["pointer"] for one in checking] == expected
    assert not (tmp_path / "out").exists()


def test_every_wrong_override_is_told(written: Written) -> None:
    """A path through a value that is no object, and a wrong value."""
    changes = {"updates.more": 3, "batch.tokens": 1, "seed.x": 1}

    findings = plan_value(written(), "run.json", changes).findings

    assert {one.at for one in findings} == {"/updates", "/batch/tokens", "/seed"}
