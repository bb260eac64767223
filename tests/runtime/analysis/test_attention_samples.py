"""Attention pictures of sample outputs."""

from __future__ import annotations

from pathlib import Path

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.runtime.analysis.attention_pictures import attention_pictures
from weft.runtime.codegen.build import build
from weft.runtime.data.symbols import Symbols
from weft.specs.load import load

SMALL = {"vocab": 8, "d_model": 8, "heads": 2, "d_ff": 12, "layers": 1, "dropout": 0.0}
WORDS = Symbols(["a", "b", "c", "d"])


@pytest.mark.integration
def test_short_pairs_are_drawn(tmp_path: Path) -> None:
    """An empty source and a long one are left out; the mode of the model is restored."""
    graph = check(load("transformer-tiny").form, registry(), SMALL)
    model = build(graph).train()
    pairs = [("", "a"), ("a " * 60, "b"), ("a b", "c"), ("d", "a b"), ("b", "b")]

    paths = attention_pictures(model, graph, (WORDS, WORDS), pairs, tmp_path)

    assert [path.name for path in paths] == ["attention-1.png", "attention-2.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    assert model.training


def test_a_model_without_a_source_has_no_pictures(tmp_path: Path) -> None:
    """Training continues without them."""
    graph = check(load("gpt2").form, registry(), {**SMALL, "max_length": 16})

    assert attention_pictures(build(graph), graph, (WORDS, WORDS), [("a", "b")], tmp_path) == []
