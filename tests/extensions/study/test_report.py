"""Tests of the report: its figures, and its forms."""

from __future__ import annotations

import csv
import html
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
from weft.extensions.study.jobs import Job
from weft.extensions.study.loading import load_study
from weft.extensions.study.planning.plan import plan_study
from weft.extensions.study.report import page as page_module
from weft.extensions.study.report.conclusions import conclude
from weft.extensions.study.report.labels import labelled
from weft.extensions.study.report.page import page, picture_of, write_pictures
from weft.extensions.study.report.record import study_record
from weft.extensions.study.report.text import cells, failures, report_markdown
from weft.extensions.study.report.write import write_report
from weft.extensions.study.worker import run_job
from weft.runtime.cli.main import main
from weft.specs.escaping import markdown
from weft.specs.findings import InputError

from .conftest import ONE_ROW, ROWS, SMALL, SWIGLU, Writer, write_study
from .test_running import written

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished study, in which one job has failed."""
    folder = tmp_path_factory.mktemp("report")
    rows = {**ROWS, "a+b_c": {"set": {"schedule.peak": 1e30}}}
    jobs = written(write_study(folder, rows=rows, doc="Is it 100 % & <b>?"), folder / "out")
    for job in jobs:
        try:
            run_job(job.folder)
        except Exception:  # noqa: BLE001 - the row that diverges
            assert job.row == "a+b_c"
    return folder / "out"


def job_of(out: Path, row: dict[str, Any], seed: str) -> Job:
    """Return a job of a row in a record."""
    return Job(out / "jobs" / row["seeds"][seed]["job"], row["name"], int(seed))


def test_figures_are_those_of_the_answers(out: Path) -> None:
    """SacreBLEU's chrF of the written answers, and its mean and deviation over seeds."""
    record = study_record(out)
    references = (out.parent / "test.tgt").read_text().splitlines()
    table = next(t for t in record["tables"] if (t["split"], t["metric"]) == ("toy", "chrf"))

    for row in record["rows"][:3]:
        scores = []
        for seed in ("1", "2"):
            lines = (job_of(out, row, seed).measured / "toy.answers.jsonl").read_text().splitlines()
            answers = [json.loads(line) for line in lines]
            scores.append(sacrebleu.corpus_chrf(answers, [references]).score)
        found = next(one for one in table["rows"] if one["name"] == row["name"])
        assert found["mean"] == pytest.approx(np.mean(scores))
        assert found["spread"] == pytest.approx(np.std(scores, ddof=1))
    assert record["primary"] == {"split": "toy", "metric": "chrf"}
    assert len(table["comparisons"]) == 2  # the row that failed is not compared
    assert record["selected"]["metric"] == "chrf"


def test_lengths_divide_all_examples(out: Path) -> None:
    """Each example is in one group, and the groups are in order."""
    lengths = study_record(out)["lengths"]
    words = [len(line.split()) for line in (out.parent / "test.tgt").read_text().splitlines()]

    assert sum(lengths["examples"]) == len(words)
    bounds = [int(n) for title in lengths["words"] for n in title.split(" to ")]
    assert bounds == sorted(bounds)
    assert (bounds[0], bounds[-1]) == (min(words), max(words))


