"""Lines and patterns of a table without effect are warnings, with their places."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from safetensors.torch import save_file

SPEC: dict[str, Any] = {
    "format": 1,
    "name": "bag",
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"tokens": "ids:5[B T]"},
    "outputs": {"logits": "head.y"},
    "nodes": {
        "embedding": {"use": "embedding@1", "in": {"ids": "tokens"}, "params": {"d_model": 4}},
        "head": {"use": "linear@1", "in": {"x": "embedding.y"}, "params": {"d_out": 5}},
    },
}
LINES = {"embedding.weight": "words", "head.{p}": "out.{p}"}


def notes(folder: Path, **changes: Any) -> list[str]:
    """Return the notes of an import by a table with changes."""
    table = {
        "format": 1,
        "name": "hf-bag",
        "doc": "A table.",
        "spec": "bag.json",
        "model_type": ["bag"],
        "params": {},
        "prefix": "base.",
        "weights": LINES,
        "ignore": ["sines", "ids"],
        **changes,
    }
    (folder / "bag.json").write_text(json.dumps(SPEC))
    (folder / "table.json").write_text(json.dumps(table))
    (folder / "config.json").write_text(json.dumps({"model_type": "bag"}))
    sizes = {"words": (5, 4), "out.weight": (5, 4), "out.bias": (5,), "sines": (3,), "ids": (2,)}
    tensors = {f"base.{name}": torch.randn(size) for name, size in sizes.items()}
    save_file(tensors, folder / "model.safetensors")
    return [note for note in weft.import_hf(folder, folder / "table.json").notes if "I06" in note]


def test_a_table_whose_lines_all_have_an_effect_has_no_warning(tmp_path: Path) -> None:
    """Two patterns ignore two tensors."""
    assert notes(tmp_path) == []


@pytest.mark.parametrize(
    ("pattern", "help_"),
    [
        ("cosines", "did you mean 'sines'?"),
        ("base.sines", "names have no prefix: write 'sines'"),
        ("unknown.{p}", "remove it"),
        ("sines", "remove it"),
        ("out.bias", "remove it"),
    ],
)
def test_a_pattern_that_ignores_nothing_is_named(tmp_path: Path, pattern: str, help_: str) -> None:
    """Misspelled, with the prefix, of no tensor, twice, or of a tensor that a line reads."""
    [note] = notes(tmp_path, ignore=["sines", "ids", pattern])

    assert f"warning[I06]: '{pattern}' ignores no tensor" in note
    assert "#/ignore/2" in note
    assert f"help: {help_}" in note


def test_a_line_that_fits_no_weight_is_named(tmp_path: Path) -> None:
    """With the path that it may mean."""
    [note] = notes(tmp_path, weights={**LINES, "embeding.weight": "words"})

    assert "warning[I06]: no weight of the spec fits 'embeding.weight'" in note
    assert "#/weights/embeding.weight" in note
    assert "help: did you mean 'embedding'?" in note


def test_a_param_that_is_null_and_that_the_spec_lacks_is_named(tmp_path: Path) -> None:
    """Only a table that extends another one has a reason for it."""
    [note] = notes(tmp_path, params={"layers": None})

    assert "warning[I06]: the spec has no param 'layers'" in note
    assert "#/params/layers" in note


def test_what_a_table_inherits_is_not_examined(tmp_path: Path) -> None:
    """The extended table may have lines for other specs."""
    lines = {**LINES, "other.weight": "words"}
    notes(tmp_path, weights=lines, ignore=["sines", "ids", "more"])
    child = {"format": 1, "extends": "table.json", "name": "hf-child", "doc": "A child."}
    (tmp_path / "child.json").write_text(json.dumps(child))

    made = weft.import_hf(tmp_path, tmp_path / "child.json")

    assert not [note for note in made.notes if "I06" in note]
