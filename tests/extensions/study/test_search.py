"""Tests of the search of a study: its space, the choice of trials, and its jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import weft
from weft.extensions.study.document import Search
from weft.extensions.study.loading import load_study, study_of
from weft.extensions.study.planning.plan import plan_study
from weft.extensions.study.planning.space import Axis, axes_of, row_at
from weft.extensions.study.report.search_report import _report, search_record
from weft.extensions.study.sampling import importances, is_worse, next_point
from weft.extensions.study.search import Searching
from weft.extensions.study.trials import StudyTrial, read_trials, write_trials
from weft.runtime.cli.main import main
from weft.specs.findings import SpecError

from .conftest import SWIGLU, Writer

FACTORS: dict[str, Any] = {
    "rate": {"set": "schedule.peak", "low": 1e-4, "high": 1e-1, "log": True},
    "heads": {"param": "heads", "values": [1, 2]},
    "feed-forward": {"levels": {"plain": {}, "swiglu": SWIGLU}},
}


def axes(factors: dict[str, Any] = FACTORS) -> list[Axis]:
    """Return the axes of a search."""
    value = {"format": 1, "name": "a", "run": "demo", "search": {"factors": factors}}
    return axes_of(study_of(value, "study.json"))


def trial(number: int, **changes: Any) -> StudyTrial:
    """Return a trial that is done."""
    rate, heads = 1e-4 * (1 + number), str(1 + number % 2)
    values = {"rate": rate, "heads": heads, "feed-forward": "plain"}
    return StudyTrial(**{"number": number, "values": values, "state": "done", **changes})


def problems(path: Path) -> dict[str, str]:
    """Return the errors of a study: place to code and problem."""
    found = weft.Study(path, gigaflops=1.0).plan().findings.errors
    return {one.at: f"{one.code} {one.problem}" for one in found}


def test_a_point_is_a_row_with_the_changes_of_all_factors() -> None:
    """Params, patches and settings together."""
    row = row_at(
        axes(), {"rate": 0.01, "heads": "2", "feed-forward": "swiglu"}, "trial-0", "study.json"
    )

    assert row.change.set == {"schedule.peak": 0.01}
    assert row.change.params == {"heads": 2}
    assert list(row.change.patch) == SWIGLU["patch"]


def test_a_grid_is_a_space_too() -> None:
    """Without factors of its own, a search takes those of the grid."""
    grid = {"factors": {"heads": {"param": "heads", "values": [1, 2]}}}
    value = {"format": 1, "name": "a", "run": "demo", "grid": grid, "search": {}}

    [axis] = axes_of(study_of(value, "study.json"))

    assert (axis.name, axis.at, [*axis.levels]) == ("heads", "/grid/factors/heads", ["1", "2"])


@pytest.mark.parametrize(
    ("factor", "problem"),
    [
        ({"param": "d_ff", "low": 8, "high": 4}, "less than"),
        ({"param": "d_ff", "low": 0, "high": 4, "log": True}, "above 0"),
        ({"param": "d_ff", "low": 4, "high": 8, "values": [4]}, "these alone|has 'low'"),
        ({"param": "d_ff", "low": 4, "high": 8, "set": "updates"}, "either 'param' or 'set'"),
        ({"param": "d_ff", "values": [4], "log": True}, "no effect"),
        ({"param": "d_ff"}, "needs 'values'"),
    ],
)
def test_a_wrong_factor_is_refused(factor: dict[str, Any], problem: str) -> None:
    """Before any run is read."""
    with pytest.raises(SpecError, match=problem):
        axes({"one": factor})


@pytest.mark.integration
def test_factors_that_name_nothing_are_findings_at_their_place(toy_study: Writer) -> None:
    """A param, a setting, a selector, a metric, and a factor all of whose levels are the same."""
    dead = {"select": "**/f[use=gated_feed_forward@1]", "set": {"params.activation": "relu"}}
    factors = {
        "hedas": {"param": "hedas", "values": [1, 2]},
        "clip": {"set": "optimizer.clp", "low": 0.1, "high": 1.0},
        "dead": {"levels": {"none": {}, "relu": {"patch": [dead]}}},
        "same": {"levels": {"one": {}, "two": {"params": {"heads": 2}}}},
        "seed": {"set": "seed", "values": [1, 2]},
    }
    found = problems(toy_study(search={"factors": factors, "metric": "bleux", "seeds": 3}))

    assert "hedas" in found["/search/factors/hedas"]
    assert "clp" in found["/search/factors/clip"]
    assert "nothing" in found["/search/factors/dead/levels/relu/patch/0/select"]
    assert found["/search/factors/same"].startswith("Y08")
    assert found["/search/factors/seed/set"].startswith("Y07")
    assert found["/search/metric"].startswith("Y08")
    assert found["/search/seeds"].startswith("Y08")


@pytest.mark.integration
def test_factors_must_not_change_the_same_thing(toy_study: Writer) -> None:
    """Else the row of a point would depend on their order."""
    factors = {
        "a": {"param": "heads", "values": [1, 2]},
        "b": {"levels": {"none": {"params": {"heads": 4}}, "other": {"params": {"heads": 2}}}},
    }

    assert "change 'heads'" in problems(toy_study(search={"factors": factors}))["/search"]


def test_the_next_point_follows_from_the_trials() -> None:
    """The same trials give the same point, so a killed search continues as it would have."""
    pytest.importorskip("optuna")
    found = [trial(number, value=float(number)) for number in range(6)]
    search = Search(factors={}, trials=20)

    first = next_point(axes(), found, search, higher_is_better=True)

    assert first == next_point(axes(), found, search, higher_is_better=True)
    assert first is not None
    assert axes()[0].has(first["rate"])
    assert first["heads"] in ("1", "2")
    other = search.model_copy(update={"seed": 2})
    assert first != next_point(axes(), found, other, higher_is_better=True)


def test_no_point_is_tried_twice() -> None:
    """A finite space ends."""
    pytest.importorskip("optuna")
    space = axes({"heads": FACTORS["heads"], "feed-forward": FACTORS["feed-forward"]})
    trials: list[StudyTrial] = []
    search = Search(factors={}, sampler="random")

    while (values := next_point(space, trials, search, higher_is_better=False)) is not None:
        trials.append(StudyTrial(number=len(trials), values=values, state="done", value=1.0))

    assert len(trials) == len({tuple(sorted(one.values.items())) for one in trials}) == 4


@pytest.mark.parametrize(("up", "stops"), [(True, True), (False, False)])
def test_a_trial_below_the_median_stops(up: bool, stops: bool) -> None:
    """At a validation at which the others were better; the direction is that of the metric."""
    pytest.importorskip("optuna")
    others = [trial(n, value=10.0 + n, curve=[5.0 + n, 10.0 + n]) for n in range(5)]
    running = trial(5, state="running", curve=[6.0])
    search = Search(factors={})

    assert is_worse(axes(), [*others, running], running, search, higher_is_better=up) is stops
    none = search.model_copy(update={"pruner": "none"})
    assert not is_worse(axes(), [*others, running], running, none, higher_is_better=up)


def test_the_factor_that_decides_is_the_most_important() -> None:
    """The value depends on the number of heads alone."""
    pytest.importorskip("optuna")
    found = [trial(n, value=float(n % 2)) for n in range(16)]

    shares = importances(axes(), found, higher_is_better=True)

    assert next(iter(shares)) == "heads"
    assert sum(shares.values()) == pytest.approx(1.0)
    assert importances(axes(), found[:3], higher_is_better=True) == {}


def test_trials_of_other_factors_are_left_out(tmp_path: Path) -> None:
    """After the space was edited; what is trained stays in the jobs."""
    inside = trial(0)
    write_trials(tmp_path, [inside, trial(1, values={**inside.values, "rate": 1.0})])

    assert read_trials(tmp_path, axes()) == (
        [inside],
        [trial(1, values={**inside.values, "rate": 1.0})],
    )


def searching(path: Path, out: Path) -> Searching:
    """Return the search of a study file, before it has begun."""
    study, source = load_study(path)
    return Searching(plan_study(study, source), source, out)


@pytest.mark.integration
def test_a_report_offers_no_row_that_changes_nothing(toy_study: Writer, tmp_path: Path) -> None:
    """A trial with the baseline's values has a score, but a study would refuse it as a row."""
    search = {"factors": {"feed-forward": FACTORS["feed-forward"]}}
    done = searching(toy_study(search=search), tmp_path)
    done.trials = [
        trial(number, values={"feed-forward": name}, value=2.0 - number, parameters=9)
        for number, name in enumerate(("plain", "swiglu"))
    ]

    text = "\n".join(_report(search_record(done, "toy", "weft study search toy")))

    rows = json.loads(text.partition("```json")[2].partition("```")[0])["rows"]
    assert rows == {"trial-1": SWIGLU}
    assert "| plain |" in text


