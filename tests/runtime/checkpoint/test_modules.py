"""Checkpoints of modules that no run has trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from torch import nn
from weft.specs.findings import InputError

pytestmark = pytest.mark.integration

SMALL: dict[str, Any] = {
    "d_model": 16,
    "heads": 2,
    "d_ff": 32,
    "layers": 1,
    "dropout": 0.1,
    "vocab": 40,
}
LINES = ["sun moon", "river stone bird"]


def tokenizer(checkpoint: Path) -> Path:
    """Return the SentencePiece model of a checkpoint, which has 40 pieces."""
    [file] = checkpoint.glob("*.model")
    return file


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_trained_module_becomes_a_checkpoint(
    toy_checkpoint: Path, tmp_path: Path, *, wrapped: bool
) -> None:
    """It translates as the model does that has the same weights, also from a wrapper of torch."""
    expected = weft.open(toy_checkpoint)
    module = weft.build(weft.load("transformer-tiny", **SMALL))
    module.load_state_dict(expected.module.state_dict())
    outer: Any = torch.compile(module, backend="eager") if wrapped else module

    model = weft.Model.from_module(
        outer,
        None if wrapped else weft.load("transformer-tiny", **SMALL),
        tokenizer(toy_checkpoint),
    )
    folder = model.save(tmp_path / "saved")

    opened = weft.open(folder, predict={"type": "beam", "beam": 2, "max_extra": 4})
    assert opened.translate(LINES) == expected.translate(LINES)
    assert opened.graph.name == "transformer-tiny"


def test_a_saved_module_does_not_change_with_the_module(tmp_path: Path) -> None:
    """The weights are copied, and written in float32."""
    module = weft.build(weft.load("transformer-tiny", **SMALL)).bfloat16()
    model = weft.Model.from_module(module)
    before = module.state_dict()["head.weight"].float()

    with torch.no_grad():
        module.get_submodule("head").weight.zero_()  # type: ignore[operator]

    weights = weft.open(model.save(tmp_path / "saved")).module.state_dict()
    assert torch.equal(weights["head.weight"], before)
    assert weights["head.weight"].dtype == torch.float32


WRONG: list[tuple[dict[str, Any], Any, str]] = [
    ({"layers": 2}, None, "the module has no weight 'encoder.1"),
    ({"d_ff": 64}, None, r"has the shape \[32, 16\] in the module, and \[64, 16\]"),
    ({}, "nothing.model", "the tokenizer cannot be read: No such file"),
    ({}, b"x", "damaged or not a SentencePiece model"),
    ({}, {"source": b"x"}, "tokenizers of 'source'"),
]


@pytest.mark.parametrize(("params", "tokenizers", "problem"), WRONG)
def test_a_module_of_another_spec_is_refused(
    params: dict[str, Any], tokenizers: Any, problem: str
) -> None:
    """The message names the first weight or the tokenizer that does not fit."""
    module = weft.build(weft.load("transformer-tiny", **SMALL))

    with pytest.raises(InputError, match=problem):
        weft.Model.from_module(
            module, weft.load("transformer-tiny", **{**SMALL, **params}), tokenizers
        )


def test_a_tokenizer_of_another_size_is_refused(toy_checkpoint: Path) -> None:
    """Its pieces would not be the ids of the model."""
    module = weft.build(weft.load("transformer-tiny", **{**SMALL, "vocab": 50}))

    with pytest.raises(InputError, match="has 40 pieces, but the input 'source' has 50 ids"):
        weft.Model.from_module(module, tokenizers=tokenizer(toy_checkpoint))


def test_a_module_that_weft_did_not_build_needs_a_spec() -> None:
    """Its weights alone say nothing of what is computed."""
    with pytest.raises(InputError, match="Linear was not built from a spec"):
        weft.Model.from_module(nn.Linear(2, 2))


def test_exporting_a_module_says_how_to_save_it(tmp_path: Path) -> None:
    """An export opens a folder."""
    module = weft.build(weft.load("transformer-tiny", **SMALL))

    with pytest.raises(InputError, match="is not a checkpoint folder") as error:
        weft.export(module, "huggingface", tmp_path / "out")  # type: ignore[arg-type]

    assert "from_module" in error.value.help


def test_a_saved_spec_needs_no_other_file(tmp_path: Path) -> None:
    """A variant with overrides is the same graph when it is loaded again."""
    spec = weft.load("transformer-prenorm", layers=2).swap(
        "**.feed_forward/f", "gated_feed_forward@1"
    )

    path = spec.save(tmp_path / "folder" / "model.json")

    assert weft.load(path).graph().weights() == spec.graph().weights()
    assert weft.diff(path, spec).changes == ()
    assert "extends" not in path.read_text()
