"""Tables that extend others, arithmetic in names, and stacked tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from weft.extensions.interop.importing.config import Configuration
from weft.extensions.interop.importing.inherit import merged
from weft.extensions.interop.importing.table import ImportTable, load_table
from weft.extensions.interop.importing.tensors import FolderTensors
from weft.extensions.interop.importing.weights import converted
from weft.runtime.checkpoint.mapping.names import filled
from weft.specs.expressions import ExpressionError
from weft.specs.findings import SpecError

TINY: dict[str, Any] = {
    "format": 1,
    "name": "tiny",
    "doc": "",
    "spec": "bert",
    "model_type": ["tiny"],
    "params": {"d_model": "=size"},
    "weights": {},
}


def read(tmp_path: Path, weights: dict[str, Any], tensors: dict[str, Any], **config: Any) -> Any:
    """Return a function from shapes to the weights that lines read from tensors."""
    save_file(tensors, tmp_path / "model.safetensors")
    table = ImportTable.model_validate({**TINY, "weights": weights})

    def work(shapes: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
        with FolderTensors(tmp_path, "", {}) as theirs:
            config_ = Configuration(config, {}, "c")
            return converted(table, "tiny.json", shapes, theirs, config_).weights

    return work


def test_a_child_changes_what_it_names() -> None:
    """Objects are merged by key, and requirements by their subject.

    Null is a value of a default, and removes a line and a requirement.
    """
    base = {
        "doc": "old",
        "defaults": {"a": 1, "b": None, "c": 3},
        "require": [{"key": "a", "among": [1], "else": "x"}, {"that": "c > 1", "else": "y"}],
        "weights": {"x": "a", "y": "b"},
        "ignore": ["one", "two"],
    }
    child = {
        "extends": "base",
        "doc": "new",
        "defaults": {"c": None, "d": None},
        "require": [{"key": "a", "among": [2], "else": "z"}, {"that": "c > 1", "else": None}],
        "weights": {"x": None, "z": "c"},
        "ignore": ["three"],
    }

    assert merged(base, child) == {
        "doc": "new",
        "defaults": {"a": 1, "b": None, "c": None, "d": None},
        "require": [{"key": "a", "among": [2], "else": "z"}],
        "weights": {"y": "b", "z": "c"},
        "ignore": ["three"],
    }


@pytest.mark.parametrize(
    ("name", "problem"), [("child", "itself extends"), ("barrt", "unknown table"), ("../a", "name")]
)
def test_extends_names_another_table(tmp_path: Path, name: str, problem: str) -> None:
    """A circle, an unknown table and a path are findings at the key."""
    path = tmp_path / "child.json"
    path.write_text(json.dumps({**TINY, "extends": name}))

    with pytest.raises(SpecError, match=problem) as error:
        load_table(path)

    assert [finding.at for finding in error.value.findings] == ["/extends"]


def test_names_have_arithmetic(tmp_path: Path) -> None:
    """Two stacks that alternate in the other library's file."""
    lines = {"local.{i}.{p}": "layers.{2*i}.{p}", "wide.{i}.{p}": "layers.{2*i + 1}.{p}"}
    tensors = {f"layers.{n}.weight": torch.full((2,), float(n)) for n in range(4)}

    shapes = {f"{stack}.{i}.weight": (2,) for stack in ("local", "wide") for i in range(2)}
    found = read(tmp_path, lines, tensors)(shapes)

    numbers = {path: int(tensor[0]) for path, tensor in found.items()}
    assert numbers == {
        "local.0.weight": 0,
        "local.1.weight": 2,
        "wide.0.weight": 1,
        "wide.1.weight": 3,
    }


@pytest.mark.parametrize(
    ("name", "hole"), [("a.{i - 5}", "2"), ("a.{i / 2}", "3"), ("a.{1 + i}", "x")]
)
def test_a_name_needs_a_natural_number(name: str, hole: str) -> None:
    """No negative number, no fraction, and no arithmetic with words."""
    with pytest.raises(ExpressionError):
        filled(name, {"i": hole})


def test_tensors_of_experts_are_stacked(tmp_path: Path) -> None:
    """Each is transposed first; the number of experts is from the configuration."""
    line = {"from": "layers.{i}.experts.{e}.w1", "stack": {"e": "=experts"}, "permute": [1, 0]}
    tensors = {f"layers.7.experts.{e}.w1": torch.randn(2, 3) for e in range(4)}

    found = read(tmp_path, {"x.{i}.inner": line}, tensors, experts=4)({"x.7.inner": (4, 3, 2)})

    assert torch.equal(found["x.7.inner"], torch.stack([t.T for t in tensors.values()]))


def test_a_layer_is_an_entry_of_a_stacked_tensor(tmp_path: Path) -> None:
    """Placeholders that stand for numbers are names of expressions."""
    whole = torch.randn(3, 2, 2)

    work = read(tmp_path, {"x.{i}.w": {"from": "all", "take": ["=i"]}}, {"all": whole})

    found = work({f"x.{i}.w": (2, 2) for i in range(3)})
    assert all(torch.equal(found[f"x.{i}.w"], whole[i]) for i in range(3))
    with pytest.raises(SpecError, match="4 of the 12 elements of 'all' are not read"):
        work({f"x.{i}.w": (2, 2) for i in range(2)})


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ({"from": "b.{e}", "stack": {"f": 2}}, "lacks the placeholder '{f}'"),
        ({"from": "b.{i}", "stack": {"i": 2}}, "'{i}' is stacked, but the path on the left"),
        ({"fill": 0, "times": 2}, "'times' has no effect on a weight without a source tensor"),
        ("b.{i +}", "cannot be read: the expression ends too early"),
    ],
)
def test_a_line_that_cannot_work_is_refused(tmp_path: Path, line: Any, problem: str) -> None:
    """When the table is read."""
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps({**TINY, "weights": {"a.{i}": line}}))

    with pytest.raises(SpecError) as error:
        load_table(path)

    assert any(problem in finding.problem for finding in error.value.findings)
