"""Tests of tuned rows, targets, sequential seeds and ladders: from the file to the report."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import weft
from weft.extensions.study.jobs import SEARCH_TASK, jobs_of, open_plan
from weft.extensions.study.study import begun
from weft.extensions.study.worker import run_job
from weft.runtime.cli.main import main
from weft.runtime.train.history import read

from .conftest import write_study

pytestmark = pytest.mark.integration

PEAKS = [0.0001, 0.003, 0.03]
TARGET = 3.7
EVERYTHING: dict[str, Any] = {
    "rows": {"one-head": {"params": {"heads": 1}}},
    "ladders": {
        "wide": {
            "sizes": {"d_model": [8, 16, 32], "d_ff": [16, 32, 64]},
            "rates": "same",
            "against": "parameters",
        }
    },
    "labels": {"baseline": "Two_heads & more", "one-head": "One head"},
    "tune": {"values": {"schedule.peak": PEAKS}},
    "target": {"metric": "nll", "value": TARGET},
    "sequential": {"most": 3, "step": 1},
    "settings": {"updates": 12},
}
"""A study with all that follows from results."""
Finished = tuple[weft.Study, weft.StudyReport]


def trained(study: weft.Study) -> weft.StudyReport:
    """Run a study in this process, round by round; return its report."""
    with begun(study, study.plan()) as first:
        for jobs in first.rounds():
            for job in jobs.todo:
                assert run_job(job.folder, kind=job.kind) == "done"
    return study.report()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Return a finished study with all of it, and its report."""
    folder = tmp_path_factory.mktemp("procedure")
    study = weft.Study(write_study(folder, **EVERYTHING), out=folder / "out")
    return study, trained(study)


def test_the_best_value_of_a_row_is_chosen_and_trained(finished: Finished) -> None:
    """It has the lowest loss on the validation data, and its run has it as its peak."""
    study, report = finished
    for name in ("baseline", "one-head"):
        tuning = report.record["tuning"]["rows"][name]
        best = min(tuning["points"], key=lambda point: point["value"])
        row = next(row for row in report.record["rows"] if row["name"] == name)

        assert [point["values"]["schedule.peak"] for point in tuning["points"]] == PEAKS
        assert row["tuned"] == tuning["chosen"] == best["values"]
        for key in row["jobs"].values():
            run = json.loads((study.folder / "jobs" / key / "run.json").read_text())
            assert run["schedule"]["peak"] == best["values"]["schedule.peak"]
        assert row["jobs"]["1"] == best["jobs"]["1"]  # the chosen trial is not trained again


def test_trials_measure_no_test_set(finished: Finished) -> None:
    """Choices are made on the validation data alone."""
    study, _ = finished
    trials = [job for job in jobs_of(open_plan(study.folder), study.folder) if job.trial]

    assert len(trials) == 2 * len(PEAKS)
    for job in trials:
        result = json.loads((job.measured / "result.json").read_text())
        assert job.kind == SEARCH_TASK
        assert result["splits"].keys() == {"valid"}


def test_the_time_to_target_is_that_of_the_first_validation_that_reached_it(
    finished: Finished,
) -> None:
    """By the history of each run, one seed at a time."""
    study, report = finished
    for row in report.record["rows"]:
        for seed, key in row["jobs"].items():
            events = read(study.folder / "jobs" / key / "train")
            passed = [e["update"] for e in events if e["type"] == "valid" and e["nll"] <= TARGET]
            reached = report.record["target"]["rows"][row["name"]][seed]
            assert (reached or {}).get("updates") == (min(passed) if passed else None)


def test_seeds_are_added_to_open_comparisons_up_to_the_bound(finished: Finished) -> None:
    """Two rows that differ little get all three seeds; sizes of a ladder are not compared."""
    _, report = finished
    counts = {row["name"]: len(row["jobs"]) for row in report.record["rows"]}
    [pair] = report.comparisons

    assert (pair.baseline, pair.other) == ("baseline", "one-head")
    expected = 3 if pair.verdict == "not distinguishable" else 2
    assert counts["baseline"] == counts["one-head"] == expected
    assert {counts[f"wide={size}"] for size in (8, 16, 32)} == {2}
    assert "looks after 2, 3 seeds" in report.record["sequential"]


