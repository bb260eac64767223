"""Reports of studies, also as LaTeX and Markdown."""

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
from markdown_it import MarkdownIt
from weft.extensions.study.jobs import Job
from weft.extensions.study.loading import load_study
from weft.extensions.study.planning.plan import plan_study
from weft.extensions.study.report import page as page_module
from weft.extensions.study.report.conclusions import conclude
from weft.extensions.study.report.labels import labelled
from weft.extensions.study.report.latex import latex
from weft.extensions.study.report.page import page, picture_of, write_pictures
from weft.extensions.study.report.procedures import extra_tables
from weft.extensions.study.report.record import study_record
from weft.extensions.study.report.text import cells, failures, line, report_markdown, rule
from weft.extensions.study.report.write import write_report
from weft.extensions.study.worker import run_job
from weft.runtime.cli.main import main
from weft.specs.escaping import markdown, tex
from weft.specs.findings import InputError

from ...latex import compiled
from .conftest import ONE_ROW, ROWS, SMALL, SWIGLU, Writer, write_study
from .test_running import written

Reported = tuple[dict[str, Any], list[Path]]


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


@pytest.fixture(scope="module")
def reported(out: Path) -> Reported:
    """Return the record of the study, and the files of its report."""
    return write_report(out)


def job_of(out: Path, row: dict[str, Any], seed: str) -> Job:
    """Return a job of a row in a record."""
    return Job(out / "jobs" / row["seeds"][seed]["job"], row["name"], int(seed))


@pytest.mark.integration
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


@pytest.mark.integration
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


@pytest.mark.integration
def test_the_page_needs_no_network_and_escapes_text(reported: Reported) -> None:
    """No links, no scripts from elsewhere; texts of the study are not markup."""
    _, paths = reported
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


@pytest.mark.integration
def test_tables_have_a_line_for_each_row(reported: Reported) -> None:
    """In Markdown, LaTeX and CSV, with the same values as in the record."""
    record, paths = reported
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


@pytest.mark.integration
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


@pytest.mark.integration
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


@pytest.mark.integration
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


@pytest.mark.integration
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


