"""Tests of upgrades of old files."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse
from weft.graphs.ir.block_type import BlockType, Registry
from weft.specs.form import FORMAT, Spec
from weft.specs.upgrade import FORMATS, older_blocks, upgrade, upgrade_format, upgrade_uses

OLD: dict[str, Any] = {
    "format": 0,
    "name": "old",
    "sizes": {"d": 4},
    "doc": "Kept.",
    "axes": {"B": "batch"},
    "inputs": {"x": "f[B d]"},
    "outputs": {"y": "map.y"},
    "nodes": {"map": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": "=d"}}},
}


def from_zero(value: dict[str, Any]) -> dict[str, Any]:
    """Upgrade the made-up format 0, which calls `params` `sizes`."""
    return {"params" if key == "sizes" else key: inner for key, inner in value.items()}


def widened(use: dict[str, Any]) -> dict[str, Any]:
    """Upgrade a made-up `linear@1`, which calls `d_out` `width`."""
    use["params"]["d_out"] = use["params"].pop("width")
    return use


def library(*, keep_old: bool = False) -> Registry:
    """Return the blocks, with `linear@2` instead of or in addition to `linear@1`."""
    [linear] = [block for block in registry() if block.key == "linear@1"]
    others = [block for block in registry() if keep_old or block is not linear]
    return Registry([*others, replace(linear, major=2, upgrade=widened)])


OLDER = {0: from_zero, 1: dict}
"""A table with the made-up format 0; the changes of format 1 do not matter here."""


def test_no_format_is_older_than_the_first() -> None:
    """Every older format is in the table."""
    assert sorted(FORMATS) == list(range(1, FORMAT))


def test_an_old_format_becomes_todays_and_opens() -> None:
    """The order of keys and the docs are unchanged."""
    made, changes = upgrade_format(OLD, OLDER)

    assert changes == ["/format: 0 is now 1", "/format: 1 is now 2"]
    assert list(made) == ["params" if key == "sizes" else key for key in OLD]
    assert made["doc"] == "Kept."
    assert OLD["format"] == 0
    graph, findings = analyse(Spec.model_validate(made), registry())
    assert findings == []
    assert graph is not None
    assert graph.parameters() == 4 * 4 + 4


def test_formats_are_brought_up_one_by_one() -> None:
    """Each upgrader converts to the next format only."""
    made, changes = upgrade_format({"format": -1}, {-1: lambda v: {**v, "a": 1}, **OLDER})

    assert made == {"format": 2, "a": 1}
    assert changes == [f"/format: {old} is now {old + 1}" for old in (-1, 0, 1)]


@pytest.mark.parametrize("found", [2, 3, "0", None, True, 0.0, [0], -7])
def test_current_newer_and_invalid_formats_are_unchanged(found: Any) -> None:
    """The reader reports what is wrong with them."""
    assert upgrade_format({"format": found}, OLDER) == ({"format": found}, [])


def test_an_upgrader_that_fails_leaves_the_file_as_it_is() -> None:
    """An invalid file of an old format must not cause a crash."""
    broken = {"format": 0, "nodes": 3}

    def strict(value: dict[str, Any]) -> dict[str, Any]:
        value["nodes"].clear()
        return value

    assert upgrade_format(broken, {0: strict}) == (broken, [])


def old_uses(use: Any) -> dict[str, Any]:
    """Return a spec, or child, with one use at every place where uses may occur."""
    return {
        "params": {"choice": use, "many": [use]},
        "nodes": {"n": {**use, "in": {"x": "x"}}, "s": {"use": "sublayer@1", "fill": {"f": use}}},
        "blocks": {"t": {"nodes": {"n": use, "r": {"repeat": 2, "block": "t"}}}},
        "patch": [
            {"select": "[use=linear@1]", "set": {"use": use["use"], "params.width": 5}},
            {"select": "n", "replace": use},
            {"select": "n", "insert_before": {"b": use}},
            {"select": "n", "insert_after": {"a": use}},
            {"select": "n", "remove": ["params.width"]},
        ],
    }


def test_an_older_block_is_upgraded_wherever_it_is_used() -> None:
    """In nodes, slots, templates, block choices and patches, with their pointers."""
    value = old_uses({"use": "linear@1", "params": {"width": 3}})
    before = copy.deepcopy(value)

    made, changes = upgrade(value, {}, older_blocks(library()))

    new = old_uses({"use": "linear@2", "params": {"d_out": 3}})
    new["patch"][0] = {
        "select": "[use=linear@2]",
        "set": {"use": "linear@2", "params.d_out": 5},
    }
    assert made == new
    assert value == before
    places = [change.partition(":")[0] for change in changes]
    assert places == [
        "/nodes/n/use",
        "/nodes/s/fill/f/use",
        "/params/choice/use",
        "/params/many/0/use",
        "/blocks/t/nodes/n/use",
        "/patch/0/select",
        "/patch/0/set/use",
        "/patch/1/replace/use",
        "/patch/2/insert_before/b/use",
        "/patch/3/insert_after/a/use",
    ]
    assert {change.partition(": ")[2] for change in changes} == {"linear@1 is now linear@2"}


def test_a_block_that_is_still_registered_stays_unless_the_newest_is_wanted() -> None:
    """Opening a spec retains registered old blocks; `weft migrate` upgrades them."""
    both = library(keep_old=True)

    assert "linear@1" not in older_blocks(both)
    assert "linear@1" in older_blocks(both, registered=True)


def test_major_versions_are_upgraded_one_by_one() -> None:
    """From 1 to 3 through 2."""
    [linear] = [block for block in registry() if block.key == "linear@1"]

    def third(use: dict[str, Any]) -> dict[str, Any]:
        return {**use, "doc": "three"}

    second = replace(linear, major=2, upgrade=widened)
    newest = replace(linear, major=3, upgrade=third)
    steps = older_blocks([second, newest], registered=True)

    made, _ = upgrade({"nodes": {"n": {"use": "linear@1", "params": {"width": 3}}}}, {}, steps)

    assert made["nodes"]["n"] == {"use": "linear@3", "params": {"d_out": 3}, "doc": "three"}


def opened(value: dict[str, Any], blocks: Registry, **overrides: Any) -> tuple[Any, Any]:
    """Return the spec and overrides as the checker receives them."""
    return upgrade_uses(Spec.model_validate(value), overrides, older_blocks(blocks))


def test_a_spec_of_an_older_block_opens() -> None:
    """Also if an override chooses the block."""
    use = {"use": "linear@1", "params": {"width": 3}}
    value = {
        **upgrade_format(OLD, OLDER)[0],
        "params": {"d": 4, "head": {"use": "dropout@1"}},
        "nodes": {
            "map": {**use, "in": {"x": "x"}},
            "head": {"use": "=head", "in": {"x": "map.y"}},
        },
        "outputs": {"y": "head.y"},
    }

    form, overrides = opened(value, library(), head=use)
    graph, findings = analyse(form, library(), overrides)

    assert findings == []
    assert graph is not None
    assert graph.parameters() == (4 * 3 + 3) + (3 * 3 + 3)


@pytest.mark.parametrize("params", [None, {"d_out": 3}])
def test_a_use_that_cannot_be_upgraded_is_an_unknown_block(params: Any) -> None:
    """The finding suggests the newer block."""
    value = upgrade_format(OLD, OLDER)[0]
    value["nodes"]["map"] = {"use": "linear@1", "in": {"x": "x"}, "params": params or {}}

    form, _ = opened(value, library())
    _, findings = analyse(form, library())

    assert ("N01", "/nodes/map/use", "did you mean 'linear@2'?") in [
        (finding.code, finding.at, finding.help) for finding in findings
    ]


def test_params_that_a_patch_sets_at_once_stay_together() -> None:
    """Setting `params` replaces all of them, setting `params.x` only one."""
    whole = {"set": {"use": "linear@1", "params": {"width": 3}}}
    other = {"set": {"params": {"width": 3}, "params.x": 1}}

    made, _ = upgrade({"patch": [whole, other]}, {}, older_blocks(library()))

    assert made["patch"] == [{"set": {"use": "linear@2", "params": {"d_out": 3}}}, other]


@pytest.mark.parametrize("wrong", [3, None, [], "x", {"use": []}, {"use": {"use": 3}}, [[]]])
def test_no_value_crashes_the_upgrade(wrong: Any) -> None:
    """A value that is not a spec is returned unchanged."""
    blocks = older_blocks(library())
    for key in ("nodes", "params", "blocks", "patch"):
        for value in ({key: wrong}, {key: {"a": wrong}}, {key: [wrong]}):
            assert upgrade(value, {}, blocks) == (value, [])
    for value in ({"set": wrong}, {"replace": wrong}, {"insert_after": {"a": wrong}}):
        assert upgrade({"patch": [value]}, {}, blocks) == ({"patch": [value]}, [])


def test_a_registered_block_is_versioned() -> None:
    """Only attention has an older version."""
    assert all(isinstance(block, BlockType) for block in registry())
    assert [block.key for block in registry() if block.upgrade is not None] == ["attention@2"]
