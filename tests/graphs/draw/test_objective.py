"""Tests of pictures of objectives."""

from __future__ import annotations

import json
from pathlib import Path

from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.draw.diagram import diagram
from weft.specs.load import load

from ...objective_blocks import BLOCKS, LINE, TWICE
from .test_diagram import text_of


def test_models_are_closed_until_every_copy_is_drawn(tmp_path: Path) -> None:
    """With the name of the spec, whose weights a call shares, what is frozen, and loss weights."""
    for spec in (LINE, TWICE):
        (tmp_path / f"{spec['name']}.json").write_text(json.dumps(spec), encoding="utf-8")
    read = load(tmp_path / "twice.json")
    graph = check(read.form, registry(BLOCKS), source=read.source)

    folded, expanded = (text_of(diagram(graph, form).source) for form in ("folded", "expanded"))

    assert "line, 76 parameters" in folded
    assert "shares the weights of model" in folded
    assert folded.count("frozen") == 1
    assert "agreement × 0.5" in folded
    assert "node/model.first" not in folded
    assert "node/model.first" in expanded
    assert "shares the weights of model" in expanded
    assert "frozen" in expanded
