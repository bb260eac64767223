"""`weft prove RUN`: the run's predictor answers, and its reopened checkpoint answers the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import weft
from weft.runtime.cli.main import main

pytestmark = pytest.mark.integration
SMALL = {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 1, "dropout": 0.0, "vocab": "=vocab"}
TEXT = {"type": "text", "tokenizer": "words"}
LINES = {"lines": {"source": ["a.src"], "target": ["a.tgt"]}}


def write_run(folder: Path, predict: dict[str, Any]) -> str:
    """Write a run of translation whose data does not exist; return its path."""
    value = {
        "format": 1,
        "name": "proved",
        "objective": "translation",
        "params": {
            "model": {"spec": "transformer-tiny", "params": SMALL},
            "vocab": 30,
            "source_vocab": 30,
        },
        "data": {"columns": {"source": TEXT, "target": TEXT}, "train": LINES, "valid": LINES},
        "tokenizers": {"words": {"type": "bpe", "vocab_size": 30}},
        "predict": predict,
        "answers": "target",
        "batch": {"tokens": 100},
        "updates": 2,
        "schedule": {"peak": 0.001},
    }
    (folder / "run.json").write_text(json.dumps(value))
    return str(folder / "run.json")


def test_a_run_answers_as_its_reopened_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From Python and from the command line, without any data."""
    run = write_run(tmp_path, {"type": "beam", "beam": 2, "max_extra": 2})

    assert weft.prove(run, only=["predictions"])["predictions"].outcome == "passed"
    assert main(["prove", run, "--only", "predictions", "-q"]) == 0
    assert "predictions  passed" in capsys.readouterr().out


def test_a_predictor_that_does_not_fit_the_model_fails(tmp_path: Path) -> None:
    """A class is one score for each row, but logits of translation have positions."""
    found = weft.prove(write_run(tmp_path, {"type": "argmax"}), only=["predictions"])

    assert not found.passed
    assert "has 3 axes, not 2" in found["predictions"].detail


@pytest.mark.parametrize(
    "run", ["image-classification-digits", "tagging-craft", "regression-multi30k"]
)
def test_shipped_runs_answer_random_rows(run: str) -> None:
    """Of images, words and numbers."""
    assert weft.prove(run, only=["predictions"]).passed


def test_a_spec_has_no_predictions() -> None:
    """Only a run says how it predicts."""
    found = weft.prove(
        weft.load("lstm-tagger", d_model=8, layers=1, vocab=20), only=["predictions"]
    )

    assert found["predictions"].outcome == "does not apply"
