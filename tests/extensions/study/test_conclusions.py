"""What a report says and draws of its comparisons, and its curves: functions of a record."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest
from weft.extensions.study.report.conclusions import conclude
from weft.extensions.study.report.plots import figures


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
        "tuning": None,
        "target": None,
        "ladders": {},
        "sequential": "",
    }


def drawn(record: dict[str, Any], name: str) -> str:
    """Return a figure as SVG; `""` if there is none."""
    return figures(record, "svg", [name]).get(name, b"").decode()


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


SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"


def texts(picture: str) -> list[str]:
    """Return all texts of a picture, in its order."""
    return [str(text.text) for text in ET.fromstring(picture).iter(f"{SVG}text")]


def marks(picture: str) -> dict[str, list[tuple[float, float, str]]]:
    """Return positions and style of all points and arrows, by kind; other marks are ticks."""
    root = ET.fromstring(picture)
    shapes = {f"#{path.get('id')}": path.attrib["d"] for path in root.iter(f"{SVG}path")}
    marks: dict[str, list[tuple[float, float, str]]] = {"point": [], "arrow": [], "tick": []}
    for use in root.iter(f"{SVG}use"):
        shape = shapes[use.attrib[LINK]]
        kind = "point" if "C" in shape else "arrow" if "z" in shape else "tick"
        marks[kind].append((float(use.attrib["x"]), float(use.attrib["y"]), use.attrib["style"]))
    return marks


@pytest.mark.integration
def test_the_picture_shows_differences_to_scale() -> None:
    """Best first, equal distances for equal differences, and an arrow for one that is far away."""
    picture = drawn(compared(**FOUR), "effects")

    titles = [text for text in texts(picture) if text in FOUR]
    assert titles == ["best", "small", "worse", "<far>"]
    points, [arrow] = marks(picture)["point"], marks(picture)["arrow"]
    x, y, looks = zip(*points, strict=True)
    assert [*y, arrow[1]] == sorted([*y, arrow[1]])
    # 2.0 to 0.5 is as far as 0.5 to -1.0.
    assert x[0] - x[1] == pytest.approx(x[1] - x[2])
    assert arrow[0] < x[2]
    assert len(set(looks)) == 3


@pytest.mark.integration
def test_an_interval_is_drawn_to_scale() -> None:
    """It is 2.0 long, and the differences 2.0 and 0.5 are 1.5 apart."""
    picture = drawn(compared(**FOUR), "effects")

    (best, line, look), (small, *_), *_ = marks(picture)["point"]
    color = look.partition("fill: ")[2][:7]
    paths = [path.attrib for path in ET.fromstring(picture).iter(f"{SVG}path")]
    [bar] = [path["d"].split() for path in paths if f"stroke: {color}; stroke-w" in path["style"]]
    assert float(bar[2]) == float(bar[5]) == line
    assert (float(bar[4]) - float(bar[1])) / (best - small) == pytest.approx(2.0 / 1.5)


@pytest.mark.integration
def test_a_picture_has_a_label_and_always_the_same_text() -> None:
    """It is a part of a page, where screen readers read the label; no date is in it."""
    record = compared(**FOUR)
    record["tables"][0]["metric"] = record["primary"]["metric"] = "<$x$>"

    picture = drawn(record, "effects")

    assert ET.fromstring(picture).attrib["aria-label"] == "differences in <$x$> on test"
    assert "difference in <$x$> from baseline, test" in texts(picture)
    assert picture == drawn(record, "effects")
    assert 'id="figure' not in picture


@pytest.mark.integration
def test_one_difference_is_drawn_at_its_place() -> None:
    """Without an interval, and if it is zero."""
    pair = compared(one=(0.0, 0.0, 0.0, "not distinguishable"))
    pair["tables"][0]["comparisons"][0] |= {"low": None, "high": None}

    assert "+0.00" in texts(drawn(pair, "effects"))
    assert len(marks(drawn(pair, "effects"))["point"]) == 1
    assert drawn({**pair, "primary": None}, "effects") == ""


@pytest.mark.integration
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
    picture = drawn(record, "effects")

    names = [text for text in texts(picture) if text in ("c", "wide", "a", "b", "nan")]
    assert names == ["c", "wide", "a", "b", "nan"]
    shown = marks(picture)
    assert len(shown["point"]) == 4
    assert [y for _, y, _ in shown["arrow"]] == [shown["point"][1][1]] * 2
    assert any("+nan" in text for text in texts(picture))
    assert "+2" in texts(picture)
    assert "+30" not in texts(picture)
    for only in (float("inf"), float("nan")):
        ET.fromstring(drawn(compared(x=(only, only, only, "not tested")), "effects"))


@pytest.mark.integration
def test_pairs_of_rows_have_labels_with_both_names() -> None:
    """If all rows are compared with each other, no baseline is named."""
    record = compared(**FOUR) | {"pairs": "all"}

    picture = drawn(record, "effects")

    assert "best against baseline" in texts(picture)
    assert "from baseline" not in picture


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


@pytest.mark.integration
@pytest.mark.parametrize(("low", "high"), [(99.9, 100.2), (1_200, 1_300), (1e-5, 2e-5)])
def test_labels_of_the_axis_of_losses_differ(low: float, high: float) -> None:
    """They have the digits of the distance between them, without an offset."""
    record = {"rows": [{"name": "a", "seeds": {"1": {"curve": [[1, low], [2, high]]}}}]}

    shown = texts(drawn(record, "curves"))

    labels = [
        float(text.replace(",", "").replace("\N{MINUS SIGN}", "-"))
        for text in shown[shown.index("updates") + 1 : -1]
    ]
    assert len({*labels}) == len(labels) > 2
    assert all(low - (high - low) <= label <= high + (high - low) for label in labels)


@pytest.mark.integration
def test_each_of_many_rows_has_a_curve_of_its_own() -> None:
    """A line of the legend inside the picture, and another color or dash than all others."""
    count = 28
    record = {
        "rows": [
            {"name": f"row-{n}", "seeds": {"1": {"curve": [[1, 4.0 + n], [2, 3.0 + n]]}}}
            for n in range(count)
        ]
    }

    root = ET.fromstring(drawn(record, "curves"))

    height = float(root.attrib["viewBox"].split()[3])
    legend = [text for text in root.iter(f"{SVG}text") if str(text.text).startswith("row-")]
    assert [text.text for text in legend] == [f"row-{n}" for n in range(count)]
    assert max(float(text.attrib["y"]) for text in legend) < height
    styles = [path.get("style", "") for path in root.iter(f"{SVG}path")]
    looks = [style for style in styles if "stroke-width: 1.5" in style]
    assert len(looks) == 2 * count  # also in the legend
    assert len({look.partition("; stroke-linecap")[0] for look in looks}) == count
