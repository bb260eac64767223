"""Tests of the page of a plan: what `weft study check --draw` writes before anything trains."""

from __future__ import annotations

import json
import re
import shutil
from base64 import b64decode, b64encode
from html.parser import HTMLParser
from pathlib import Path

import pytest
import weft
from weft.extensions.study.planning.table import size
from weft.extensions.study.report import page as page_module
from weft.extensions.study.report.page import cell, drawn_row
from weft.runtime.cli.main import main
from weft.runtime.metrics.digits import duration
from weft.specs.escaping import html_text
from weft.specs.findings import InputError

from .conftest import ROWS, SMALL, SWIGLU, Writer

pytestmark = pytest.mark.integration

Capture = pytest.CaptureFixture[str]
SVG = "data:image/svg+xml;base64,"
DOT = pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz is not installed")


class Page(HTMLParser):
    """The cells of the tables of a page, line by line, its links and names, and each row's text."""

    def __init__(self, text: str) -> None:
        """Read a page."""
        super().__init__()
        self.lines: list[list[str]] = []
        self.links: list[str] = []
        self.images: list[bytes] = []
        self.names: list[str] = []
        self.rows: list[str] = []
        self.pictures: list[int] = []
        """Number of the row that contains each picture."""
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        given = dict(attrs)
        self._inside.append(tag)
        found = [v or "" for k, v in attrs if k in ("href", "src") or k.endswith(":href")]
        self.images += [b64decode(link.removeprefix(SVG)) for link in found if link.startswith(SVG)]
        self.links += [link for link in found if not link.startswith(SVG)]
        self.names += [given["id"] or ""] if tag == "div" and "id" in given else []
        if tag == "tr":
            self.lines.append([])
        elif tag in ("td", "th"):
            self.lines[-1].append("")
        elif tag == "details":
            assert "open" in given
            self.rows.append("")
        elif tag == "img":
            self.pictures.append(len(self.rows) - 1)

    def handle_endtag(self, tag: str) -> None:
        """Note the end of a tag."""
        while self._inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        """Add a text to its cell or row."""
        if {"td", "th"} & {*self._inside}:
            self.lines[-1][-1] += data
        elif "details" in self._inside:
            self.rows[-1] += data


def drawn(path: Path, to: Path, *words: str) -> tuple[int, Page]:
    """Write the page of a study; return the exit code and the page."""
    code = main(["study", "check", str(path), "--speed", "2", "--draw", str(to), *words])
    return code, Page(to.read_text())


def test_the_page_has_the_costs_of_each_row_and_of_all(toy_study: Writer, tmp_path: Path) -> None:
    """The figures of the plan, with the difference of a size that is another one, and the sum."""
    path = toy_study(doc="Is it 100 % & <b>?")
    plan = weft.Study(path, gigaflops=2.0).plan()

    code, page = drawn(path, tmp_path / "plan.html")

    assert code == 0
    assert page.lines[0] == [
        "row", "parameters", "FLOPs", "decoding", "memory", "updates", "one run", "all runs"
    ]  # fmt: skip
    base = plan.rows[0]
    for line, row in zip(page.lines[1:-1], plan.rows, strict=True):
        sizes = []
        for value, usual in ((row.parameters, base.parameters), (row.flops, base.flops)):
            more = f"{100 * (value - usual) / usual:+.2f}% " if value != usual else ""
            sizes.append(f"{more}{value:,}")
        assert line == [
            row.name,
            *sizes,
            size(row.decode_state),
            size(row.memory),
            "4",
            duration(row.seconds),
            duration(2 * row.seconds),  # two seeds
        ]
    assert page.lines[2][1].startswith("+")  # a third matrix
    assert (page.lines[-1][0], page.lines[-1][-1]) == (
        "all",
        duration(2 * sum(row.seconds for row in plan.rows)),
    )
    text = (tmp_path / "plan.html").read_text()
    assert "Is it 100 % &amp; &lt;b&gt;?" in text
    assert "training at 2.0 GFLOP/s" in text


@DOT
def test_each_row_is_told_and_drawn(toy_study: Writer, tmp_path: Path) -> None:
    """Below the table, which links to it; a row with another setting of the run has no drawing."""
    rows = {**ROWS, "slow": {"doc": "Half the rate.", "set": {"schedule.peak": 0.0015}}}
    path = toy_study(rows=rows)
    plan = weft.Study(path).plan()

    _, page = drawn(path, tmp_path / "plan.html")

    assert page.links == ["#row-1", "#row-2", "#row-3"]
    assert page.names == ["row-1", "row-2", "row-3"]
    assert page.pictures == [0, 1]  # swiglu, and the loss of no-smoothing
    for text, row in zip(page.rows, plan.rows[1:], strict=True):
        assert text.startswith(row.name)
        assert row.doc in text
        assert all(line in text for line in row.changes)
    assert "schedule.peak  0.003 -> 0.0015" in page.rows[2]
    assert b"gated_feed_forward@1" in page.images[0]


@DOT
def test_the_page_draws_what_the_report_draws(toy_study: Writer, tmp_path: Path) -> None:
    """The same pictures, which `weft study run` writes into the folder of the study."""
    plan = weft.Study(toy_study()).plan()

    assert plan.draw(tmp_path / "plan.html") == []
    page_module.write_pictures(plan.plan, tmp_path)

    page = Page((tmp_path / "plan.html").read_text())
    for name, image in zip(ROWS, page.images, strict=True):
        picture = page_module.picture_of(tmp_path, name)
        assert picture[picture.index("<svg") :].encode() == image


