"""Tests of selections: the paths that they match, and texts that are not selections."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.specs.patches.selections import SelectError, glob, read_selection
from weft.specs.patches.walk import MOST_STEPS, TooMuchError, Walk, bottom_up
from weft.specs.reader import SHIPPED

Count = Callable[[Callable[[], object]], int]

BASE = json.loads((SHIPPED / "models" / "transformer-base.json").read_text(encoding="utf-8"))
LINEAR = {"use": "linear@1", "in": {"x": "x"}}
NESTED: dict[str, Any] = {
    "blocks": {
        "inner": {"inputs": {}, "outputs": {}, "nodes": {"map": LINEAR, "out": LINEAR}},
        "tower": {
            "inputs": {},
            "outputs": {},
            "nodes": {"a": {"use": "inner"}, "b": {"repeat": 4, "block": "inner"}},
        },
    },
    "nodes": {
        "left": {"use": "tower"},
        "right": {"repeat": "=n", "block": "tower", "instead": {"2": "inner"}},
        "shared": {"repeat": 3, "block": "inner", "share": True},
        "head": {"use": "linear@1", "fill": {"f": {"use": "relu@1", "fill": {"g": LINEAR}}}},
    },
}
"""Nested templates: used plainly, repeated, split and shared."""


def selected(text: str, spec: dict[str, Any]) -> list[str]:
    """Return the paths that a selection matches, in order."""
    return sorted(Walk(spec, [read_selection(text)]).matches[0].paths.values())


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("**[use=sublayer@1]", 5),
        ("**[use=*]", 5 + 5 + 5),
        ("decoder.*.self_attention/f", 1),
        ("decoder.*.*", 3),
        ("decoder.*.*/f", 3),
        ("*coder.*.self_*", 2),
        ("*coder.4.self_*", 2),
        ("**/f[use=attention@1]", 3),
        ("**[port=mask]", 2 + 2),
        ("**[port=memory]", 2),
        ("**[params.causal=true]", 1),
        ("**[params.causal=1]", 0),
        ("**[params.heads==heads]", 3),
        ("**[params.scale=sq*]", 2),
        ("**[params.bias=false][use=linear@1]", 1),
        ("**[params.bias=false][use=attention@1]", 0),
        ("**[use=attention@*]", 3),
        ("**[use=attention]", 0),
        ("**.self_attention", 2),
        ("**.f", 0),
        ("encoder", 1),
        ("encoder.*", 0),
        ("encoder.self_attention", 0),
        ("decoder.0-2.**[use=sublayer@1]", 3),
        ("decoder.**", 6),
        ("decoder.**.self_attention", 1),
        ("**", 7 + 5 + 5),
        ("*", 7),
        ("/", 1),
        ("/blocks/*_layer", 2),
        ("/blocks/encoder_layer", 1),
        ("/[tie=*]", 1),
    ],
)
def test_a_selection_counts_what_is_written(text: str, count: int) -> None:
    """Two layers of 2 and 3 sublayers, each with a slot, and 7 nodes around them.

    Each node and each slot counts once, regardless of the number of copies.
    """
    assert len(selected(text, BASE)) == count


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("left.a.map", ["left.a.map"]),
        ("left.b.3.map", ["left.b.3.map"]),
        ("left.*.map", ["left.a.map"]),
        ("right.0.a.map", ["right.0.a.map"]),
        ("right.2.map", ["right.2.map"]),
        ("right.1-3.map", ["right.2.map"]),
        ("right.*.*", ["right.*.a", "right.*.b", "right.2.map", "right.2.out"]),
        ("shared.map", ["shared.map"]),
        ("shared.*.map", []),
        ("head/f", ["head/f"]),
        ("head/*/g", ["head/f/g"]),
        ("head/**", ["head/f", "head/f/g"]),
        ("head.f", []),
        ("**.out", ["left.a.out"]),
        ("**/g", ["head/f/g"]),
    ],
)
def test_paths_go_through_templates_numbers_and_slots(text: str, paths: list[str]) -> None:
    """A plain use and a shared repeat have no index; a path is that of the first use."""
    assert selected(text, NESTED) == paths


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("left.b.4.map", "'left.b' has 4 copies, so copy 4 does not exist"),
        ("left.b.2-9.map", "'left.b' has 4 copies, so copy 9 does not exist"),
        (
            "shared.0.map",
            "the copies of 'shared' share their weights, so they cannot be selected singly",
        ),
    ],
)
def test_an_invalid_copy_number_is_reported(text: str, why: str) -> None:
    """If the number of copies is a literal."""
    assert Walk(NESTED, [read_selection(text)]).matches[0].misplaced == [why]


@pytest.mark.parametrize("text", ["right.900.a.map", "**.3.map", "left.b.3.map"])
def test_a_number_that_may_be_a_copy_is_not(text: str) -> None:
    """If the number of copies is an expression, or after `**`."""
    assert Walk(NESTED, [read_selection(text)]).matches[0].misplaced == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a segment is missing"),
        ("a..b", "a segment is missing"),
        ("a.", "a segment is missing"),
        ("a b", "'a b' is not a path segment"),
        ("a.***", "'***' is not a path segment"),
        ("4.a", "'4' is not a path segment"),
        ("a/4", "'4' is not a path segment"),
        ("a.3-1.b", "'3-1' counts backwards"),
        ("/nodes", "'/nodes' is neither '/' nor a template"),
        ("/blocks/", "'/blocks/' is neither '/' nor a template"),
        ("/blocks/a/b", "'/blocks/a/b' is neither '/' nor a template"),
        ("a[use]", "'[use]' is not a predicate"),
        ("a[use=x", "'[use=x' is not a predicate"),
        ("a[use=x].b", "'.b' is not a predicate"),
        ("a[use=[1]]", "'[use=[1]]' is not a predicate"),
        ("x" * 401, "a selection has at most 400 characters"),
        ("a.b\n", "'b\n' is not a path segment"),
    ],
)
def test_an_invalid_selection_is_reported(text: str, problem: str) -> None:
    """With help."""
    with pytest.raises(SelectError) as error:
        read_selection(text)

    assert str(error.value) == problem
    assert error.value.help


def by_definition(pattern: str, text: str) -> bool:
    """Return whether a pattern matches, trying every length for each `*`."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(by_definition(pattern[1:], text[i:]) for i in range(len(text) + 1))
    return bool(text) and pattern[0] == text[0] and by_definition(pattern[1:], text[1:])


