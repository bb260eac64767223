"""Studies from Python, shipped ones, engines and procedures."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import weft
from weft.extensions.study.document import rows_of
from weft.extensions.study.jobs import SEARCH_TASK, jobs_of, open_plan
from weft.extensions.study.loading import load_study
from weft.extensions.study.planning.base import base_of, read_run, row_value
from weft.extensions.study.study import begun
from weft.extensions.study.worker import run_job
from weft.runtime.cli.main import main
from weft.runtime.train.history import read
from weft.specs.reader import shipped_names

from ...runtime.conftest import write_toy
from ...runtime.toy_treebank import write_banks
from .conftest import ROWS, SMALL, Writer, write_study


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


DOCS = Path(__file__).parents[3] / "docs/studies"
STUDIES = [name for name in shipped_names("studies") if name != "study-demo"]


def files_of(split: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of a split's files."""
    [settings] = [split[key] for key in ("lines", "trees") if key in split]
    groups = [settings["files"]] if "files" in settings else settings.values()
    yield from (name for group in groups for name in group)


def write_data(name: str, root: Path) -> None:
    """Write a toy file for each name that a row of a study reads."""
    study, source = load_study(name)
    base = base_of(study, source)
    root.mkdir()
    write_toy(root, 40, 1, "toy")
    write_banks(root)
    for row in rows_of(study, source):
        run = read_run(row_value(base, row), source)
        data = run.data.model_dump(mode="json", by_alias=True)
        for split in (data["train"], data["valid"], *data["test"].values()):
            for file in files_of({k: v for k, v in split.items() if v is not None}):
                text = "toy.src" if ".en" in file or "source" in file else "toy.tgt"
                toy = "valid.trees" if "trees" in file else text
                path = root / file
                path.parent.mkdir(exist_ok=True)
                content = (root / toy).read_bytes()
                path.write_bytes(gzip.compress(content) if file.endswith(".gz") else content)


def test_modifications_has_the_rows_of_both_papers() -> None:
    """At least 20 besides the baseline, and each names its source."""
    study, source = load_study("modifications")

    rows = [row for row in rows_of(study, source) if row.at]

    assert len(rows) >= 20
    assert all(any(c.isdigit() for c in row.change.doc) for row in rows)
    assert len(study.seeds) >= 2
    assert study.match is not None


def test_no_shipped_study_names_an_absolute_path() -> None:
    """The folder of the data is given with `--set root=DIR`."""
    for name in STUDIES:
        study, _ = load_study(name, {"root": "somewhere"})
        assert '"/' not in study.model_dump_json().replace('"select":"/', "")
        assert study.root == "somewhere"


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_a_shipped_study_plans_without_a_finding(name: str, tmp_path: Path) -> None:
    """`weft study run NAME --dry`, on toy files with the names of its data."""
    write_data(name, tmp_path / "data")

    plan = weft.Study(
        name, out=tmp_path / "out", overrides={"root": str(tmp_path / "data")}, gigaflops=10.0
    ).plan()

    assert plan.findings == []


@pytest.mark.slow
def test_each_row_for_small_data_trains(tmp_path: Path) -> None:
    """Two updates of each, with a tiny model on toy sentences."""
    name = "small-data-multi30k"
    write_data(name, tmp_path / "data")
    tiny = {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 1, "dropout": 0.1}
    changes = {
        "params.model": {"spec": "transformer-rotary", "params": tiny},
        "tokenizers.tokenizer": {"type": "bpe", "vocab_size": 40},
        "dropout": 1,
        "batch.tokens": 400,
        "checkpoint": {"every": 1, "keep": 2, "average": 2},
        "schedule": {"peak": 0.003},
        "evaluate": {"every": 2, "best": "nll", "samples": 0},
        "predict": {"type": "beam", "beam": 1, "max_extra": 4},
        "precision": "float32",
        "trackers": [],
        "threads": 1,
    }
    overrides = {"root": str(tmp_path / "data"), "set": changes, "seeds": [1], "budget.updates": 2}
    study = weft.Study(name, out=tmp_path / "out", overrides=overrides, gigaflops=10.0)

    report = study.run(processes=2)

    assert report.failed == {}
    assert {job.state for job in study.status()} == {"done"}
    shutil.rmtree(tmp_path / "out")


@pytest.mark.parametrize("name", STUDIES)
def test_a_description_can_be_a_caption(name: str) -> None:
    """The table of a paper tells no options of a command."""
    study, _ = load_study(name)
    assert "--" not in study.doc


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in DOCS.glob("*.md")))
def test_a_published_report_is_that_of_its_results(name: str, tmp_path: Path) -> None:
    """Written again from the packed results, without the data; all but the commands is the same."""
    study = weft.Study(name, out=tmp_path / "out")

    added, _ = study.unpack([DOCS / name])

    assert added
    study.report(tmp_path, forms=["md", "svg"])
    pages = ((folder / f"{name}.md").read_text() for folder in (tmp_path, DOCS))
    found, published = ([x for x in page.splitlines() if x[:5] != "weft "] for page in pages)
    assert found == published
    # Positions depend on the version of matplotlib.
    pictures = ((folder / f"{name}.svg").read_text() for folder in (tmp_path, DOCS))
    found, published = (re.findall(">([^<]+)</text>", picture) for picture in pictures)
    assert found == published


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


@pytest.mark.integration
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


@pytest.mark.integration
def test_trials_measure_no_test_set(finished: Finished) -> None:
    """Choices are made on the validation data alone."""
    study, _ = finished
    trials = [job for job in jobs_of(open_plan(study.folder), study.folder) if job.trial]

    assert len(trials) == 2 * len(PEAKS)
    for job in trials:
        result = json.loads((job.measured / "result.json").read_text())
        assert job.kind == SEARCH_TASK
        assert result["splits"].keys() == {"valid"}


@pytest.mark.integration
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


@pytest.mark.integration
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


@pytest.mark.integration
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


@pytest.mark.integration
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


@pytest.mark.integration
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


@pytest.mark.integration
def test_a_packed_study_has_its_tuning(finished: Finished, tmp_path: Path) -> None:
    """Elsewhere, the report needs neither data nor weights."""
    study, report = finished
    study.pack(tmp_path / "results")
    other = weft.Study(study.source, out=tmp_path / "other")
    other.unpack([tmp_path / "results"])

    record = other.report().record

    for part in ("tuning", "ladders", "tables", "sequential"):
        assert record[part] == report.record[part]


@pytest.mark.integration
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
