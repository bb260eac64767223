"""`blocks=[...]`: a block of a script or a notebook, without a package."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import weft
from torch import Tensor, nn
from weft.runtime.checkpoint.saving import Contents, save, weights_of


class Shifted(nn.Module):
    """x + by."""

    def __init__(self, d_model: int, by: float) -> None:
        """Store the number."""
        super().__init__()
        self.d_model, self.by = d_model, by

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum."""
        return x + self.by


class ShiftParams(weft.Params):
    """Params of `offset`."""

    by: float = 1.0


def shift(module: Any = Shifted) -> weft.BlockType:
    """Return the declaration of the block."""
    return weft.BlockType(
        name="offset",
        doc="Add a number; y = x + by.",
        source="this test",
        params=ShiftParams,
        signature=lambda _, __: weft.Signature(
            inputs=(weft.port("x", "f[... d_model]"),), outputs=(weft.port("y", "f[... d_model]"),)
        ),
        module=module,
    )


SHIFT = shift()
SPEC = {
    "format": 1,
    "name": "shifted",
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"tokens": "ids:9[B T]"},
    "outputs": {"logits": "head.y"},
    "nodes": {
        "embedding": {"use": "embedding@1", "params": {"d_model": 4}, "in": {"ids": "tokens"}},
        "shift": {"use": "offset@1", "params": {"by": 2.0}, "in": {"x": "embedding.y"}},
        "head": {"use": "linear@1", "params": {"d_out": 9}, "in": {"x": "shift.y"}},
    },
    "step": {"axis": "T"},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a spec file that uses the block."""
    path = tmp_path / "shifted.json"
    path.write_text(json.dumps(SPEC))
    return path


def test_every_function_that_takes_a_spec_takes_blocks(file: Path, tmp_path: Path) -> None:
    """Without them the block is unknown."""
    assert [finding.code for finding in weft.check(file)] == ["N01"]

    assert weft.check(file, blocks=[SHIFT]).errors == []
    assert weft.draw(file, tmp_path / "a.dot", blocks=[SHIFT]).is_file()
    assert weft.diff(file, file, blocks=[SHIFT]).equal
    assert weft.example_inputs(file, blocks=[SHIFT])["tokens"].shape[0] == 2
    assert weft.build(file, blocks=iter([SHIFT])).shift.by == 2.0


def test_a_loaded_spec_keeps_its_blocks(file: Path) -> None:
    """Also in its variants and in its graph."""
    spec = weft.load(file, blocks=[SHIFT])

    model: Any = weft.build(spec)

    tokens = torch.tensor([[1, 2]])
    expected = model.head(model.embedding(tokens) + 2.0)
    assert torch.equal(model(tokens=tokens)["logits"], expected)
    other: Any = weft.build(spec.swap("head", "linear@1", bias=False))
    assert other.shift.by == 2.0
    assert spec.graph().blocks == (SHIFT,)
    assert weft.check(spec, blocks=[SHIFT]).errors == [], "the same block twice is one block"


def test_a_checkpoint_needs_the_blocks_again(file: Path, tmp_path: Path) -> None:
    """Its files name no code; the error says how to pass the block."""
    graph = weft.load(file, blocks=[SHIFT]).graph()
    model = weft.build(graph)
    folder = save(tmp_path / "saved", Contents(graph=graph, weights=weights_of(model, graph)))

    opened = weft.open(folder, blocks=[SHIFT])

    inputs = weft.example_inputs(model)
    assert torch.equal(opened.module(**inputs)["logits"], model.eval()(**inputs)["logits"])
    assert "shifted" in repr(opened)
    with pytest.raises(weft.SpecError, match=r"pass it from Python as blocks=\[") as caught:
        weft.open(folder)
    assert [finding.code for finding in caught.value.findings] == ["N01"]


def test_a_model_with_an_own_block_is_pickled_by_the_name_of_the_block(file: Path) -> None:
    """`SHIFT` is a global name of this module; another block cannot be found again."""
    model: Any = weft.build(file, blocks=[SHIFT])

    again = pickle.loads(pickle.dumps(model))

    assert type(again) is type(model)
    with pytest.raises(pickle.PicklingError, match="block 'offset@1' has no global"):
        pickle.dumps(weft.build(file, blocks=[shift()]))


def test_a_block_that_is_defined_again_replaces_the_old_one(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a notebook, where a cell runs again: the old model keeps the old code."""
    notebook: Any = ModuleType("a_notebook")
    monkeypatch.setitem(sys.modules, notebook.__name__, notebook)
    block = shift("a_notebook:Cell")
    notebook.Cell = Shifted
    old: Any = weft.build(file, blocks=[block])

    class Changed(Shifted):
        """The new code of the cell."""

    notebook.Cell = Changed
    new: Any = weft.build(file, blocks=[block])

    assert type(old.shift) is Shifted
    assert type(new.shift) is Changed
