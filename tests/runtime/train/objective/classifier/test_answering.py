"""Checkpoints of an objective: trained, resumed, opened, evaluated and asked."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import weft
from weft.runtime.cli.main import main

Capture = pytest.CaptureFixture[str]


@pytest.mark.integration
def test_a_classifier_from_the_run_to_its_answers(
    make_run: Callable[..., Path], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both kinds of checkpoints answer alike, and a resumed run finds its classes again."""
    path = make_run({"updates": 10, "evaluate.every": 10})
    out = path.parent / "out"
    weft.train(path, out=out)
    result = weft.train(path, out=out, overrides={"updates": 20}, resume=True)
    rows = [{"text": "the dog runs"}, {"text": "der hund rennt"}]

    assert result.checkpoint is not None
    whole, best = weft.open(result.checkpoint), weft.open(out / "best")

    assert {whole.graph.name, best.graph.name} == {"classifier"}
    assert whole.predict(rows) == ["en", "de"]
    assert best.predict(rows, "argmax", answers="label") == ["en", "de"]
    with pytest.raises(weft.InputError, match="has no value for the column 'text'") as caught:
        best.predict([rows[0], {"txt": "the dog"}])
    assert caught.value.location == "row 2"

    capsys.readouterr()
    assert main(["evaluate", str(out / "best"), "--json"]) == 0
    [report] = json.loads(capsys.readouterr().out)
    assert (report["test"], report["rows"]) == ("held-out", 10)
    assert report["scores"]["accuracy"] == 100.0
    # The loss of a model that is right in every case with a probability above one half.
    assert 0 < report["scores"]["loss"] < math.log(2)

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"text": "eine katze"}\n')))
    assert main(["predict", str(out / "best"), "--details"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["answer"] == "de"
    assert math.isclose(sum(answer["probabilities"].values()), 1.0, abs_tol=1e-5)

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"[1]\n")))
    assert main(["predict", str(out / "best")]) == 1
    assert "--> standard input:1" in capsys.readouterr().err
    assert main(["evaluate", str(out / "best"), "--beam", "2"]) == 1
    assert "the predictor 'argmax' has no setting 'beam'" in capsys.readouterr().err
    assert main(["show", str(out / "best")]) == 0
    assert "classifier" in capsys.readouterr().out
