"""Statistics of what follows from results, and mistakes in what a study asks for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from weft.extensions.study.comparison import Comparison
from weft.extensions.study.document import StudySettings
from weft.extensions.study.loading import load_study
from weft.extensions.study.planning.plan import plan_study
from weft.extensions.study.planning.tune import best_of, edges_of
from weft.extensions.study.procedure import Sequential
from weft.extensions.study.report.ladders import fitted
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