class _Page(HTMLParser):
    """Collects the tags of a page, and what they refer to."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.append(tag)
        self.links += [v or "" for k, v in attrs if k in ("href", "src") or k.endswith(":href")]


def test_the_page_needs_no_network_and_escapes_text(out: Path) -> None:
    """No links, no scripts from elsewhere; texts of the study are not markup."""
    _, paths = write_report(out)
    figures = [f"toy-study{name}.{form}" for form in ("svg", "pdf") for name in ("", "-curves")]
    assert [path.name for path in paths] == [
        *("toy-study.html", "toy-study.md"),
        *figures,
        *("toy-study.tex", "toy-study.csv", "toy-study.json"),
    ]
    text = paths[0].read_text()
    page = _Page()
    page.feed(text)

    assert all(link.startswith("#") for link in page.links)  # parts of pictures
    assert not re.search(r"url\((?!#)|@import|<link", text)
    assert "&amp; &lt;b&gt;?" in text
    assert page.tags.count("table") == 3
    assert "a+b_c, seed 1" in text  # the failure
    assert "failed: 2 of 2" in text


def test_tables_have_a_line_for_each_row(out: Path) -> None:
    """In Markdown, LaTeX and CSV, with the same values as in the record."""
    record, paths = write_report(out)
    head, lines = cells(record)
    assert [line[0] for line in lines] == [row["name"] for row in record["rows"]]
    assert {len(line) for line in lines} == {len(head)}

    by_suffix = {path.suffix: path for path in paths}
    tex = by_suffix[".tex"].read_text()
    body = tex[tex.index(r"\midrule") : tex.index(r"\bottomrule")].strip().splitlines()[1:]
    assert len(body) == 4
    assert r"a+b\_c$^{a}$ & " in body[3]
    assert "$^{a}$ failed: 2 of 2 seeds." in tex
    assert r"100 \% \&" in tex
    with by_suffix[".csv"].open(newline="") as file:
        found = list(csv.DictReader(file))
    assert len(found) == 3 * 2 * 2 * 2 + 2  # rows, seeds, splits and metrics; and two failures
    score = record["rows"][1]["seeds"]["2"]["splits"]["valid"]["scores"]["bleu"]
    [same] = [
        one
        for one in found
        if (one["row"], one["seed"], one["split"], one["metric"])
        == ("swiglu", "2", "valid", "bleu")
    ]
    assert float(same["value"]) == score
    assert json.loads(by_suffix[".json"].read_text())["study"] == "toy-study"


def test_a_row_has_the_picture_of_its_change(out: Path) -> None:
    """The gated layers are in it; a row that changes no graph has none; nothing is drawn twice."""
    study, source = load_study(out.parent / "study.json")
    plan = plan_study(study, source)

    problems = write_pictures(plan, out)

    if shutil.which("dot") is None:
        assert ["dot" in one for one in problems] == [True]
        return
    assert problems == []
    assert "gated_feed_forward@1" in picture_of(out, "swiglu")
    assert picture_of(out, "a+b_c") == ""
    [path] = [p for p in (out / "pictures").iterdir() if "gated" in p.read_text()]
    before = path.stat().st_mtime_ns
    write_pictures(plan, out)
    assert path.stat().st_mtime_ns == before


def test_a_picture_that_fails_leaves_the_others(
    toy_study: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The problem names its row."""
    rows = {"swiglu": SWIGLU, "one-head": {"params": {"heads": 1}}}
    study, source = load_study(toy_study(rows=rows))
    answers = iter([InputError("'dot' failed: trouble"), "<svg></svg>"])

    def drawn(_: object) -> str:
        answer = next(answers)
        if isinstance(answer, InputError):
            raise answer
        return answer

    monkeypatch.setattr(page_module, "svg_of", drawn)

    problems = write_pictures(plan_study(study, source), tmp_path)

    assert problems == ["no picture of the row 'swiglu': 'dot' failed: trouble"]
    assert "<svg>" in picture_of(tmp_path, "one-head")


def test_a_row_that_is_equal_to_another_is_no_further_evidence(done: Path, copy: Path) -> None:
    """It shows the figures of the other, and is neither pooled nor compared."""
    before = study_record(copy)
    equal = {"params": {"heads": SMALL["heads"]}}
    written(write_study(done, rows={**ONE_ROW, "equal": equal, "twice": SWIGLU}), copy)

    record = study_record(copy)

    assert record["tables"] == before["tables"]
    assert [row["same_as"] for row in record["rows"]] == ["", "", "baseline", "swiglu"]
    lines = {line[0]: line for line in cells(record)[1]}
    assert lines["equal"][2:] == [
        lines["baseline"][2],
        "",
        "",
        "same as baseline",
        *lines["equal"][6:],
    ]
    assert lines["twice"][1:5] == lines["swiglu"][1:5]
    assert lines["twice"][5] == f"{lines['swiglu'][5]} (same as swiglu)"
    assert "of 4 runs" not in " ".join(conclude(record).cannot)


