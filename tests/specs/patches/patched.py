"""A parent with repeats and templates, and what patches make of it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.specs.findings import Finding, Origins, SpecError
from weft.specs.inherit import extended
from weft.specs.load import loaded

LINEAR = {"use": "linear@1", "params": {"d_out": 4}}


def node(reads: str, **keys: Any) -> dict[str, Any]:
    """Return a linear map to 4 numbers."""
    return {**LINEAR, "in": {"x": reads}, **keys}


PORTS = {"inputs": {"x": "f[B 4]"}, "outputs": {"x": "second.y"}}
ROOT: dict[str, Any] = {
    "format": 1,
    "name": "root",
    "axes": {"B": "batch"},
    "inputs": {"x": "f[B 4]"},
    "outputs": {"y": "last.y"},
    "blocks": {
        "layer": {**PORTS, "nodes": {"first": node("x"), "second": node("first.y")}},
        "tower": {
            "inputs": {"x": "f[B 4]"},
            "outputs": {"x": "stack.x"},
            "nodes": {
                "stack": {"repeat": 3, "block": "layer", "carry": ["x"], "in": {"x": "x"}},
            },
        },
    },
    "nodes": {
        "left": {"use": "tower", "in": {"x": "x"}},
        "right": {"use": "tower", "in": {"x": "left.x"}},
        "many": {"repeat": 6, "block": "layer", "carry": ["x"], "in": {"x": "right.x"}},
        "middle": node("many.x"),
        "last": node("middle.y"),
    },
}


def child(*patches: dict[str, Any], **keys: Any) -> tuple[dict[str, Any], Origins]:
    """Return the merged value of a child, and its origins."""
    written = {"format": 1, "extends": "root", "name": "child", "patch": [*patches], **keys}
    before = copy.deepcopy(ROOT)
    value, origins = extended(ROOT, Origins(("root.json", "")), written, "child.json")
    assert before == ROOT, "the parent was written on"
    return value, origins


def merged(*patches: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """Return the merged value of a valid child."""
    value = child(*patches, **keys)[0]
    check(loaded(value).form, registry())
    return value


def findings(*patches: dict[str, Any], **keys: Any) -> list[Finding]:
    """Return the findings of a child."""
    with pytest.raises(SpecError) as error:
        child(*patches, **keys)
    return list(error.value.findings)


def only(*patches: dict[str, Any], **keys: Any) -> tuple[str, str, str]:
    """Return code, pointer and problem of the only finding."""
    [finding] = findings(*patches, **keys)
    assert finding.source == "child.json"
    return finding.code, finding.at, finding.problem


def put(select: str, value: Any = 8, key: str = "params.d_out") -> dict[str, Any]:
    """Return a patch that sets one key."""
    return {"select": select, "set": {key: value}}
