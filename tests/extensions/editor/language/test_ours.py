"""The language server has findings in Weft's files alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from weft.extensions.editor.language.ours import is_ours
from weft.specs.reader import SHIPPED

FOREIGN: dict[str, Any] = {
    "data": {"data": [1, 2, 3]},
    "kubernetes": {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a"},
        "spec": {"nodes": 3},
        "data": {"key": "value"},
    },
    "chart": {"data": {}, "axes": [], "format": "png"},
    "glTF": {"asset": {"version": "2.0"}, "nodes": [], "name": "mesh"},
    "notebook": {"nbformat": 4, "cells": [], "metadata": {}},
    "numbered format": {"format": 1, "data": [1]},
    "graph": {"nodes": [], "edges": [], "name": "graph"},
    "Grafana": {"rows": [], "run": True, "search": ""},
    "boolean format": {"format": True, "name": "a", "nodes": {}},
    "a list": [1, 2],
    "nothing": None,
}
SHIPPED_FILES = [
    path
    for folder in ("models", "variants", "objectives", "runs", "studies", "imports", "pretrained")
    for path in sorted((SHIPPED / folder).glob("*.json"))
]


@pytest.mark.parametrize("value", FOREIGN.values(), ids=FOREIGN)
def test_foreign_json_is_not_ours(value: Any) -> None:
    """Keys such as `data` and `nodes` are those of many programs."""
    assert not is_ours(value, "/work/file.json")


def test_every_shipped_file_is_ours() -> None:
    """Models, variants, objectives, runs, studies and import tables."""
    assert len(SHIPPED_FILES) > 100
    odd = [path.name for path in SHIPPED_FILES if not is_ours(json.loads(path.read_text()), "")]

    assert odd == []


def test_a_file_that_the_settings_name_is_ours() -> None:
    """A new one has no `format` yet."""
    value = {"nodes": {}}

    assert not is_ours(value, "/work/models/mine.json")
    assert is_ours(value, "/work/models/mine.json", ["**/models/*.json"])
    assert not is_ours(value, "/work/other/mine.json", ["**/models/*.json"])
    assert not is_ours([], str(Path("/work/models/mine.json")), ["**/models/*.json"])
