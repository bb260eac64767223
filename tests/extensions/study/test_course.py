"""The course of a study, and what it concludes."""

from __future__ import annotations

import math
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from scipy import stats
from weft.extensions.study.comparison import Comparison
from weft.extensions.study.document import StudySettings
from weft.extensions.study.loading import load_study
from weft.extensions.study.planning.plan import plan_study
from weft.extensions.study.planning.tune import best_of, edges_of
from weft.extensions.study.procedure import Sequential
from weft.extensions.study.report.conclusions import conclude
from weft.extensions.study.report.ladders import fitted
from weft.extensions.study.report.plots import figures
from weft.extensions.study.report.sequential import combined, open_pairs, shares_of
from weft.extensions.study.report.targets import spent
from weft.runtime.metrics.losses import Nll
from weft.runtime.metrics.text import Bleu, BleuLowercase, Chrf
from weft.specs.findings import SpecError

from .conftest import ONE_ROW, Writer


def compared(name: str, p: float, difference: float = 1.0) -> Comparison:
    """Return the comparison of a row with the baseline."""
    return Comparison(
        baseline="baseline",
        other=name,
        difference=difference,
        low=difference - 1,
        high=difference + 1,
        p=p,
        adjusted=None,
        verdict="not tested",
        detectable=None,
        test="t test",
    )


def test_shares_follow_the_spending_function_of_obrien_and_fleming() -> None:
    """Lan & DeMets 1983: 2 - 2 Phi(z / sqrt(t)) is 0.0056 and 0.05 at t of 1/2 and 1."""
    first, second = shares_of([2, 4], 0.05, "obrien_fleming")

    assert 0.05 * first == pytest.approx(0.00557, abs=1e-5)
    assert first + second == pytest.approx(1.0)
    assert shares_of([2, 3, 4, 5], 0.05, "equal") == [0.25] * 4


def test_a_p_value_of_several_looks_is_the_least_over_its_share() -> None:
    """0.01 / 0.25 and 0.03 / 0.75 are 0.04 both; Holm doubles the smaller of two rows."""
    looks = [[compared("a", 0.01), compared("b", 0.5)], [compared("a", 0.6), compared("b", 0.3)]]

    a, b = combined(looks, [0.25, 0.75], level=0.9, higher_is_better=True)

    assert a.p == pytest.approx(0.04)
    assert a.adjusted == pytest.approx(0.08)
    assert a.verdict == "better"
    assert b.p == pytest.approx(0.4)
    assert b.verdict == "not distinguishable"


def test_looking_several_times_keeps_the_error() -> None:
    """Of 2,000 studies of equal rows with four looks, at most 5 % find a difference (+ 3 sd)."""
    random = np.random.default_rng(1)
    looks = [3, 5, 7, 9]
    shares = shares_of(looks, 0.05, "obrien_fleming")
    first, second = random.normal(size=(2, 2000, looks[-1]))
    tests = [stats.ttest_ind(first[:, :n], second[:, :n], axis=1).pvalue for n in looks]
    corrected = [
        combined([[compared("a", p)] for p in ps], shares, level=0.95, higher_is_better=True)[0]
        for ps in zip(*tests, strict=True)
    ]
    false = np.mean([comparison.verdict == "better" for comparison in corrected])
    naive = np.mean(np.min(tests, axis=0) <= 0.05)

    limit = 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)
    assert 0 < false <= limit < naive


def test_a_comparison_closes_by_its_verdict_or_its_width() -> None:
    """An interval of width 2 is narrow enough for 2, and not for 1."""
    [better, open_] = combined(
        [[compared("a", 0.001), compared("b", 0.9)]], [1.0], level=0.95, higher_is_better=True
    )

    assert open_pairs([better, open_], Sequential(most=9)) == [open_]
    assert open_pairs([better, open_], Sequential(most=9, width=2)) == []
    wide = Sequential(most=9, width=1, decided=False)
    assert open_pairs([better, open_], wide) == [better, open_]


def test_the_best_value_is_the_first_of_equal_ones_and_never_one_that_failed() -> None:
    """NaN and missing values are not chosen."""
    assert best_of([2.0, 1.0, 1.0, math.nan, None], higher_is_better=False) == 1
    assert best_of([2.0, 1.0, 3.0], higher_is_better=True) == 2
    assert best_of([None, math.nan], higher_is_better=True) is None


