"""What a report says and draws of its comparisons, and its curves: functions of a record."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from weft.extensions.study.report.conclusions import conclude
from weft.extensions.study.report.effects import effects
from weft.extensions.study.report.pictures import curves


def compared(**verdicts: tuple[float, float, float, str]) -> dict[str, Any]:
    """Return a record whose rows have a difference, its interval, and a verdict."""
    pairs = [
        {
            "baseline": "baseline",
            "other": name,
            "difference": difference,
            "low": low,
            "high": high,
            "p": 0.01,
            "adjusted": 0.02,
            "verdict": verdict,
            "detectable": 1.5,
            "test": "t test",
        }
        for name, (difference, low, high, verdict) in verdicts.items()
    ]
    rows = [
        {
            "name": name,
            "costs": {"updates": 2000},
            "seeds": {"1": {"state": "done"}, "2": {"state": "done"}},
            "trained": ["1", "2"],
            "same_as": "",
        }
        for name in ("baseline", *verdicts)
    ]
    table = {"split": "test", "metric": "bleu", "higher_is_better": True, "examples": 1000}
    table["apart"] = []
    table["rows"] = [{"name": row["name"], "mean": 30.0} for row in rows]
    return {
        "baseline": "baseline",
        "pairs": "baseline",
        "power": 0.8,
        "seeds": 2,
        "rows": rows,
        "tables": [{**table, "comparisons": pairs}],
        "primary": {"split": "test", "metric": "bleu"},
    }


FOUR = {
    "small": (0.5, -0.5, 1.5, "not distinguishable"),
    "worse": (-1.0, -1.5, -0.5, "worse"),
    "best": (2.0, 1.0, 3.0, "better"),
    "<far>": (-20.0, -21.0, -19.0, "worse"),
}


@pytest.mark.parametrize(
    ("mean", "found"),
    [
        (31.79, "+0.03 [+0.01, +0.05] bleu"),
        (3.4164, "+0.031 [+0.012, +0.050] bleu"),
        (0.8712, "+0.0312 [+0.0121, +0.0503] bleu"),
        (1e-9, "+0.031200 [+0.012100, +0.050300] bleu"),
        (0.0, "+0.03 [+0.01, +0.05] bleu"),
    ],
)
def test_the_figures_of_a_small_metric_have_more_decimals(mean: float, found: str) -> None:
    """The largest mean has four digits: a loss of 3.416 or a correlation of 0.8712."""
    record = compared(a=(0.0312, 0.0121, 0.0503, "better"))
    for row in record["tables"][0]["rows"]:
        row["mean"] = mean

    assert conclude(record).can[0].startswith(f"a against baseline: {found}, better")
    assert found.removesuffix(" bleu") in effects(record)


def test_the_picture_shows_differences_to_scale() -> None:
    """Best first, equal distances for equal differences, and an arrow for one that is far away."""
    root = ET.fromstring(effects(compared(**FOUR)))
    name = "{http://www.w3.org/2000/svg}"
    rows = root.findall(f"{name}g")
    titles = [row.findtext(f"{name}title") for row in rows]
    points = [row.find(f"{name}circle") for row in rows]
    x, y = ([float(p.attrib[k]) for p in points[:3] if p is not None] for k in ("cx", "cy"))
    bars = [row.find(f"{name}line") for row in rows]

    assert titles == [
        "best: better",
        "small: not distinguishable",
        "worse: worse",
        "<far>: worse",
    ]
    assert y == sorted(y)
    # 2.0 to 0.5 is as far as 0.5 to -1.0; the interval of the first is 2.0 long.
    assert x[0] - x[1] == pytest.approx(x[1] - x[2], abs=0.2)
    assert bars[0] is not None
    length = float(bars[0].attrib["x2"]) - float(bars[0].attrib["x1"])
    assert length / (x[0] - x[1]) == pytest.approx(2.0 / 1.5, abs=0.01)
    assert points[3] is None
    assert rows[3].find(f"{name}polygon") is not None
    colors = [point.attrib["fill"] for point in points[:3] if point is not None]
    assert len(set(colors)) == 3


def test_one_difference_is_drawn_at_its_place() -> None:
    """Without an interval, and if it is zero."""
    pair = compared(one=(0.0, 0.0, 0.0, "not distinguishable"))
    pair["tables"][0]["comparisons"][0] |= {"low": None, "high": None}

    assert "+0.00</text>" in effects(pair)
    assert effects({**pair, "primary": None}) == ""


def test_infinite_and_very_large_differences_are_drawn_at_the_edge() -> None:
    """They do not determine the scale; an interval that leaves it has an arrow at that end."""
    chance = "not distinguishable"
    record = compared(
        nan=(float("nan"), float("nan"), float("nan"), "not tested"),
        a=(0.0, 0.0, 0.0, chance),
        b=(0.0, 0.0, 0.0, chance),
        c=(1.0, -1.0, 2.0, chance),
        wide=(0.5, -30.0, 31.0, chance),
    )
    root = ET.fromstring(effects(record))
    name = "{http://www.w3.org/2000/svg}"
    rows = {str(row.findtext(f"{name}title")).split(":")[0]: row for row in root.iter(f"{name}g")}

    assert [*rows] == ["c", "wide", "a", "b", "nan"]
    assert len(rows["wide"].findall(f"{name}polygon")) == 2
    assert not rows["c"].findall(f"{name}polygon")
    assert rows["nan"].find(f"{name}circle") is None
    assert "+nan" in effects(record)
    marks = [str(text.text) for text in root.findall(f"{name}text")[1:]]
    assert "+2" in marks
    assert "+30" not in marks
    for only in (float("inf"), float("nan")):
        ET.fromstring(effects(compared(x=(only, only, only, "not tested"))))


def test_pairs_of_rows_have_labels_with_both_names() -> None:
    """If all rows are compared with each other, no baseline is named."""
    record = compared(**FOUR) | {"pairs": "all"}

    text = effects(record)

    assert ">best against baseline</text>" in text
    assert "from baseline" not in text


def test_conclusions_say_what_is_open() -> None:
    """Differences that were found, best first; then those that may be chance, and the limits."""
    can, cannot = conclude(compared(**FOUR))

    assert [line.split()[0] for line in can] == ["best", "worse", "<far>"]
    assert can[0] == (
        "best against baseline: +2.00 [+1.00, +3.00] bleu, better"
        " (p = 0.020 after Holm's correction)."
    )
    assert cannot[0].startswith("small against baseline: +0.50 [-0.50, +1.50] bleu, not")
    assert "a difference of 1.50 would have been found with 80% probability" in cannot[0]
    assert "test, 1,000 examples, after 2,000 updates" in cannot[1]
    assert len(cannot) == 2

    wild = compared(one=(-10.0, -90.0, 70.0, "not distinguishable"))
    wild["tables"][0]["comparisons"][0]["detectable"] = 586.05
    assert "no difference below 30.00, the largest mean" in conclude(wild).cannot[0]
    assert "586" not in conclude(wild).cannot[0]

    untested = compared(one=(0.5, 0.5, 0.5, "not tested"))
    untested["tables"][0]["comparisons"][0] |= {
        "low": None,
        "high": None,
        "p": None,
        "adjusted": None,
        "detectable": None,
    }
    can, cannot = conclude(untested)
    assert can == ["No difference was found."]
    assert cannot[0] == "one against baseline: +0.50 bleu, not tested."

    record = compared(one=(0.5, -0.5, 1.5, "not distinguishable"))
    for row in record["rows"]:
        row["seeds"]["2"]["state"], row["trained"] = "waiting", ["1"]
    can, cannot = conclude(record)
    assert can == ["No difference was found."]
    assert "With one seed" in cannot[1]
    assert cannot[2] == "2 of 4 runs have no result: baseline, one."


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (99.9, 100.2, ["99.9", "100.0", "100.1", "100.2"]),
        (1_200, 1_300, ["1,200", "1,220", "1,240", "1,260", "1,280", "1,300"]),
    ],
)
def test_labels_of_the_axis_of_losses_differ(low: float, high: float, labels: list[str]) -> None:
    """They have the digits of the distance between them."""
    record = {"rows": [{"name": "a", "seeds": {"1": {"curve": [[1, low], [2, high]]}}}]}

    svg = curves(record)

    assert re.findall(r'text-anchor="end">([^<]+)<', svg) == labels


def test_each_of_many_rows_has_a_curve_of_its_own() -> None:
    """A line of the legend inside the picture, and another color or dash than all others."""
    count = 28
    record = {
        "rows": [
            {"name": f"row-{n}", "seeds": {"1": {"curve": [[1, 4.0 + n], [2, 3.0 + n]]}}}
            for n in range(count)
        ]
    }

    svg = curves(record)

    height = int(re.search(r'viewBox="0 0 \d+ (\d+)"', svg)[1])  # type: ignore[index]
    legend = re.findall(r'y="(\d+)" style="fill:[^>]+>(row-\d+)<', svg)
    assert [name for _, name in legend] == [f"row-{n}" for n in range(count)]
    assert max(int(y) for y, _ in legend) < height - 34
    looks = re.findall(r'<polyline points="[^"]+" (stroke=[^>]*)>', svg)
    assert len(set(looks)) == count