def test_the_report_shows_all_of_it_with_labels(finished: Finished) -> None:
    """In Markdown, LaTeX, HTML, SVG and PDF; the labels are escaped where that is needed."""
    _, report = finished
    by_name = {path.name: path for path in report.paths}
    page = by_name["toy-study.md"].read_text()
    tex = by_name["toy-study.tex"].read_text()

    for title in ("## Tuning", "## Time to NLL 3.7", "## Sizes of wide"):
        assert title in page
    assert "![Tuning](toy-study-tuning.svg)" in page
    assert "updates to NLL 3.7" in page
    assert "chrF" in page
    assert "chrf" not in page.split("## Commands")[0]
    assert r"Two\_heads \& more" in tex
    assert "Two_heads &amp; more" in by_name["toy-study.html"].read_text()
    for figure in ("", "-curves", "-tuning", "-ladders"):
        assert by_name[f"toy-study{figure}.pdf"].read_bytes().startswith(b"%PDF")
        assert by_name[f"toy-study{figure}.svg"].read_text().startswith("<svg")
    csv = by_name["toy-study.csv"].read_text()
    assert "baseline,1,done,toy,chrf," in csv
    assert any("largest value that was tried" in line for line in report.unclear)


def test_a_finished_study_has_nothing_to_do(
    finished: Finished, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command finds all jobs done, and prints no job."""
    study, _ = finished
    words = [str(study.folder.parent / "study.json"), "--out", str(study.folder)]

    assert main(["study", "run", *words, "--print-jobs"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["study", "status", *words]) == 0
    assert "schedule.peak=0.003" in capsys.readouterr().out


def test_lost_results_are_made_again_with_the_same_choices(
    finished: Finished, tmp_path: Path
) -> None:
    """A study without its plan and two jobs, as after a kill, ends with the same figures."""
    study, report = finished
    out = tmp_path / "out"
    shutil.copytree(study.folder, out, symlinks=True)
    (out / "plan.json").unlink()
    chosen = report.record["rows"][0]["jobs"]["2"]
    trial = report.record["tuning"]["rows"]["one-head"]["points"][0]["jobs"]["1"]
    for key in (chosen, trial):
        shutil.rmtree(out / "jobs" / key)

    again = trained(weft.Study(study.source, out=out))

    assert again.record["tuning"] == report.record["tuning"]
    assert again.record["tables"] == report.record["tables"]


def test_a_packed_study_has_its_tuning(finished: Finished, tmp_path: Path) -> None:
    """Elsewhere, the report needs neither data nor weights."""
    study, report = finished
    study.pack(tmp_path / "results")
    other = weft.Study(study.source, out=tmp_path / "other")
    other.unpack([tmp_path / "results"])

    record = other.report().record

    for part in ("tuning", "ladders", "tables", "sequential"):
        assert record[part] == report.record[part]


def test_a_run_stops_at_the_target(tmp_path: Path) -> None:
    """The stopping rule ends each run at the first validation that has reached it."""
    path = write_study(
        tmp_path,
        rows={"one-head": {"params": {"heads": 1}}},
        seeds=[1, 2],
        target={"metric": "nll", "value": 4.5, "stop": True},
        settings={"updates": 12, "schedule": {"peak": 0.01}},
        measure={"metrics": ["chrf"], "checkpoint": "best"},
    )

    record = trained(weft.Study(path, out=tmp_path / "out")).record

    for row in record["rows"]:
        for seed, seed_run in row["seeds"].items():
            reached = record["target"]["rows"][row["name"]][seed]
            assert reached["updates"] == seed_run["training"]["update"] < 12
            assert "has reached 4.5" in seed_run["training"]["reason"]
