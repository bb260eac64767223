"""Tests of the evaluation of params, in any order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.graphs.checker.declarations import check_requirements, evaluate_params
from weft.graphs.checker.records import (
    MISSING,
    FindingSet,
    ParamValues,
    TooManyFindingsError,
    holds_missing,
)
from weft.specs.findings import MOST, Finding
from weft.specs.load import loaded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.specs.form import SpecForm


def spec_with(params: Mapping[str, Any], require: tuple[str, ...] = ()) -> SpecForm:
    """Return a spec with params only."""
    rest = {"format": 1, "name": "p", "axes": {}, "inputs": {}, "outputs": {"y": "x"}, "nodes": {}}
    return loaded({**rest, "params": params, "require": require}).form


def evaluated(
    params: Mapping[str, Any], overrides: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], list[Finding]]:
    """Return the values of params, and the findings."""
    findings = FindingSet()
    values = evaluate_params(spec_with(params), overrides or {}, findings)
    return values.resolved, findings.all


@pytest.mark.parametrize(
    ("params", "values"),
    [
        ({"b": "=a*2", "a": 3}, {"a": 3, "b": 6}),
        ({"c": "=b", "b": "=a", "a": "word"}, {"a": "word", "b": "word", "c": "word"}),
        ({"a": 2.0, "b": "=a/4", "c": "=a/2"}, {"a": 2, "b": 0.5, "c": 1}),
        (
            {"a": {"use": "x@1", "params": {"n": "=b"}}, "b": 1},
            {"a": {"use": "x@1", "params": {"n": 1}}, "b": 1},
        ),
        ({"a": ["=b", {"c": "=b+1"}], "b": 1}, {"a": [1, {"c": 2}], "b": 1}),
        ({"a": True, "b": None, "c": "= a"}, {"a": True, "b": None, "c": True}),
        ({"a": 3, "b": "=a > 2"}, {"a": 3, "b": True}),
    ],
)
def test_values_do_not_depend_on_order(params: dict[str, Any], values: dict[str, Any]) -> None:
    """Names in lists and block choices count too; an integer value is an int."""
    backwards = dict(reversed(params.items()))

    for written in (params, backwards):
        found, findings = evaluated(written)
        assert findings == []
        assert found == values
        assert {k: type(v) for k, v in found.items()} == {k: type(v) for k, v in values.items()}


def test_an_override_wins_over_the_text() -> None:
    """Readers of the param use the override."""
    assert evaluated({"a": 1, "b": "=a+1"}, {"a": 5})[0] == {"a": 5, "b": 6}


def test_an_override_may_read_other_params() -> None:
    """Params of the spec, overridden or not."""
    assert evaluated({"a": 1, "b": 2}, {"b": "=a*10", "a": 7})[0] == {"a": 7, "b": 70}


@pytest.mark.parametrize(
    ("params", "found"),
    [
        ({"a": "=a"}, [("E04", "/params/a")]),
        ({"a": "=b", "b": "=c", "c": "=a+1"}, [("E04", "/params/a")]),
        ({"a": "=b", "b": "=a", "c": "=a*2", "d": "=c"}, [("E04", "/params/a")]),
        ({"a": "=x"}, [("E02", "/params/a")]),
        ({"a": "=x+y"}, [("E02", "/params/a"), ("E02", "/params/a")]),
        ({"a": "=x", "b": "=a", "c": "=b+1"}, [("E02", "/params/a")]),
        ({"a": "=1/0", "b": "=a//2", "c": ["=b"]}, [("E01", "/params/a")]),
        ({"a": "=1+", "b": "=(2"}, [("E01", "/params/a"), ("E01", "/params/b")]),
        ({"a": "word", "b": "=a+1"}, [("E01", "/params/b")]),
        ({"a": {"params": {"n": "=zz"}}}, [("E02", "/params/a/params/n")]),
        ({"a": ["=1", "=1/0"]}, [("E01", "/params/a/1")]),
    ],
)
def test_an_invalid_param_is_reported_only_at_its_place(
    params: dict[str, Any], found: list[tuple[str, str]]
) -> None:
    """Readers of a param without a value give no further findings."""
    values, findings = evaluated(params)

    assert [(f.code, f.at) for f in findings] == found
    assert values.keys() == params.keys()


@given(st.dictionaries(st.sampled_from("abcd"), st.text("abcd=+1 /(", max_size=6), min_size=1))
def test_any_params_have_values_or_findings(params: dict[str, str]) -> None:
    """A param has no value exactly if there is a finding."""
    values, findings = evaluated(params)

    assert holds_missing(list(values.values())) == bool(findings)


@pytest.mark.parametrize(
    ("require", "found"),
    [
        ("a == 1", []),
        ("a < b", []),
        ("a > b", ["E05"]),
        ("a", ["E01"]),
        ("word", ["E01"]),
        ("a == word", ["E01"]),
        ("a == c", ["E02"]),
        ("a ==", ["E01"]),
        ("none > 1", []),
    ],
)
def test_requirements(require: str, found: list[str]) -> None:
    """A comparison that holds, or one finding; none if a param has no value."""
    spec = spec_with({"a": 1, "b": 2, "word": "x", "none": "=1/0"}, (require,))
    findings = FindingSet()
    values = evaluate_params(spec, {}, findings)
    findings.all.clear()

    check_requirements(spec, values, findings)

    assert [f.code for f in findings.all] == found
    assert {f.at for f in findings.all} <= {"/require/0"}
    assert all(f"'{require}'" in f.problem for f in findings.all)


def test_a_requirement_without_params_can_only_be_removed() -> None:
    """It has no params to change."""
    findings = FindingSet()
    spec = spec_with({}, ("1 > 2",))

    check_requirements(spec, evaluate_params(spec, {}, findings), findings)

    assert [(f.help, f.evidence) for f in findings.all] == [("remove it: it reads no param", ())]


def test_a_param_is_blamed_once_and_where_it_is_written() -> None:
    """`=a` refers through `b` to the place of the value."""
    values = ParamValues({"a": "=b", "b": 3, "c": "=d", "d": "=c"}, lambda **_: None)

    assert values.blame("=a", "/here") == "/params/b"
    assert values.blame("= b", "/there") is None
    assert values.blame("=b+1", "/here") == "/here"
    assert values.blame(7, "/here") == "/here"
    assert values.place_of("c") in ("/params/c", "/params/d")


def test_a_missing_value_shows_as_unknown() -> None:
    """It may occur in a message."""
    assert repr(MISSING) == "?"


def test_a_finding_is_given_once_and_findings_end() -> None:
    """Duplicates are removed, and a long list ends with a finding that says so."""
    findings = FindingSet("mine.json")
    for _ in range(2):
        for index in range(MOST):
            findings.report(code="P01", at=f"/{index}", problem="wrong")

    with pytest.raises(TooManyFindingsError):
        findings.report(code="P01", at="/more", problem="wrong")

    assert len(findings.all) == MOST + 1
    assert {f.source for f in findings.all} == {"mine.json"}
    assert findings.all[-1].code == "S08"