@pytest.mark.integration
def test_a_score_that_is_infinite_is_null_in_json(copy: Path) -> None:
    """Other programs refuse the word Infinity."""
    path = next((copy / "jobs").glob("*/measured/*/result.json"))
    result = json.loads(path.read_text())
    result["splits"]["valid"]["losses"]["nll"] = float("inf")
    path.write_text(json.dumps(result))
    assert "Infinity" in path.read_text()

    write_report(copy, forms=["json"])

    json.loads((copy / "report/toy-study.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.integration
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


@pytest.mark.integration
def test_a_study_without_finished_runs_has_a_report(tmp_path: Path) -> None:
    """It says that there is nothing to conclude."""
    written(write_study(tmp_path), tmp_path / "out")

    _, paths = write_report(tmp_path / "out")

    assert "No run has finished" in paths[1].read_text()


@pytest.mark.integration
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


AWKWARD = r"""[x] #1 & 50 % of a_b~{c}^d \e `f` |g| <h> "i" --set j='k' é ł ß × ≤ … “l” -0.5"""
"""Every character that LaTeX interprets, and some beyond ASCII."""


def pair(name: str, difference: float, verdict: str) -> dict[str, Any]:
    """Return a comparison of a row with the baseline."""
    return {
        "baseline": "baseline",
        "other": name,
        "difference": difference,
        "low": difference - 1,
        "high": difference + 1,
        "p": 0.01,
        "adjusted": 0.0001,
        "verdict": verdict,
        "detectable": 1.5,
        "test": "t test",
    }


def recorded(
    names: tuple[str, ...], pairs: tuple[dict[str, Any], ...] = (), others: int = 0
) -> dict[str, Any]:
    """Return the record of rows with a mean of 30 in a metric and in some others."""
    rows = [
        {
            "name": name,
            "costs": {"parameters": 1_837_056},
            "seeds": {"1": {"state": "done"}, "2": {"state": "done"}},
            "trained": ["1", "2"],
            "same_as": "",
        }
        for name in names
    ]
    means = [{"name": name, "mean": 30.0, "spread": 0.5, "low": 29, "high": 31} for name in names]
    shared = {"split": "test", "higher_is_better": True, "examples": 1000, "apart": []}
    tables = [
        {**shared, "metric": metric, "rows": means, "comparisons": [*pairs]}
        for metric in ("bleu", *(f"other_{number}" for number in range(others)))
    ]
    return {
        "study": "a.study",
        "doc": "Which is better?",
        "baseline": "baseline",
        "pairs": "baseline",
        "level": 0.95,
        "rows": rows,
        "tables": tables,
        "primary": {"split": "test", "metric": "bleu"},
        "tuning": None,
        "target": None,
        "ladders": {},
        "sequential": "",
    }


TWO = ("baseline", "wide", "deep")
FOUND = (pair("wide", -2.0, "worse"), pair("deep", 0.25, "not distinguishable"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a & b % $ # _ { }", r"a \& b \% \$ \# \_ \{ \}"),
        ("\\ ~ ^", r"\textbackslash{} \textasciitilde{} \textasciicircum{}"),
        ("` |", r"\textasciigrave{} \textbar{}"),
        ("< > ± ×", r"$<$ $>$ $\pm$ $\times$"),
        ("\N{GREEK SMALL LETTER ALPHA} → Ω ≤ ∞", r"$\alpha$ $\to$ $\Omega$ $\le$ $\infty$"),
        ("a \N{EN DASH} b — c…", r"a -- b --- c\dots{}"),
        ('say "a b" ("c")', "say ``a b'' (``c'')"),
        ("it\N{RIGHT SINGLE QUOTATION MARK}s “so”", "it's ``so''"),
        ("--set root=DIR", r"-{}-set root=DIR"),
        ("a---b", "a-{}-{}-b"),
        ("two\n\nlines\tand\N{NO-BREAK SPACE}more", "two lines and more"),
        ("Gödel, Łódź", "Gödel, Łódź"),
    ],
)  # fmt: skip
def test_what_latex_interprets_is_escaped(text: str, expected: str) -> None:
    """An empty line would end the caption; two hyphens would become a dash."""
    assert tex(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-0.25", "$-$0.25"),
        ("[-1.41, +0.92]", "[$-$1.41, +0.92]"),
        ("\N{MINUS SIGN}3", "$-$3"),
        ("heads-16 and GPT-2", "heads-16 and GPT-2"),
        ("2020-2021, 1e-5", "2020-2021, 1e-5"),
    ],
)
def test_a_hyphen_before_a_number_is_a_minus(text: str, expected: str) -> None:
    """One inside of a name, a range or an exponent is not."""
    assert tex(text) == expected


def test_the_table_has_the_differences_of_the_first_metric() -> None:
    """Signs are minuses, what was found is bold, and the caption says what is shown."""
    lines = latex(recorded(TWO, FOUND)).splitlines()

    assert lines[0] == r"% Needs \usepackage{booktabs}."
    start, same = lines.index(r"\midrule"), r"1,837,056 & 30.00 $\pm$ 0.50"
    assert lines[start + 1 : start + 4] == [
        rf"baseline & {same} &  &  &  \\",
        rf"wide & {same} & \textbf{{$-$2.00}} & [$-$3.00, $-$1.00] & $<$ 0.001 \\",
        rf"deep & {same} & +0.25 & [$-$0.75, +1.25] & $<$ 0.001 \\",
    ]
    [caption] = [line for line in lines if line.startswith(r"\caption")]
    assert caption.startswith(r"\caption{Which is better? Metric: bleu on test, 1,000 examples. ")
    assert caption.endswith(" Bold differences from baseline are significant.}")
    assert r"\label{tab:a-study}" in lines


def test_columns_without_a_value_are_left_out() -> None:
    """Nothing is compared, so there are no differences."""
    text = latex(recorded(("baseline", "failed")))

    assert r"row & parameters & bleu \\" in text
    assert "ifferences" not in text


def test_a_note_on_a_row_is_in_the_caption() -> None:
    """Rows with the same note have the same letter."""
    record = recorded(("baseline", "a", "b", "c"))
    for row, same in zip(record["rows"][1:], ("baseline", "a", "a"), strict=True):
        row["same_as"] = same

    text = latex(record)

    assert [f"{name}$^{{{mark}}}$ & " in text for name, mark in ("aa", "bb", "cb")] == [True] * 3
    assert "$^{a}$ same as baseline. $^{b}$ same as a.}" in text


def test_large_tables_are_divided() -> None:
    """40 rows fit on a page, and three other measurements beside the names."""
    text = latex(recorded(tuple(f"row{number}" for number in range(41)), others=4))

    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 2 * (1 + 2)
    assert text.count("row40 & ") == 3
    labels = re.findall(r"\\label\{tab:a-study(.*?)\}", text)
    assert labels == ["", "-2", "-3", "-4", "-5", "-6"]


def test_a_bracket_at_the_start_of_a_line_is_no_argument() -> None:
    r"""After `\\`, LaTeX would read a length, or a star."""
    text = latex(recorded(("[x]", "*")))

    assert "\n{}[x] & " in text
    assert "\n{}* & " in text


def test_letters_that_pdflatex_cannot_set_are_listed() -> None:
    """They stay, because LuaLaTeX and XeLaTeX can set them."""
    text = latex(recorded(("語é語",)))

    assert text.splitlines()[1] == "% pdfLaTeX cannot set 語: use LuaLaTeX or XeLaTeX."
    assert "語é語 & " in text


@pytest.mark.integration
@pytest.mark.parametrize("options", ["", "twocolumn"])
def test_the_tables_fit_a_page(options: str, tmp_path: Path) -> None:
    """LaTeX sets them without an error, and nothing is wider or higher than the text."""
    long = "decoder.layers=4,decoder.heads=8,decoder.positions=relative_bias"
    names = ("baseline", "wide", AWKWARD, long, *(f"row-{number}" for number in range(60)))
    found = [pair(name, -123.456, "worse") for name in names[1:]]
    record = {**recorded(names, tuple(found), others=4), "doc": f"{AWKWARD}\n\nlast"}
    for one in record["tables"]:
        one["split"] = record["primary"]["split"] = "test_2016_flickr"
    record["rows"][1]["same_as"] = "baseline"
    (tmp_path / "table.tex").write_text(latex(record))

    printed = compiled(tmp_path, "\\input{table}", "booktabs", options=options)

    assert re.findall(r"Overfull.*|.*too large for page.*|.*Missing character.*", printed) == []


@pytest.mark.integration
def test_a_narrow_table_stays_in_its_column(tmp_path: Path) -> None:
    """Only a table that is wider spans both; both fit."""
    (tmp_path / "table.tex").write_text(latex(recorded(("a", "b"), (pair("b", 1.0, "better"),))))

    printed = compiled(tmp_path, "\\input{table}", "booktabs", options="twocolumn")

    assert "Overfull" not in printed


RENDERED = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def test_cells_stay_in_their_columns() -> None:
    """A bar or a backslash in a name does not end its cell."""
    names = ["a|b", "c\\|d", "e\\", "`f|g`", ""]
    lines = [line(["row", "x"]), rule(2), *(line([name, 1]) for name in names)]

    shown = RENDERED.render("\n".join(lines))

    cells = re.findall(r'<td>(.*)</td>\n<td style="text-align:right">(.*)</td>', shown)
    assert cells == [(name, "1") for name in names]


def test_tuned_numbers_are_columns_in_their_order() -> None:
    """Also if rows try other numbers, the first row larger ones."""

    def tried(*peaks: float) -> dict[str, Any]:
        points = [
            {"values": {"schedule.peak": peak}, "value": peak, "states": ["done"]} for peak in peaks
        ]
        return {"chosen": {"schedule.peak": peaks[0]}, "points": points, "edges": []}

    rows = {"large": tried(0.04, 0.08), "small": tried(0.002, 0.04)}
    tuning = {"metric": "nll", "seeds": 1, "updates": None, "rows": rows}

    [table] = extra_tables({"tuning": tuning, "target": None, "ladders": {}})

    peaks = [f"schedule.peak={peak}" for peak in (0.002, 0.04, 0.08)]
    assert table.head == ["row", *peaks]
    assert [[bool(cell) for cell in line[1:]] for line in table.lines] == [
        [False, True, True],
        [True, True, False],
    ]