@given(st.text("ab*", max_size=7), st.text("ab", max_size=7))
def test_a_star_matches_any_text(pattern: str, text: str) -> None:
    """As in the definition, for every possible length."""
    assert glob(pattern, text) == by_definition(pattern, text)


def test_many_stars_cost_little(count_lines: Count) -> None:
    """There is no backtracking: the work is at most the product of the two lengths."""
    pattern, text = "*a" * 60 + "b", "a" * 1000

    assert not glob(pattern, text)
    assert count_lines(lambda: glob(pattern, text)) < 10 * len(pattern) * len(text)


def nested(levels: int) -> dict[str, Any]:
    """Return a spec in which 2 ** levels paths lead to one node."""
    blocks: dict[str, Any] = {"t0": {"nodes": {"map": LINEAR}}}
    for i in range(levels):
        blocks[f"t{i + 1}"] = {"nodes": {"a": {"use": f"t{i}"}, "b": {"use": f"t{i}"}}}
    return {"blocks": blocks, "nodes": {"top": {"use": f"t{levels}"}}}


def test_a_template_is_visited_once_however_many_paths_lead_there(
    count_calls: Count,
) -> None:
    """There are 2 ** 30 paths."""
    spec = nested(30)

    assert selected("**.map", spec) == ["top." + "a." * 30 + "map"]
    assert selected("**.b.**.a.**.map", spec) != []
    assert count_calls(lambda: selected("**.b.**.a.**.map", spec)) < 50_000


def test_templates_that_contain_themselves_are_not_entered() -> None:
    """The checker reports them; the walk terminates."""
    blocks = {
        "a": {"nodes": {"n": {"use": "b"}}},
        "b": {"nodes": {"n": {"use": "a"}}},
        "c": {"nodes": {"n": {"use": "a"}, "map": LINEAR}},
        "d": {"nodes": {"map": LINEAR}},
    }
    spec = {"blocks": blocks, "nodes": {"x": {"use": "c"}, "y": {"use": "d"}}}

    assert bottom_up(blocks) == ["d"]
    assert selected("**.map", spec) == ["y.map"]


@pytest.mark.integration
def test_selections_that_would_take_too_long_are_refused() -> None:
    """The limit counts comparisons, so it is the same on every machine."""
    spec = {"nodes": {f"n{i}": LINEAR for i in range(MOST_STEPS // 1000 + 1)}}
    one = read_selection("**.x")

    assert Walk(spec, [one] * 10).matches[0].paths == {}
    with pytest.raises(TooMuchError):
        Walk(spec, [one] * 1000)
