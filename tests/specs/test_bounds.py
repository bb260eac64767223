"""Tests of the size limits of specs."""

from __future__ import annotations

from typing import Any

import pytest
from weft.specs.findings import SpecError, nearest
from weft.specs.form import SpecForm
from weft.specs.load import loaded
from weft.specs.reader import LARGEST_VALUE, LONGEST_TEXT, MOST_WRITTEN, beyond_bounds, parse

SMALL: dict[str, Any] = {
    "format": 1,
    "name": "small",
    "axes": {"B": "batch"},
    "inputs": {"x": "f[B 4]"},
    "outputs": {"y": "map.y"},
    "nodes": {"map": {"use": "linear@1", "in": {"x": "x"}}},
}


def beyond(**parts: Any) -> list[tuple[str, str]]:
    """Return code and pointer of each excess in the small spec with changed parts."""
    return [(f.code, f.at) for f in beyond_bounds({**SMALL, **parts}, "spec.json")]


def nodes(count: int, **first: Any) -> dict[str, Any]:
    """Return `count` nodes, with additional keys on the first."""
    return {f"n{i}": {"use": "a", **(first if i == 0 else {})} for i in range(count)}


def test_nodes_are_counted_where_they_are_written() -> None:
    """Scope, templates and slots count; a repeat counts as one node."""
    half = MOST_WRITTEN // 2
    template = {"inputs": {}, "outputs": {"y": "n0.y"}, "nodes": nodes(half)}
    repeat = {"repeat": 10_000, "block": "t"}
    rest = {**nodes(half - 3), "again": repeat}

    assert beyond(blocks={"t": template}, nodes={**rest, "l1": {"use": "a"}}) == []
    filled = nodes(1, fill={"f": {"use": "b", "fill": {"f": {"use": "c"}}}})
    assert beyond(blocks={"t": template}, nodes={**rest, **filled}) == []
    more = {**rest, **filled, "last": {"use": "a"}, "again2": repeat}
    assert beyond(blocks={"t": template}, nodes=more) == [("S09", "/nodes")]


def test_the_largest_scope_is_named() -> None:
    """The finding points to the scope that a template would shrink most."""
    template = {"inputs": {}, "outputs": {"y": "n0.y"}, "nodes": nodes(MOST_WRITTEN)}

    assert beyond(blocks={"a/b": template}) == [("S09", "/blocks/a~1b/nodes")]


@pytest.mark.parametrize(
    ("part", "at"),
    [
        ({"name": "x" * (LONGEST_TEXT + 1)}, "/name"),
        ({"inputs": {"x": "x" * (LONGEST_TEXT + 1)}}, "/inputs/x"),
        ({"require": ["1 < 2", "x" * (LONGEST_TEXT + 1)]}, "/require/1"),
        ({"inputs": {"x" * (LONGEST_TEXT + 1): "f[B]"}}, "/inputs"),
        ({"params": {"x" * (LONGEST_TEXT + 1): 1}}, "/params"),
    ],
)
def test_texts_and_keys_are_bounded(part: dict[str, Any], at: str) -> None:
    """Everywhere in a spec."""
    assert beyond(**part) == [("S10", at)]


def test_the_longest_text_is_allowed_and_a_doc_may_be_any() -> None:
    """The limit itself is allowed, and a `doc` has no limit of its own."""
    described = {"map": {"use": "linear@1", "doc": "x" * 9_999}}

    assert beyond(name="x" * LONGEST_TEXT, doc="x" * 99_999, nodes=described) == []


@pytest.mark.parametrize(
    "value", [[0] * 1_001, {"a": [[0] * 500, [0] * 500]}, ["x" * 600, "y" * 600], [{"k" * 999: 0}]]
)
def test_the_value_of_a_param_is_bounded(value: Any) -> None:
    """For params of specs and of blocks; nested values and letters count."""
    wrong = {"map": {"use": "linear@1", "params": {"d_out": value}}}

    assert beyond(params={"p": value}) == [("S11", "/params/p")]
    assert beyond(nodes=wrong) == [("S11", "/nodes/map/params/d_out")]
    assert beyond(params={"p": [0] * LARGEST_VALUE}) == []


@pytest.mark.parametrize(
    ("part", "at"),
    [
        ({"params": dict.fromkeys(map(str, range(1_001)), 0)}, "/params"),
        ({"require": ["1 < 2"] * 1_001}, "/require"),
        ({"tie": [["a"] * 1_001]}, "/tie/0"),
        (
            {"nodes": {"a": {"use": "b", "in": dict.fromkeys(map(str, range(1_001)), "x")}}},
            "/nodes/a/in",
        ),
    ],
)
def test_no_object_or_list_is_longer_than_the_bound(part: dict[str, Any], at: str) -> None:
    """Also where validation alone would accept it."""
    assert beyond(**part) == [("S11", at)]


@pytest.mark.parametrize("wrong", [3, "x", [], {"a": 3}, {"a": {"fill": 3}}, {"a": [{"fill": {}}]}])
@pytest.mark.parametrize("key", ["nodes", "blocks", "params", "tie", "doc"])
def test_a_spec_of_a_wrong_form_does_not_crash(key: str, wrong: Any) -> None:
    """Validation reports wrong forms later."""
    assert beyond(**{key: wrong}) == []


def test_bounds_hold_for_every_spec_that_is_read() -> None:
    """For files, checkpoints and values in memory: all use `parse`."""
    with pytest.raises(SpecError, match="S10"):
        parse(SpecForm, {**SMALL, "name": "x" * 2_000}, "spec.json")
    with pytest.raises(SpecError, match="S10"):
        loaded({**SMALL, "name": "x" * 2_000})


def test_a_key_for_editors_means_nothing() -> None:
    """A spec may name its JSON Schema."""
    assert parse(SpecForm, {"$schema": "weft.schema.json", **SMALL}, "") == parse(
        SpecForm, SMALL, ""
    )


def test_the_nearest_among_very_many_begins_alike() -> None:
    """Only similar beginnings are compared, and the likely name is among them."""
    known = [f"layer_{i}_norm" for i in range(900)]

    assert nearest("layer_451_nrom", known) == "layer_451_norm"
    assert nearest("zebra", known) == ""