def test_rows_with_other_examples_are_not_compared(done: Path, copy: Path) -> None:
    """Their mean is shown, and the other split is compared as before."""
    jobs = written(write_study(done, rows=ONE_ROW), copy)
    before = study_record(copy)
    for job in jobs:
        if job.row == "swiglu":
            task = job.task
            task["examples"]["toy"] = "of another file"
            (job.folder / job.kind).write_text(json.dumps(task))

    record = study_record(copy)

    apart = {(one["split"], one["metric"]): one for one in record["tables"]}
    for old in before["tables"]:
        new = apart[old["split"], old["metric"]]
        if old["split"] == "valid":
            assert new == old
            continue
        assert (new["apart"], new["comparisons"]) == (["swiglu"], [])
        assert [row["mean"] for row in new["rows"]] == [row["mean"] for row in old["rows"]]
    assert cells(record)[1][1][5] == "other examples"
    assert "Measured on other examples, and so not compared: swiglu." in conclude(record).cannot


def test_a_score_that_is_infinite_is_null_in_json(copy: Path) -> None:
    """Other programs refuse the word Infinity."""
    path = next((copy / "jobs").glob("*/measured/*/result.json"))
    result = json.loads(path.read_text())
    result["splits"]["valid"]["losses"]["nll"] = float("inf")
    path.write_text(json.dumps(result))
    assert "Infinity" in path.read_text()

    write_report(copy, forms=["json"])

    json.loads((copy / "report/toy-study.json").read_text(), parse_constant=pytest.fail)


def test_failed_trainings_are_named_with_their_job_and_the_reason(copy: Path) -> None:
    """Once for a job, however many rows share it."""
    record = study_record(copy)
    for row in record["rows"]:
        row["seeds"]["1"] |= {"job": "0123456789abcdef", "error": "a_b <c> at 7"}
    expected = "baseline, seed 1, jobs/0123456789abcdef: a_b <c> at 7"

    assert failures(record) == [expected]
    assert f"## Failures\n\n- {markdown(expected)}\n" in report_markdown(record)
    assert f"<ul class='failed'>\n<li>{html.escape(expected)}</li>" in page(
        labelled(record), copy, {}
    )


def test_a_study_without_finished_runs_has_a_report(tmp_path: Path) -> None:
    """It says that there is nothing to conclude."""
    written(write_study(tmp_path), tmp_path / "out")

    _, paths = write_report(tmp_path / "out")

    assert "No run has finished" in paths[1].read_text()


def test_chosen_forms_are_written_to_a_folder(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The Markdown shows the picture only if it is written too."""
    study, to = str(out.parent / "study.json"), out.parent / "docs"
    words = ["study", "report", study, "--out", str(out), "--to", str(to), "--form"]

    assert main([*words, "md"]) == 0
    assert [path.name for path in to.iterdir()] == ["toy-study.md"]
    assert "toy-study.svg" not in (to / "toy-study.md").read_text()
    assert main([*words, "md", "--form", "svg"]) == 0
    names = ["toy-study-curves.svg", "toy-study.md", "toy-study.svg"]
    assert sorted(path.name for path in to.iterdir()) == names
    assert "](toy-study.svg)" in (to / "toy-study.md").read_text()
    assert "2 of 8 runs have no result: a+b_c." in capsys.readouterr().out
    with pytest.raises(InputError, match="'png'"):
        write_report(out, to, ["png"])  # type: ignore[list-item]