def test_the_edges_of_a_list_are_its_extremes_but_for_zero() -> None:
    """Zero turns dropout off; words have no edge."""
    tried = [{"rate": rate, "drop": drop, "kind": "x"} for rate in (1, 2, 3) for drop in (0, 0.1)]

    assert edges_of(tried, {"rate": 2, "drop": 0, "kind": "x"}) == []
    assert len(edges_of(tried, {"rate": 3, "drop": 0.1, "kind": "x"})) == 2


def test_a_line_is_fitted_through_the_logarithms() -> None:
    """An exact power law, and scipy's interval for one that is not exact."""
    exact = fitted([(n, 5 * n**-0.25) for n in (10.0, 100.0, 1000.0)], 0.95)
    assert exact is not None
    assert exact["exponent"] == pytest.approx(-0.25)
    assert exact["factor"] == pytest.approx(5)

    points = [(1.0, 4.0), (2.0, 3.1), (4.0, 2.7), (8.0, 2.0)]
    line = fitted(points, 0.9)
    assert line is not None
    theirs = stats.linregress(*np.log(points).T)
    reach = stats.t.ppf(0.95, 2) * theirs.stderr
    assert (line["low"], line["high"]) == pytest.approx((theirs[0] - reach, theirs[0] + reach))
    assert fitted(points[:2], 0.9) is None
    assert fitted([*points, (16.0, -1.0)], 0.9) is None


def test_there_is_no_mean_time_to_a_target_that_some_seeds_miss() -> None:
    """The mean of those that reached it would favor rows of which few did."""
    at = {"updates": 10, "tokens": 100.0, "seconds": 1.0}
    rows = {"all": {"1": at, "2": {**at, "updates": 20}}, "some": {"1": at, "2": None}}
    target = {"rows": {**rows, "none": {"1": None}, "new": {}}}

    shown = {name: spent(target, name, "updates") for name in target["rows"]}
    assert shown == {"all": "15 ± 7", "some": "1 of 2 seeds", "none": "not reached", "new": ""}


def test_metrics_are_spelled_as_in_papers() -> None:
    """And a column or an output follows in brackets."""
    names = [
        Bleu().label,
        BleuLowercase().label,
        Chrf().label,
        Chrf(word_order=2).label,
        Nll(output="a").label,
    ]

    assert names == ["BLEU", "lower-cased BLEU", "chrF", "chrF++", "NLL (a)"]
    assert Bleu().reaches(30.0, 30.0)
    assert not Nll().reaches(2.0, 1.9)


