"""Slices against Python's on lists, their types by hand, and splits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ..single_node import computed, findings_of, results_of, spec_of, type_of

pytestmark = pytest.mark.exact

X = torch.arange(2 * 6 * 4.0).view(2, 6, 4)
IDS = torch.tensor([[3, 5, 6, 2, 0, 0], [3, 7, 8, 9, 4, 2]])


@pytest.mark.parametrize(
    ("params", "type_"),
    [
        ({"index": 0}, "[B]"),
        ({"index": -2}, "[B]"),
        ({"start": 2}, "[B T-2]"),
        ({"start": -4}, "[B 4]"),
        ({"start": -4, "stop": -1}, "[B 3]"),
        ({"stop": 3}, "[B 3]"),
        ({"stop": -1}, "[B T-1]"),
        ({"start": 1, "stop": -1}, "[B T-2]"),
        ({"start": 1, "stop": 6, "step": 2}, "[B 3]"),
        ({"start": -5, "step": 3}, "[B 2]"),
        ({"axis": "T", "start": -1}, "[B 1]"),
    ],
)
@pytest.mark.parametrize("kind", ["ids:11", "mask", "label:11", "f"])
def test_a_slice_of_any_kind_is_that_of_a_list(
    params: dict[str, Any], type_: str, kind: str
) -> None:
    """Rows are cut as Python cuts lists, and the type has the length of the result."""
    spec = spec_of("slice@1", {"x": f"{kind}[B T]"}, **params)
    x = IDS > 2 if kind == "mask" else IDS.float() if kind == "f" else IDS

    y = computed(spec, x=x)

    part = slice(params.get("start", 0), params.get("stop"), params.get("step"))
    rows: list[Any] = [
        row[params["index"]] if "index" in params else row[part] for row in x.tolist()
    ]
    assert y.tolist() == rows
    assert type_of(spec) == kind + type_


@pytest.mark.parametrize(
    ("x", "params", "y", "expected"),
    [
        ("f[B T 4]", {"start": -2}, "f[B 2 4]", X[:, 4:]),
        ("f[B T 4]", {"axis": "width", "stop": 1}, "f[B T 1]", X[..., :1]),
        ("f[B T 4]", {"axis": "width", "start": -3, "step": 2}, "f[B T 2]", X[..., [1, 3]]),
        ("f[B T 4]", {"axis": "4", "start": 1}, "f[B T 3]", X[..., 1:]),
        ("f[B T 4]", {"axis": "width", "index": -1}, "f[B T]", X[..., -1]),
        ("f[B T 4]", {"axis": "4", "index": 1}, "f[B T]", X[..., 1]),
        ("f[B 2*T 4]", {"step": 2}, "f[B T 4]", X[:, [0, 2, 4]]),
        ("f[B 2*T 4]", {"start": 1, "step": 2}, "f[B T 4]", X[:, [1, 3, 5]]),
        ("f[B 2*T 4]", {"stop": -1, "step": 2}, "f[B T 4]", X[:, [0, 2, 4]]),
        ("f[B 2*T 4]", {"start": 2, "step": 2}, "f[B T-1 4]", X[:, [2, 4]]),
        ("f[B 3*T 4]", {"axis": "3*T", "step": 3}, "f[B T 4]", X[:, [0, 3]]),
        ("f[B T+1 4]", {"start": 1}, "f[B T 4]", X[:, 1:]),
        ("f[2 B 4]", {"axis": "layer", "index": 1}, "f[B 4]", X[1]),
        ("f[2 B 4]", {"axis": "B", "start": 1}, "f[2 B-1 4]", X[:, 1:]),
    ],
)
def test_a_slice_takes_any_axis(
    x: str,
    params: dict[str, Any],
    y: str,
    expected: Tensor,
) -> None:
    """The elements are listed by hand."""
    spec = spec_of("slice@1", {"x": x}, **params)

    assert torch.equal(computed(spec, x=X), expected)
    assert type_of(spec) == y


@pytest.mark.parametrize(
    ("x", "params", "code", "problem"),
    [
        ("f[B T 4]", {"index": 0, "start": 1}, "P02", "'index' excludes 'start'"),
        ("f[B T 4]", {"start": 3, "stop": 3}, "P02", "start is 3 and stop is 3, so nothing"),
        ("f[B T 4]", {"stop": 0}, "P02", "nothing is selected"),
        ("f[B T 4]", {"start": -1, "stop": -1}, "P02", "nothing is selected"),
        ("f[B T 4]", {"start": -2, "stop": 5}, "T03", "depends on how long T is"),
        ("f[B T 4]", {"step": 2}, "T03", "with a step of 2, the length of T is"),
        ("f[B T+1 4]", {"step": 2}, "T03", "with a step of 2, the length of T+1 is"),
        ("f[B T 4]", {"axis": "width", "stop": 9}, "P02", "has 4 elements, and none from 0 to 8"),
        ("f[B T 4]", {"axis": "width", "start": -5}, "P02", "none from -1 to 3"),
        ("f[B 9 4]", {"start": 10}, "P02", "the axis has 9 elements, and none from 10 to 8"),
        ("f[B 9 4]", {"index": -10}, "P02", "the axis has 9 elements, and none with index -10"),
        ("f[9 B T 4]", {"axis": "layer", "index": 9}, "P02", "none with index 9"),
        ("f[B T 4]", {"axis": "S"}, "T04", "which has no axis S"),
        ("f[B T T]", {"axis": "T"}, "T04", "which has more than one axis T"),
        ("f[B 4]", {"index": 0}, "T04", "which has no time axis after that of the batch"),
        ("ids:9[B T]", {"axis": "width"}, "T04", "which has no width"),
        ("f[B T 4]", {"axis": "T and S"}, "P01", "axis"),
    ],
)
def test_an_impossible_slice_is_found(
    x: str, params: dict[str, Any], code: str, problem: str
) -> None:
    """Each mistake has its code and place, both sides, and a way out."""
    findings = findings_of(spec_of("slice@1", {"x": x}, **params))

    finding = next(finding for finding in findings if finding.code == code)
    assert problem in finding.problem
    assert finding.help
    assert finding.at.startswith("/nodes/node")


@pytest.mark.parametrize(
    ("x", "before", "y"),
    [
        ("f[B S+T 4]", "f[B S 4]", "f[B T 4]"),
        ("f[B S+T 4]", "mask[B S]", "f[B T 4]"),
        ("f[B T+2 4]", "f[2 B 2 4]", "f[B T 4]"),
        ("f[B S+T+1 4]", "f[B S+1 8]", "f[B T 4]"),
    ],
)
def test_a_slice_begins_after_the_positions_of_another_value(x: str, before: str, y: str) -> None:
    """Of 6 positions, the first 2 are those of the other value."""
    spec = spec_of("slice@1", {"x": x, "before": before})
    shape = {"f[B S 4]": (2, 2, 4), "mask[B S]": (2, 2), "f[2 B 2 4]": (2, 2, 2, 4)}
    other = torch.zeros(shape.get(before, (2, 2, 8)))
    other = other.bool() if before.startswith("mask") else other

    assert torch.equal(computed(spec, x=X, before=other), X[:, 2:])
    assert type_of(spec) == y


@pytest.mark.parametrize(
    ("x", "before", "params", "code", "problem"),
    [
        ("f[B T 4]", "f[B S 4]", {}, "T03", "is T, which does not begin with the S of 'before'"),
        ("f[B T 4]", "f[B T 4]", {}, "T03", "does not begin with the T of 'before'"),
        ("f[B T+1 4]", "f[B 4]", {}, "T04", "'before' is f[B 4], which has no time axis"),
        ("f[B S+T 4]", "f[B S 4]", {"start": 1}, "P02", "'before' says where the slice begins"),
        ("f[B S+T 4]", "f[B S 4]", {"index": 1}, "P02", "'before' says where the slice begins"),
    ],
)
def test_a_slice_after_what_does_not_come_first_is_found(
    x: str,
    before: str,
    params: dict[str, int],
    code: str,
    problem: str,
) -> None:
    """Each mistake has its code and place, both sides, and a way out."""
    findings = findings_of(spec_of("slice@1", {"x": x, "before": before}, **params))

    assert [finding.code for finding in findings] == [code]
    assert problem in findings[0].problem
    assert findings[0].help
    assert findings[0].at.startswith("/nodes/node")


@pytest.mark.parametrize("params", [{"index": 6}, {"stop": 7}, {"start": -7}, {"start": 6}])
def test_a_sequence_that_is_too_short_is_an_error(params: dict[str, int]) -> None:
    """Python would return fewer elements than the type says."""
    with pytest.raises(ValueError, match="there are 6 positions, but at least 7 are needed"):
        computed(spec_of("slice@1", {"x": "f[B T 4]"}, **params), x=X)


def test_a_split_gives_named_parts() -> None:
    """The parts are consecutive."""
    params = {"names": ["first", "second"], "sizes": [1, 3]}

    y = results_of(spec_of("split@1", {"x": "f[B T 4]"}, ("first", "second"), **params), x=X)

    assert torch.equal(y["first"], X[..., :1])
    assert torch.equal(y["second"], X[..., 1:])


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"names": ["y", "z"], "sizes": [1, 2]}, "the sizes add up to 3, but the width is 4"),
        ({"names": ["y", "z"], "sizes": [1, 2, 1]}, "there are 2 different names and 3 sizes"),
        ({"names": ["y", "y"], "sizes": [2, 2]}, "there are 1 different names and 2 sizes"),
    ],
)
def test_an_impossible_split_is_found(params: dict[str, Any], problem: str) -> None:
    """The sizes must be those of the vectors."""
    findings = findings_of(spec_of("split@1", {"x": "f[B T 4]"}, **params))

    assert [(f.code, f.problem) for f in findings] == [("P02", f"split@1: {problem}")]
