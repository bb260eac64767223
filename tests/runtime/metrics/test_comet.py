"""COMET in a process of its own: what it is asked, what it answers, and what goes wrong.

The process has a stand-in of unbabel-comet: a score is the number of characters of the translation
minus those of the reference, and a hundredth of those of the source.  `tests/parity/test_comet.py`
compares with unbabel-comet.
"""

from __future__ import annotations

import site
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from weft.runtime.metrics.bootstrap import approximate_randomization, bootstrap_interval
from weft.runtime.metrics.comet import PYTHON, Comet, close
from weft.runtime.metrics.registry import METRICS
from weft.runtime.train.plan import plan_run
from weft.specs.findings import InputError

pytestmark = pytest.mark.integration

COMET = """
import os, torch
print("a line on standard output")

class Model:
    device = "cpu"
    to = eval = lambda self, *_: self
    def prepare_sample(self, rows, stage):
        assert stage == "predict"
        return rows
    def predict_step(self, rows):
        if any(row["mt"] == "crash" for row in rows):
            os._exit(3)
        if any(row["mt"] == "fail" for row in rows):
            raise RuntimeError("the encoder fails")
        score = lambda row: len(row["mt"]) - len(row["ref"]) + len(row["src"]) / 100
        return type("Prediction", (), {"scores": [score(row) for row in rows]})

def load_from_checkpoint(path, strict, local_files_only):
    assert os.environ["HF_HUB_OFFLINE"] == "1" and local_files_only
    torch.load(path)
    return Model()
"""
ROWS = [
    {"source": "ab", "target": "c"},
    {"source": "abcd", "target": "ef"},
    {"source": "", "target": "é"},
]
ANSWERS = ["xyz", "ä", ""]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment with the stand-in and the packages of this one."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "comet.py").write_text(COMET)
    (packages / "others.pth").write_text("\n".join(site.getsitepackages()))
    return folder / "bin" / "python"


@pytest.fixture
def model(tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the folder of a model, with weights that can be read without running code."""
    monkeypatch.setenv(PYTHON, str(python))
    (tmp_path / "checkpoints").mkdir()
    torch.save({"state_dict": {}}, tmp_path / "checkpoints/model.ckpt")
    (tmp_path / "hparams.yaml").write_text("class_identifier: regression_metric\n")
    yield tmp_path
    close()


def test_each_translation_is_scored_with_its_source_and_reference(model: Path) -> None:
    """By hand, in batches of two; the value is the mean."""
    metric = METRICS.parse({"type": "comet", "model": str(model), "batch": 2}, "")
    assert isinstance(metric, Comet)

    references = metric.references(ROWS, "target")
    sums = metric.statistics(ANSWERS, references)

    assert sums.tolist() == [[2.02, 1], [-0.96, 1], [-1, 1]]
    measured = metric.measure(ANSWERS, references)
    assert measured.value == pytest.approx((2.02 - 0.96 - 1) / 3)
    assert measured.signature == f"comet|model:{model.name}|version:unknown"


def test_intervals_and_paired_tests_are_those_of_a_mean(model: Path) -> None:
    """As of any metric of sums over rows: two systems that differ in every row of thirty."""
    metric = Comet(model=str(model))
    rows = [{"source": "a" * n, "target": "b" * n} for n in range(30)]
    references = metric.references(rows, "target")
    worse, better = (
        metric.statistics(["b" * (n + more) for n in range(30)], references) for more in (0, 1)
    )

    low, high = bootstrap_interval(worse, metric.value_of)
    probability = approximate_randomization(worse, better, metric.value_of, trials=999)

    assert low < np.mean([n / 100 for n in range(30)]) < high
    assert probability == 0.001


def test_weights_that_would_run_code_are_refused(model: Path) -> None:
    """A pickle of a function is not opened."""
    torch.save({"state_dict": {}, "callback": subprocess.run}, model / "checkpoints/model.ckpt")

    with pytest.raises(InputError, match=r"COMET does not score: UnpicklingError") as caught:
        Comet(model=str(model)).statistics(["a"], [("a", "b")])

    assert str(model) in str(caught.value.location)


@pytest.mark.parametrize(
    ("answer", "problem"), [("fail", "the encoder fails"), ("crash", "the process of .* ended")]
)
def test_a_failure_is_told_and_the_next_call_starts_anew(
    model: Path, answer: str, problem: str
) -> None:
    """With the place of the model."""
    metric = Comet(model=str(model))

    with pytest.raises(InputError, match=problem) as caught:
        metric.statistics([answer], [("a", "b")])

    assert str(model) in str(caught.value.location)
    assert metric.statistics(["a"], [("", "b")]).tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("environment", "problem"),
    [(sys.executable, "No module named 'comet'"), ("/no/such/python", "does not run")],
)
def test_a_missing_environment_is_named(
    model: Path, environment: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the variable that names it."""
    monkeypatch.setenv(PYTHON, environment)

    with pytest.raises(InputError, match=problem) as caught:
        Comet(model=str(model)).statistics(["a"], [("a", "b")])

    assert caught.value.location == PYTHON
    assert PYTHON in caught.value.help or "Python of an environment" in caught.value.help


@pytest.mark.parametrize("file", ["hparams.yaml", "checkpoints/model.ckpt"])
def test_a_missing_file_of_a_model_is_named(model: Path, file: str) -> None:
    """Nothing is downloaded."""
    (model / file).unlink()

    with pytest.raises(InputError, match=file):
        Comet(model=str(model)).statistics(["a"], [("a", "b")])


def test_a_column_of_sources_that_does_not_exist_is_a_finding(toy_run: Any) -> None:
    """At the setting that names it."""
    metric = {"type": "comet", "model": "models/comet", "source": "sorce"}
    evaluate = {"every": 6, "best": "nll", "metrics": [metric], "samples": 0}

    findings = plan_run(toy_run(evaluate=evaluate), "run.json").findings

    [finding] = [finding for finding in findings if "sorce" in finding.problem]
    assert finding.at == "/evaluate/metrics/0/source"