@pytest.mark.integration
def test_values_of_other_settings_do_not_count(toy_study: Writer, tmp_path: Path) -> None:
    """A trial is measured again if its training is that of the study, and else left out."""
    search: dict[str, Any] = {"factors": {"heads": FACTORS["heads"]}}
    metrics = {"every": 2, "best": "nll", "samples": 0, "metrics": ["nll", "chrf"]}
    settings = {"evaluate": metrics}
    one = searching(toy_study(search=search, settings=settings), tmp_path)
    known = one._next(), one._next()
    for number, found in enumerate(known):
        assert found is not None
        [job] = one._jobs(found)
        found.state, found.value = "done", float(number)
        if number:
            (job.folder / "trained.json").write_text("{}")
    one._save()

    same = searching(toy_study(search=search, settings=settings), tmp_path)
    assert [(found.state, found.value) for found in same.trials] == [("done", 0.0), ("done", 1.0)]
    other = searching(toy_study(search={**search, "metric": "chrf"}, settings=settings), tmp_path)
    assert [(found.number, found.state, found.value) for found in other.trials] == [
        (1, "running", None)
    ]
    assert [found.number for found in other.others] == [0]
    longer = searching(toy_study(search=search, settings={**settings, "updates": 5}), tmp_path)
    assert longer.trials == []
    following = longer._next()
    assert following is not None
    assert following.number == 2
    longer._save()
    assert len(json.loads((tmp_path / "search.json").read_text())["trials"]) == 3


