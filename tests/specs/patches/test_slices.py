"""Selections of copies by a slice, such as every fourth one."""

from __future__ import annotations

from typing import Any

import pytest
from weft.specs.findings import SpecError
from weft.specs.load import load_child, loaded


def base(repeat: Any, **keys: Any) -> dict[str, Any]:
    """Return a spec with copies of a template that has one linear map."""
    linear = {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": 4}}
    return {
        "format": 1,
        "name": "base",
        "params": {"n": 9},
        "axes": {"B": "batch"},
        "inputs": {"x": "f[B 4]"},
        "outputs": {"y": "stack.x"},
        "blocks": {
            "layer": {
                "inputs": {"x": "f[B 4]"},
                "outputs": {"x": "map.y"},
                "nodes": {"map": linear},
            }
        },
        "nodes": {
            "stack": {"repeat": repeat, "block": "layer", "carry": ["x"], "in": {"x": "x"}, **keys}
        },
    }


def patched(repeat: Any, *selects: str, **keys: Any) -> dict[str, Any]:
    """Return the value of a child whose patches take the bias from what they select."""
    patch = [{"select": select, "set": {"params.bias": False}} for select in selects]
    child = {"format": 1, "extends": "base", "name": "child", "patch": patch}
    return load_child(loaded(base(repeat, **keys)), child, "child.json").value()


def unbiased(value: dict[str, Any]) -> set[int]:
    """Return the copies of a stack of nine whose map has no bias, by Python's own slices."""
    stack, copies = value["nodes"]["stack"], [*range(9)]
    used = dict.fromkeys(copies, stack["block"])
    for key, template in stack.get("instead", {}).items():
        parts = [int(part) if part else None for part in key.split(":")]
        used |= dict.fromkeys(copies[slice(*parts)] if ":" in key else [int(key)], template)
    maps = {name: block["nodes"]["map"] for name, block in value["blocks"].items()}
    return {copy for copy, name in used.items() if maps[name]["params"].get("bias") is False}


@pytest.mark.parametrize("repeat", [9, "=n"], ids=["a number", "an expression"])
@pytest.mark.parametrize("text", ["3::4", "::2", "1:7:2", "6:", "2:5", ":3", "0::9", ":"])
def test_a_slice_selects_the_copies_that_it_selects_of_a_list(text: str, repeat: Any) -> None:
    """As Python says."""
    parts = [int(part) if part else None for part in text.split(":")]

    assert unbiased(patched(repeat, f"stack.{text}.map")) == {*[*range(9)][slice(*parts)]}


def test_a_slice_of_an_unknown_number_of_copies_stays_a_slice() -> None:
    """So that it follows the param."""
    assert [*patched("=n", "stack.3::4.map")["nodes"]["stack"]["instead"]] == ["3::4"]


def test_a_patch_may_select_the_copies_of_a_slice_that_the_spec_has() -> None:
    """The key stays, with a template that the patch has changed."""
    value = patched("=n", "stack.1::2.map", instead={"1::2": "layer"})

    assert [*value["nodes"]["stack"]["instead"]] == ["1::2"]
    assert unbiased(value) == {1, 3, 5, 7}


def test_several_patches_may_select_copies_of_a_known_number() -> None:
    """Every third copy, and copy 1."""
    assert unbiased(patched(9, "stack.::3.map", "stack.1.map")) == {0, 1, 3, 6}


@pytest.mark.parametrize(
    ("repeat", "selects", "problem"),
    [
        (9, ["stack.9::2.map"], "'stack' has 9 copies, so copy 9 does not exist"),
        (9, ["stack.5:5.map"], "'5:5' selects no copy"),
        (9, ["stack.1::0.map"], "'1::0' is not a path segment"),
        ("=n", ["stack.3::4.map", "stack.0.map"], "must be a number to select copies by '3::4'"),
        ("=n", ["stack.3::4.map", "stack.1::4.map"], "must be a number to select copies by"),
    ],
)
def test_a_slice_that_cannot_be_selected_is_reported(
    repeat: Any, selects: list[str], problem: str
) -> None:
    """With the place of the selection."""
    with pytest.raises(SpecError, match=problem):
        patched(repeat, *selects)


def test_a_slice_of_copies_that_share_their_weights_is_refused() -> None:
    """They cannot differ."""
    with pytest.raises(SpecError, match="share their weights"):
        patched("=n", "stack.::2.map", share=True)
