"""The page of a study's report in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from weft.extensions.study.report.page import page as report_page
from weft.extensions.study.report.plots import figures

MEANS = {"baseline": 30.0, "heads-2": 31.5, "heads-16": 9.25, "failed": None}
"""Mean of each row; the last one has none."""


def recorded() -> dict[str, Any]:
    """Return the record of four rows with one metric."""
    rows = [
        {
            "name": name,
            "doc": "",
            "solved": "",
            "same_as": "",
            "key": name,
            "tuned": {},
            "changes": [],
            "trained": [] if mean is None else ["1", "2"],
            "costs": {"parameters": 10**6, "flops": 10**8, "memory": 10**8, "updates": 100},
            "seeds": {
                seed: {
                    "state": "failed" if mean is None else "done",
                    "job": f"{name}-{seed}",
                    "curve": [],
                }
                for seed in ("1", "2")
            },
        }
        for name, mean in MEANS.items()
    ]
    done = {name: mean for name, mean in MEANS.items() if mean is not None}
    pairs = [
        {
            "baseline": "baseline",
            "other": name,
            "difference": mean - 30,
            "low": mean - 31,
            "high": mean - 29,
            "p": 0.01,
            "adjusted": 0.02,
            "verdict": "better" if mean > 30 else "worse",
            "detectable": 1.5,
            "test": "t test",
        }
        for name, mean in done.items()
        if name != "baseline"
    ]
    table = {
        "split": "test",
        "metric": "bleu",
        "higher_is_better": True,
        "signature": "",
        "examples": 1000,
        "apart": [],
        "rows": [
            {"name": name, "mean": mean, "spread": 0.5, "low": mean - 1, "high": mean + 1}
            for name, mean in done.items()
        ],
        "comparisons": pairs,
    }
    return {
        "study": "heads",
        "doc": "How many heads?",
        "weft": "0",
        "source": "heads.json",
        "folder": "outputs/heads",
        "overrides": [],
        "baseline": "baseline",
        "pairs": "baseline",
        "level": 0.95,
        "power": 0.8,
        "seeds": 2,
        "curve": "nll",
        "rows": rows,
        "tables": [table],
        "primary": {"split": "test", "metric": "bleu"},
        "selected": None,
        "lengths": None,
        "tuning": None,
        "target": None,
        "ladders": {},
        "sequential": "",
    }


@pytest.fixture
def report(page: Any, tmp_path: Path) -> Any:
    """Return the page of a report from disk."""
    record, path = recorded(), tmp_path / "report.html"
    picture = figures(record, "svg", ["effects"])["effects"]
    path.write_text(report_page(record, tmp_path, {"effects": picture.decode()}))
    page.goto(path.as_uri())
    return page


def names(report: Any) -> list[str]:
    """Return the names of the rows from top to bottom."""
    return list(report.locator("tbody td:first-child").all_inner_texts())


def test_columns_are_sorted_by_keyboard(report: Any) -> None:
    """Tab reaches each heading, and Enter or space sorts; the empty row stays last."""
    report.locator(".wide:has(table)").focus()
    report.keyboard.press("Tab")
    report.keyboard.press("Enter")
    assert names(report) == ["baseline", "failed", "heads-2", "heads-16"]
    head = report.locator("th[aria-sort]")
    assert (head.inner_text(), head.get_attribute("aria-sort")) == ("row", "ascending")

    report.keyboard.press("Tab")
    report.keyboard.press("Space")
    assert names(report) == ["heads-16", "baseline", "heads-2", "failed"]
    report.keyboard.press("Space")
    assert names(report) == ["heads-2", "baseline", "heads-16", "failed"]
    head = report.locator("th[aria-sort]")
    assert (head.inner_text(), head.get_attribute("aria-sort")) == ("test bleu", "descending")


def test_a_narrow_page_scrolls_only_its_tables_and_pictures(report: Any) -> None:
    """The names of the rows stay in view."""
    report.set_viewport_size({"width": 400, "height": 800})
    assert report.evaluate("document.documentElement.scrollWidth") == 400

    report.locator(".wide:has(table)").evaluate("one => { one.scrollLeft = 300; }")
    box = report.locator("tbody td:first-child").first.bounding_box()
    assert box["x"] >= 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_asks_for_nothing(report: Any, scheme: str) -> None:
    """It is readable without a network in both color schemes."""
    asked: list[str] = []
    report.on("request", lambda request: asked.append(request.url))
    report.emulate_media(color_scheme=scheme)
    report.reload()
    assert asked == [report.url]
    look = "one => [getComputedStyle(one).color, getComputedStyle(document.body).backgroundColor]"
    colors = [
        [int(part) for part in color.removeprefix("rgb(").rstrip(")").split(", ")]
        for color in report.locator("h1").evaluate(look)
    ]
    ink, paper = (sum(color) for color in colors)
    assert (ink < paper) == (scheme == "light")
    assert abs(ink - paper) > 3 * 128