@pytest.mark.integration
def test_a_trial_that_breaks_a_requirement_is_refused(toy_study: Writer, tmp_path: Path) -> None:
    """As a row would be, before it trains."""
    factors = {"wide": {"param": "d_ff", "values": [32, 4096]}}
    require = [{"quantity": "parameters", "most": 20_000}]
    one = searching(toy_study(search={"factors": factors}, require=require), tmp_path)

    with pytest.raises(SpecError, match="more than 20,000"):
        one._jobs(StudyTrial(number=0, values={"wide": "4096"}))
    assert len(one._jobs(StudyTrial(number=1, values={"wide": "32"}))) == 1


@pytest.mark.integration
def test_a_level_that_cannot_be_measured_is_a_finding(toy_study: Writer) -> None:
    """`measure` holds for the rows of a search, too."""
    levels = {
        "mean": {"set": {"checkpoint.average": 2}},
        "none": {"set": {"checkpoint.average": 0}},
    }
    path = toy_study(search={"factors": {"average": {"levels": levels}}})

    [found] = weft.Study(path, gigaflops=1.0).plan().findings.errors

    assert found.at == "/measure/checkpoint"
    assert "averages nothing" in found.problem
    assert found.evidence == ("in the row 'average=none'",)


@pytest.mark.slow
def test_a_search_trains_each_point_once_and_measures_no_test_set(
    toy_study: Writer, tmp_path: Path
) -> None:
    """Repeated, it trains nothing, and the study reuses its jobs."""
    pytest.importorskip("optuna")
    factors = {"heads": {"param": "heads", "values": [1, 2]}, "wide": FACTORS["feed-forward"]}
    path = toy_study(rows={"one": {"params": {"heads": 1}}}, search={"factors": factors})
    out = tmp_path / "out"
    changed = ["--set", "compare.samples=200"]

    assert main(["study", "search", str(path), "--out", str(out), *changed]) == 0

    record = json.loads((out / "report/toy-study-search.json").read_text())
    assert record["trials"] == {"done": 4}
    assert record["metric"] == "nll"
    assert record["command"] == (f"weft study search {path} --set compare.samples=200 --out {out}")
    values = [one["value"] for one in record["best"]]
    assert values == sorted(values)
    jobs = sorted((out / "jobs").iterdir())
    assert len(jobs) == 4
    times = [(job / "trained.json").stat().st_mtime_ns for job in jobs]
    (out / "search.json").unlink()
    assert main(["study", "search", str(path), "--out", str(out)]) == 0
    assert [(job / "trained.json").stat().st_mtime_ns for job in jobs] == times
    assert {file.name.partition(".")[0] for file in out.glob("jobs/*/measured/*/*.npz")} == {
        "valid"
    }
    keys = {row.name: row.jobs[1] for row in weft.Study(path, out=out).plan().rows}
    assert {keys["baseline"], keys["one"]} <= {job.name for job in jobs}