def test_the_page_needs_no_network(toy_study: Writer, tmp_path: Path) -> None:
    """It links to its own parts, and loads nothing."""
    _, page = drawn(toy_study(), tmp_path / "plan.html")

    assert all(link.startswith("#") for link in page.links)
    text = (tmp_path / "plan.html").read_text().replace(f"src='{SVG}", "")
    assert not re.search(r"url\(|@import|<link|src=", text)
    images = b" ".join(page.images).decode()
    assert not re.search(r"url\(|@import|<image|href=(?!\"#)", images)


def test_warnings_and_equal_rows_are_on_the_page(
    toy_study: Writer, tmp_path: Path, capsys: Capture
) -> None:
    """The time of a row that trains nothing of its own is not counted twice."""
    path = toy_study(rows={"swiglu": SWIGLU, "twice": SWIGLU})
    plan = weft.Study(path, gigaflops=2.0).plan()
    assert plan.findings.warnings

    _, page = drawn(path, tmp_path / "plan.html")

    [warning] = plan.findings.warnings
    assert html_text(warning.render()) in (tmp_path / "plan.html").read_text()
    assert warning.problem in capsys.readouterr().err
    assert page.lines[3][-1] == "same as swiglu"
    assert page.lines[-1][-1] == duration(2 * (plan.rows[0].seconds + plan.rows[1].seconds))
    assert "same runs as swiglu" in page.rows[1]
    assert "All rows pass all checks." not in (tmp_path / "plan.html").read_text()


def test_a_matched_param_is_told(toy_study: Writer, tmp_path: Path) -> None:
    """Its value, and how much remains."""
    _, page = drawn(
        toy_study(rows={"swiglu": SWIGLU}, match={"param": "d_ff", "tolerance": 0.2}),
        tmp_path / "plan.html",
    )

    assert "by 'match'" in page.rows[0]


def test_json_is_printed_beside_the_page(
    toy_study: Writer, tmp_path: Path, capsys: Capture
) -> None:
    """Nothing but the JSON is on the standard output."""
    code, _ = drawn(toy_study(), tmp_path / "plan.html", "--json")

    said = capsys.readouterr()
    assert code == 0
    assert [row["name"] for row in json.loads(said.out)["rows"]] == ["baseline", *ROWS]
    assert f"written  {tmp_path / 'plan.html'}" in said.err


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_wrong_study_has_no_page(
    words: list[str], toy_study: Writer, tmp_path: Path, capsys: Capture
) -> None:
    """Its mistakes are printed instead, and the exit code is 1."""
    path, to = str(toy_study(rows={"a": {"params": {"hedas": 1}}})), tmp_path / "plan.html"

    assert main(["study", "check", path, "--speed", "2", "--draw", str(to), *words]) == 1
    assert "hedas" in "".join(capsys.readouterr())
    assert not to.exists()
    with pytest.raises(weft.SpecError, match="hedas"):
        weft.Study(path).plan().draw(to)


def test_another_suffix_is_refused_before_the_study_is_read(
    tmp_path: Path, capsys: Capture
) -> None:
    """The message names the one that there is."""
    words = ["study", "check", str(tmp_path / "none.json"), "--draw", str(tmp_path / "plan.svg")]

    assert main(words) == 1
    said = capsys.readouterr().err
    assert "'.svg'" in said
    assert "use one of .html" in said
    assert not (tmp_path / "plan.svg").exists()


def test_without_graphviz_the_page_says_less(
    toy_study: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """The differences stay in words, and the reason is printed once."""

    def missing(_: object) -> str:
        raise InputError("the program 'dot' is not installed")

    monkeypatch.setattr(page_module, "svg_of", missing)

    code, page = drawn(toy_study(), tmp_path / "plan.html")

    assert code == 0
    assert page.pictures == []
    assert len(page.rows) == len(ROWS)
    reason = "no picture of the row 'swiglu' and 1 more: the program 'dot' is not installed"
    assert reason in capsys.readouterr().err


def test_a_row_without_a_difference_says_so(toy_study: Writer, tmp_path: Path) -> None:
    """A row that sets what the baseline has."""
    rows = {"equal": {"params": {"heads": SMALL["heads"]}}}
    _, page = drawn(toy_study(rows=rows), tmp_path / "plan.html")

    assert "no difference" in page.rows[0]


def test_texts_of_cells_and_rows_are_not_markup() -> None:
    """Names, docs and changes are escaped; a cell may have markup, and sorts by its number."""
    assert cell("<b>1</b>", 1.5, kind="same") == '<td data-value="1.5" class="same"><b>1</b></td>'
    found = "".join(drawn_row("a", "<i>", ["x < y"], "<svg></svg>", "&"))
    assert "<span>&lt;i&gt;</span>" in found
    assert "<pre>x &lt; y</pre>" in found
    image = b64encode(b"<svg></svg>").decode()
    assert f"<div class='picture'><img alt='' src='{SVG}{image}'></div>" in found
    assert "<p class='note'>&amp;</p>" in found
    assert "<details>" in found
