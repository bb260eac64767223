"""A report repeats each text of a stranger's study as text, in all of its forms."""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from weft.extensions.study.report.commands import commands
from weft.extensions.study.report.labels import labelled
from weft.extensions.study.report.latex import latex
from weft.extensions.study.report.page import page
from weft.extensions.study.report.plots import figures
from weft.extensions.study.report.text import report_markdown, table_csv

NUMBERS = {"mean": 30.0, "spread": 0.5, "low": 29.0, "high": 31.0}


def hostile(what: str) -> str:
    """Return a text that is a formula, an element, emphasis and a command, each with its origin.

    Its quotation mark would end an attribute, and its bracket the description of a picture.
    """
    return f'="><x-{what}>](x)*{what}*\\{what}'


def table(split: str, metric: str) -> dict[str, Any]:
    """Return the measurements of two rows in a metric."""
    names = [hostile("first"), hostile("second")]
    comparison = {
        "baseline": names[0],
        "other": names[1],
        "difference": 2.0,
        "low": 1.0,
        "high": 3.0,
        "p": 0.01,
        "adjusted": 0.01,
        "verdict": "better",
        "detectable": 1.5,
        "test": hostile("test"),
    }
    return {
        "split": hostile(split),
        "metric": hostile(metric),
        "label": hostile(f"{metric}-label"),
        "higher_is_better": True,
        "examples": 100,
        "looks": 2,
        "decimals": 2,
        "apart": [hostile("second")],
        "signature": hostile("signature"),
        "rows": [{"name": name, **NUMBERS} for name in names],
        "comparisons": [comparison],
    }