RATES = {"values": {"schedule.peak": [0.001, 0.003]}}
SIZES = {"d_model": [8, 16, 32], "d_ff": [16, 32, 64]}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "empty list": ({"tune": {"values": {"schedule.peak": []}}}, "/tune/values/schedule.peak"),
    "nothing to tune": ({"tune": {"values": {"a": [1]}}}, "/tune/values/a"),
    "value twice": ({"tune": {"values": {"a": [1, 1]}}}, "/tune/values/a"),
    "trials without effect": ({"tune": {**RATES, "trials": 2}}, "/tune/trials"),
    "more seeds than the study": ({"tune": {**RATES, "seeds": 3}}, "/tune/seeds"),
    "row without tuning": ({"rows": {"a": {"unset": ["x"], "tune": False}}}, "/rows/a/tune"),
    "no bound": ({"sequential": {"step": 1}}, "/sequential"),
    "bound without effect": ({"sequential": {"most": 2}}, "/sequential/most"),
    "no reason to stop": ({"sequential": {"most": 9, "decided": False}}, "/sequential/decided"),
    "one seed to begin with": ({"seeds": [1], "sequential": {"most": 9}}, "/seeds"),
    "two sizes": (
        {"ladders": {"l": {"sizes": {"d_ff": [1, 2]}, "rates": "same"}}},
        "/ladders/l/sizes/d_ff",
    ),
    "sizes of other lengths": (
        {"ladders": {"l": {"sizes": {"d_ff": [1, 2, 3], "d": [1, 2, 3, 4]}, "rates": "same"}}},
        "/ladders/l/sizes/d",
    ),
    "rates that nothing tunes": (
        {"ladders": {"l": {"sizes": SIZES, "rates": "tune"}}},
        "/ladders/l/rates",
    ),
    "two rows of one label": ({"labels": {"baseline": "swiglu"}}, "/labels/baseline"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_setting_is_refused_at_its_place(toy_study: Writer, name: str) -> None:
    """Before any row is planned."""
    changes, at = WRONG[name]

    with pytest.raises(SpecError) as caught:
        load_study(toy_study(**{"rows": ONE_ROW, **changes}))

    assert at in [finding.at for finding in caught.value.findings]
    assert all(finding.help for finding in caught.value.findings)


UNFIT: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown setting": (
        {"tune": {"values": {"schedule.peek": [1, 2]}}},
        "S03",
        "/tune/values/schedule.peek",
    ),
    "value that a run refuses": (
        {"tune": {"values": {"accumulate": [1, -1]}}},
        "S04",
        "/tune/values/accumulate",
    ),
    "unmeasured metric of a tuning": ({"tune": {**RATES, "metric": "bleu"}}, "Y10", "/tune/metric"),
    "set and tuned": (
        {"tune": RATES, "rows": {"a": {"set": {"schedule.peak": 0.1}}}},
        "Y10",
        "/rows/a/set/schedule.peak",
    ),
    "tuned seed": ({"tune": {"values": {"seed": [1, 2]}}}, "Y10", "/tune/values/seed"),
    "unequal budgets": (
        {
            "tune": RATES,
            "rows": {"a": {"params": {"heads": 1}, "tune": {"schedule.peak": [0.1, 0.2, 0.3]}}},
        },
        "Y11",
        "/tune",
    ),
    "unmeasured target": ({"target": {"metric": "bleu", "value": 30}}, "Y12", "/target/metric"),
    "equal sizes": (
        {"ladders": {"l": {"sizes": {"dropout": [0.0, 0.1, 0.2]}, "rates": "same"}}},
        "Y13",
        "/ladders/l/sizes",
    ),
    "unmeasured metric of a ladder": (
        {"ladders": {"l": {"sizes": SIZES, "rates": "same", "metric": "ter"}}},
        "Y13",
        "/ladders/l/metric",
    ),
    "sizes that muP cannot carry": (
        {"ladders": {"l": {"sizes": SIZES, "rates": "mup"}}},
        "R04",
        "/ladders/l/sizes",
    ),
    "label of no row": ({"labels": {"swigl": "SwiGLU"}}, "Y01", "/labels/swigl"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_does_not_fit_the_rows_is_a_finding(toy_study: Writer, name: str) -> None:
    """With its code, the place in the study, and help."""
    changes, code, at = UNFIT[name]
    study, source = load_study(toy_study(**{"rows": ONE_ROW, **changes}))

    findings = [finding for finding in plan_study(study, source).findings if finding.code == code]

    assert at in [finding.at for finding in findings]
    assert all(finding.help and finding.source == source for finding in findings)


def test_trials_are_the_same_for_all_rows(toy_study: Writer) -> None:
    """A budget of three of six combinations, drawn alike; a ladder of muP tunes its first size."""
    values = {"schedule.peak": [0.001, 0.002, 0.003], "accumulate": [1, 2]}
    model = {"spec": "transformer-untied", "params": {"d_model": 8, "heads": 2, "layers": 1}}
    study, source = load_study(
        toy_study(
            rows={"smooth": {"set": {"params.label_smoothing": 0.2}}},
            tune={"values": values, "trials": 3},
            ladders={"l": {"sizes": {"d_model": [8, 16, 32], "heads": [2, 4, 8]}, "rates": "mup"}},
            settings={"params": {"model": model}},
        )
    )

    plan = plan_study(study, source)

    assert plan.errors == []
    tried = {row.name: [trial.row.tuned for trial in row.trials] for row in plan.rows}
    assert len(tried["baseline"]) == 3
    assert tried["smooth"] == tried["l=8"] == tried["baseline"]
    assert tried["l=16"] == tried["l=32"] == []
    assert [row.row.follows for row in plan.rows[-2:]] == ["l=8", "l=8"]


def test_seeds_that_are_added_are_the_next_unused_numbers() -> None:
    """The bound is the last look, also if the step does not divide the way to it."""
    study = StudySettings.model_validate(
        {
            "format": 1,
            "name": "s",
            "run": "r",
            "rows": {"a": {"unset": ["x"]}},
            "seeds": [2, 7],
            "sequential": {"most": 5, "step": 2},
        }
    )

    assert study.looks() == [2, 4, 5]
    assert study.all_seeds() == (2, 7, 1, 3, 4)


def conclusions_compared(**verdicts: tuple[float, float, float, str]) -> dict[str, Any]:
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
    record = conclusions_compared(a=(0.0312, 0.0121, 0.0503, "better"))
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
    picture = drawn(conclusions_compared(**FOUR), "effects")

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
    picture = drawn(conclusions_compared(**FOUR), "effects")

    (best, line, look), (small, *_), *_ = marks(picture)["point"]
    color = look.partition("fill: ")[2][:7]
    paths = [path.attrib for path in ET.fromstring(picture).iter(f"{SVG}path")]
    [bar] = [path["d"].split() for path in paths if f"stroke: {color}; stroke-w" in path["style"]]
    assert float(bar[2]) == float(bar[5]) == line
    assert (float(bar[4]) - float(bar[1])) / (best - small) == pytest.approx(2.0 / 1.5)


@pytest.mark.integration
def test_a_picture_has_a_label_and_always_the_same_text() -> None:
    """It is a part of a page, where screen readers read the label; no date is in it."""
    record = conclusions_compared(**FOUR)
    record["tables"][0]["metric"] = record["primary"]["metric"] = "<$x$>"

    picture = drawn(record, "effects")

    assert ET.fromstring(picture).attrib["aria-label"] == "differences in <$x$> on test"
    assert "difference in <$x$> from baseline, test" in texts(picture)
    assert picture == drawn(record, "effects")
    assert 'id="figure' not in picture


@pytest.mark.integration
def test_one_difference_is_drawn_at_its_place() -> None:
    """Without an interval, and if it is zero."""
    pair = conclusions_compared(one=(0.0, 0.0, 0.0, "not distinguishable"))
    pair["tables"][0]["comparisons"][0] |= {"low": None, "high": None}

    assert "+0.00" in texts(drawn(pair, "effects"))
    assert len(marks(drawn(pair, "effects"))["point"]) == 1
    assert drawn({**pair, "primary": None}, "effects") == ""


@pytest.mark.integration
def test_infinite_and_very_large_differences_are_drawn_at_the_edge() -> None:
    """They do not determine the scale; an interval that leaves it has an arrow at that end."""
    chance = "not distinguishable"
    record = conclusions_compared(
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
        ET.fromstring(drawn(conclusions_compared(x=(only, only, only, "not tested")), "effects"))


@pytest.mark.integration
def test_pairs_of_rows_have_labels_with_both_names() -> None:
    """If all rows are compared with each other, no baseline is named."""
    record = conclusions_compared(**FOUR) | {"pairs": "all"}

    picture = drawn(record, "effects")

    assert "best against baseline" in texts(picture)
    assert "from baseline" not in picture


def test_conclusions_say_what_is_open() -> None:
    """Differences that were found, best first; then those that may be chance, and the limits."""
    can, cannot = conclude(conclusions_compared(**FOUR))

    assert [line.split()[0] for line in can] == ["best", "worse", "<far>"]
    assert can[0] == (
        "best against baseline: +2.00 [+1.00, +3.00] bleu, better"
        " (p = 0.020 after Holm's correction)."
    )
    assert cannot[0].startswith("small against baseline: +0.50 [-0.50, +1.50] bleu, not")
    assert "a difference of 1.50 would have been found with 80% probability" in cannot[0]
    assert "test, 1,000 examples, after 2,000 updates" in cannot[1]
    assert len(cannot) == 2

    wild = conclusions_compared(one=(-10.0, -90.0, 70.0, "not distinguishable"))
    wild["tables"][0]["comparisons"][0]["detectable"] = 586.05
    assert "no difference below 30.00, the largest mean" in conclude(wild).cannot[0]
    assert "586" not in conclude(wild).cannot[0]

    untested = conclusions_compared(one=(0.5, 0.5, 0.5, "not tested"))
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

    record = conclusions_compared(one=(0.5, -0.5, 1.5, "not distinguishable"))
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
