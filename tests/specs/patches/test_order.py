"""The order of patches and of keys has no effect: two patches commute, or conflict."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.canonical import canonical
from weft.specs.findings import Origins, SpecError
from weft.specs.inherit import extended
from weft.specs.load import loaded

from .patched import LINEAR, child, findings, put
from .test_patch import BASE, NEW, OTHER


@pytest.mark.parametrize(
    "pair",
    [
        (put("last"), put("l*[use=linear@1]")),
        (put("last"), put("last", {}, "params")),
        (put("last"), {"select": "last", "replace": LINEAR}),
        (put("last", "A map.", "doc"), {"select": "last", "replace": LINEAR}),
        (put("last"), {"select": "last", "remove": True}),
        (put("last"), {"select": "last", "remove": ["params.d_out"]}),
        (put("many.*.first"), put("many.3.first")),
        (put("many.*.first"), put("many", "tower", "block")),
        (put("many.*.first"), {"select": "many", "remove": True}),
        (put("left.stack.*.first"), put("left", "layer", "use")),
        (put("left.stack.*.first"), {"select": "/blocks/layer", "remove": True}),
        ({"select": "last", "insert_after": NEW}, {"select": "last", "insert_after": OTHER}),
        ({"select": "last", "insert_before": NEW}, {"select": "last", "insert_before": OTHER}),
        ({"select": "last", "insert_before": NEW}, {"select": "middle", "insert_after": OTHER}),
        ({"select": "last", "insert_before": NEW}, put("last", "x", "in.x")),
        ({"select": "last", "insert_before": NEW}, put("/", LINEAR, "nodes.new")),
        ({"select": "last", "insert_before": NEW}, {"select": "middle", "insert_before": NEW}),
        ({"select": "last", "insert_after": NEW}, {"select": "last", "remove": True}),
        (
            {"select": "last", "insert_before": NEW},
            {"select": "middle", "remove": True, "through": "x"},
        ),
        (put("/", {}, "nodes.last"), put("last")),
        (put("/", "x", "outputs.y"), {"select": "last", "insert_after": NEW}),
    ],
)
def test_two_that_write_one_place_conflict(pair: tuple[dict[str, Any], ...]) -> None:
    """In either order, and the finding names both."""
    for order in (pair, pair[::-1]):
        [finding] = findings(*order)
        assert finding.code == "X03"
        assert finding.problem.startswith("patches 0 and 1 conflict over ")
        for index, line in enumerate(finding.evidence):
            assert line.startswith(f"patch {index} ")
            assert order[index]["select"] in line


ALONE: list[dict[str, Any]] = [
    put("last"),
    put("last", "x", "in.x"),
    put("last", "A map.", "doc"),
    put("middle"),
    put("many.*.first"),
    put("many.*.first", False, "params.bias"),
    put("many.4.first"),
    put("many.2-4.second"),
    put("many.0-5.second", False, "params.bias"),
    put("right.stack.1.first", 7),
    put("left.**.first", 7),
    put("**.second", "Out.", "doc"),
    put("right", "layer", "use"),
    put("many", 3, "repeat"),
    put("/blocks/layer", "A layer.", "doc"),
    put("/", "last.y", "outputs.z"),
    {"select": "middle", "remove": True, "through": "x"},
    {"select": "last", "remove": True, "through": "x"},
    {"select": "last", "remove": ["params"]},
    {"select": "middle", "replace": {"use": "layer_norm@1"}},
    {"select": "last", "insert_before": {"a": LINEAR}},
    {"select": "middle", "insert_after": {"b": LINEAR}},
    {"select": "many", "insert_after": {"c": LINEAR}},
    {"select": "many.4.second", "insert_after": {"d": LINEAR}},
    {"select": "many.*.second", "insert_before": {"e": LINEAR}},
    {"select": "right", "insert_before": {"f": LINEAR}},
]


def outcome(*patches: dict[str, Any]) -> Any:
    """Return the merged value of some patches, or the codes of the findings."""
    try:
        return child(*patches)[0]
    except SpecError as error:
        return {finding.code for finding in error.findings}


@pytest.mark.integration
def test_any_two_patches_commute_or_conflict() -> None:
    """Every pair of 26 gives the same value, or the same errors, in both orders."""
    commuting = 0
    for one, other in itertools.combinations(ALONE, 2):
        there, back = outcome(one, other), outcome(other, one)
        assert there == back
        assert there == {"X03"} or isinstance(there, dict)
        commuting += isinstance(there, dict)
    assert commuting > 200


@pytest.mark.integration
@given(st.lists(st.sampled_from(ALONE), min_size=2, max_size=6, unique_by=json.dumps), st.randoms())
def test_the_order_of_patches_does_not_count(
    patches: list[dict[str, Any]], random: random.Random
) -> None:
    """Every order gives the same value, or a conflict."""
    shuffled = random.sample(patches, len(patches))

    assert outcome(*patches) == outcome(*shuffled)


def shuffled(value: Any, random: random.Random) -> Any:
    """Return a JSON value with the keys of every object shuffled."""
    if isinstance(value, dict):
        keys = random.sample(list(value), len(value))
        return {key: shuffled(value[key], random) for key in keys}
    return [shuffled(inner, random) for inner in value] if isinstance(value, list) else value


PATCHES = [
    {"select": "decoder.1.self_attention/f", "set": {"params.bias": False}},
    {"select": "encoder.0-1.**[use=sublayer@1]", "set": {"params.order": "pre"}},
    {"select": "encoder.4.feed_forward/f", "set": {"params.bias": False}},
    {"select": "decoder.*.cross_attention", "insert_after": {"extra": {"use": "layer_norm@1"}}},
]


@pytest.mark.integration
@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms())
def test_the_order_of_keys_does_not_count(random: random.Random) -> None:
    """The canonical form of a patched spec is the same, including names of split templates."""
    written = {"format": 1, "extends": "base", "name": "child", "patch": PATCHES}

    def full(base: Any, child: Any) -> dict[str, Any]:
        value, _ = extended(base, Origins(("base.json", "")), child, "child.json")
        return canonical(check(loaded(value).form, registry()))

    assert full(shuffled(BASE, random), shuffled(written, random)) == full(BASE, written)