def row(name: str, seeds: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its runs."""
    return {
        "name": hostile(name),
        "label": hostile(f"{name}-label"),
        "doc": hostile(f"{name}-doc"),
        "ladder": hostile("ladder"),
        "solved": hostile("solved"),
        "changes": [hostile("change")],
        "tuned": {hostile("setting"): hostile("tuned")},
        "trials": [],
        "costs": {"parameters": 10, "updates": 20, "flops": 30, "memory": 40},
        "seeds": seeds,
        "trained": [seed for seed in seeds if seeds[seed]["state"] == "done"],
        "same_as": "",
    }


def study_record() -> dict[str, Any]:
    """Return a record with every part that a report shows, in which all texts are hostile."""
    done = {
        "state": "done",
        "job": hostile("job"),
        "training": {"seconds": 1.0},
        "splits": {hostile("split"): {"scores": {hostile("metric"): 30.0}}},
        "curve": [[1, 5.0], [2, 4.0]],
    }
    failed = {
        "state": "failed",
        "job": hostile("failed-job"),
        "curve": [],
        "error": hostile("error"),
    }
    tables = [table("split", "metric"), table("other-split", "other-metric")]
    metric = {"metric": hostile("metric"), "label": hostile("metric-label")}
    points = [
        {"values": {hostile("setting"): value}, "value": value, "states": ["done"]}
        for value in (0.5, 0.75)
    ]
    spent = {"updates": 5, "tokens": 50, "seconds": 5.0}
    steps = [
        {"row": hostile("first"), "size": 10, "mean": 3.0, "spread": 0.1, "values": [3.0]},
        {"row": hostile("second"), "size": 20, "mean": 2.0, "spread": None, "values": [2.0]},
    ]
    band = [[10, 3.0, 2.5, 3.5], [20, 2.0, 1.5, 2.5]]
    fit = {"factor": 1.0, "exponent": -0.1, "level": 0.95, "low": -0.2, "high": 0.0, "band": band}
    return {
        "study": hostile("study"),
        "doc": hostile("doc"),
        "weft": hostile("version"),
        "source": hostile("source"),
        "folder": hostile("folder"),
        "overrides": [hostile("override")],
        "baseline": hostile("first"),
        "level": 0.95,
        "power": 0.8,
        "seeds": 2,
        "curve": "nll",
        "pairs": "baseline",
        "rows": [
            row("first", {"1": done, "2": done}),
            row("second", {"1": done, "2": failed}),
            {**row("third", {"1": done, "2": done}), "same_as": hostile("second")},
            {**row("fourth", {"1": done, "2": done}), "same_as": hostile("first")},
        ],
        "tables": tables,
        "primary": {key: tables[0][key] for key in ("split", "metric")},
        "selected": {**metric, "row": hostile("second"), "mean": 30.0},
        "lengths": {
            **metric,
            "split": hostile("split"),
            "words": [hostile("words")],
            "examples": [100],
            "rows": {hostile("first"): [30.0], hostile("second"): [32.0]},
        },
        "tuning": {
            **metric,
            "seeds": 1,
            "updates": 5,
            "higher_is_better": True,
            "rows": {
                hostile("first"): {
                    "points": points,
                    "chosen": points[0]["values"],
                    "edges": [hostile("edge")],
                }
            },
        },
        "target": {
            **metric,
            "value": 30.0,
            "stop": True,
            "rows": {hostile("first"): {"1": spent}, hostile("second"): {"1": None}},
        },
        "ladders": {
            hostile("ladder"): {
                **metric,
                "against": "parameters",
                "rates": "same",
                "points": steps,
                "fit": fit,
            }
        },
        "sequential": hostile("sequential"),
    }


class Elements(HTMLParser):
    """The names of the elements of a page, and its text."""

    def __init__(self, page: str) -> None:
        """Read a page."""
        super().__init__()
        self.names: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, _attrs: object) -> None:
        """Note an element."""
        self.names.add(tag)

    def handle_data(self, data: str) -> None:
        """Note text."""
        self.text += data


SHOWN = (
    *("study", "doc", "first-label", "second-doc", "metric-label", "solved", "change", "tuned"),
    *("error", "failed-job", "split", "other-split", "edge", "setting", "ladder", "sequential"),
)
"""Texts that both the page and the Markdown show."""


def marked(text: str) -> Iterator[str]:
    """Yield the kinds of what is no text in Markdown: emphasis, elements, pictures and links."""
    for block in MarkdownIt("commonmark", {"html": True}).enable("table").parse(text):
        for part in [block, *(block.children or ())]:
            if part.type in ("em_open", "html_inline", "html_block", "image", "link_open"):
                yield part.type


def test_no_text_is_an_element_of_the_page(tmp_path: Path) -> None:
    """Also not in a title, an attribute or a figure."""
    record = labelled(study_record())
    drawn = {name: file.decode() for name, file in figures(record, "svg").items()}

    elements = Elements(page(record, tmp_path, drawn))

    assert not {name for name in elements.names if name.startswith("x-")}
    assert all(hostile(what) in elements.text for what in (*SHOWN, "signature", "version"))


def test_no_text_is_markup_in_markdown() -> None:
    """Also not in a heading."""
    written = report_markdown(labelled(study_record()), {"effects": "a.svg", "ladders": "b.svg"})

    assert [*marked(written)] == ["image", "image"]
    assert all(f"x-{what}>" in written for what in SHOWN)


def test_no_text_is_a_command_of_latex() -> None:
    r"""Only `\x-`, in which the name of the command ends at the hyphen, would be left."""
    written = latex(labelled(study_record()))

    commands = set(re.findall(r"\\([a-z]+)", written))
    assert not commands & {what.partition("-")[0] for what in SHOWN}
    assert "same as" in written


def test_no_text_is_a_formula_of_a_table() -> None:
    """A spreadsheet computes a cell that begins with an equals sign."""
    [_, *lines] = csv.reader(io.StringIO(table_csv(study_record())))

    assert lines
    assert not [cell for line in lines for cell in line if cell.startswith("=")]
    assert lines[0][0] == f"'{hostile('first')}"


def test_no_text_is_a_command_of_a_shell() -> None:
    """Who copies the commands of a report starts no others: each text is one word."""
    for line in commands(study_record()):
        words = shlex.split(line, comments=True)

        assert words[:2] in (["weft", "study"], ["weft", "train"])
        assert len(words) == (8 if words[1] == "study" else 5)


def test_no_text_is_an_element_of_a_figure() -> None:
    """A picture may be opened by itself, and would then run a script."""
    drawn = figures(labelled(study_record()), "svg")

    assert drawn.keys() == {"effects", "curves", "tuning", "ladders"}
    for picture in drawn.values():
        assert not {name for name in Elements(picture.decode()).names if name.startswith("x-")}
