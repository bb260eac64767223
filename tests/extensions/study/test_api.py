"""Tests of `weft.Study`: the records that it returns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import weft

from .conftest import ROWS, SMALL, Writer


def test_a_plan_has_costs_and_changes_of_each_row(toy_study: Writer, tmp_path: Path) -> None:
    """Nothing is written, and the speed that is given determines the durations."""
    study = weft.Study(toy_study(), out=tmp_path / "out", gigaflops=2.0)

    plan = study.plan()

    assert plan.findings == []
    assert [row.name for row in plan.rows] == ["baseline", *ROWS]
    base, swiglu = plan.rows[:2]
    assert base.changes == ()
    assert any("gated_feed_forward" in line for line in swiglu.changes)
    # Two layers, each with one more matrix of 16 x 32 and one bias less or more.
    assert swiglu.parameters - base.parameters >= 2 * 16 * 32
    assert base.seconds == pytest.approx(plan.plan.rows[0].costs.training_flops / 2e9)
    assert not (tmp_path / "out").exists()


@pytest.mark.integration
def test_changes_of_the_model_hide_none_of_the_objective(toy_study: Writer) -> None:
    """A param of the objective, another objective, and a spec that has the same graph."""
    rows = {
        "both": {"params": {"heads": 1}, "set": {"params.label_smoothing": 0.0}},
        "objective": {
            "params": {"heads": 1},
            "objective": "r-drop-translation",
            "set": {"params.alpha": 1.5},
        },
        "same": {"extends": "table3-a1", "set": {"params.label_smoothing": 0.0}},
        "alone": {"params": {"heads": 1}},
        "untied": {"extends": "transformer-untied"},
    }
    study = weft.Study(toy_study(rows=rows))

    both, objective, same, alone, untied = (row.changes for row in study.plan().rows[1:])

    unsmoothed = "~ cross_entropy  label_smoothing 0.1 -> 0.0"
    heads = "encoder.*.self_attention/f  d_k 8 -> 16, d_v 8 -> 16, heads 2 -> 1"
    assert {f"~ model.{heads}", unsmoothed} < {*both}
    assert f"~ model.{heads}" in objective
    assert '~ losses {"divergence": 1.5}' in objective
    assert "~ run objective  translation -> r-drop-translation" in objective
    assert unsmoothed in same
    assert f"~ {heads}" in alone
    assert any(line.startswith("- tie source_embedding.weight") for line in untied)
    assert not any("None" in line for line in (*both, *objective, *same, *alone))


@pytest.mark.integration
def test_changes_of_other_models_of_an_objective_are_told(toy_study: Writer) -> None:
    """A teacher is not deployed."""
    model = {"spec": "transformer-tiny", "params": SMALL}
    settings = {"objective": "distillation", "params": {"model": model, "teacher": model}}
    rows = {
        "both": {"params": {"heads": 1}, "set": {"params.teacher.params.layers": 2}},
        "model": {"params": {"heads": 1}},
    }
    study = weft.Study(toy_study(rows=rows, settings=settings))

    both, model_alone = (row.changes for row in study.plan().rows[1:])

    assert any(line.startswith("~ teacher.encoder") for line in both)
    assert not any("teacher" in line for line in model_alone)


def test_errors_are_findings_and_refuse_to_run(toy_study: Writer, tmp_path: Path) -> None:
    """`plan` returns them, `run` raises them before anything is written."""
    study = weft.Study(toy_study(rows={"a": {"params": {"hedas": 1}}}), out=tmp_path / "out")

    assert study.plan().rows == ()
    assert study.plan().findings.errors[0].code == "P04"
    with pytest.raises(weft.SpecError, match="hedas"):
        study.run()
    assert not (tmp_path / "out").exists()


def test_a_study_that_was_not_run_has_no_status(toy_study: Writer, tmp_path: Path) -> None:
    """The error says how to run it."""
    with pytest.raises(weft.InputError, match="no study"):
        weft.Study(toy_study(), out=tmp_path / "out").status()


@pytest.mark.slow
def test_a_run_returns_what_its_report_says(toy_study: Writer, tmp_path: Path) -> None:
    """Scores, comparisons and files of two rows with two seeds."""
    path = toy_study(rows={"one": {"params": {"heads": 1}}})
    study = weft.Study(path, out=tmp_path / "out", overrides={"compare.samples": 100})

    report = study.run(processes=2)

    assert report.failed == {}
    assert [(one.baseline, one.other) for one in report.comparisons] == [("baseline", "one")]
    assert len(report.conclusions) == 1
    forms = {".html", ".md", ".svg", ".pdf", ".tex", ".csv", ".json"}
    assert {path.suffix for path in report.paths} == forms
    assert "after 4 updates" in report.unclear[-1]
    assert {job.state for job in study.status()} == {"done"}
    scores = study.results()
    assert len(scores) == 2 * 2 * 2 * 2  # rows, seeds, splits, metrics
    [job] = [j.job for j in study.status() if (j.row, j.seed) == ("one", 2)]
    [file] = (tmp_path / "out/jobs" / job / "measured").glob("*/result.json")
    measured = json.loads(file.read_text())["splits"]["toy"]["scores"]["chrf"]
    [value] = [
        s.value for s in scores if (s.row, s.seed, s.split, s.metric) == ("one", 2, "toy", "chrf")
    ]
    assert value == measured
