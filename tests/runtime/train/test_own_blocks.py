"""Training with `blocks=[...]`: train, resume and open a model whose block is in no package."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import weft
from torch import Tensor, nn
from weft.runtime.train.run import Run


class Mixed(nn.Module):
    """W x, with a square matrix W."""

    def __init__(self, d_model: int) -> None:
        """Allocate the matrix."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_model, d_model))

    def initialize(self, generator: torch.Generator) -> None:
        """Draw the matrix."""
        nn.init.normal_(self.weight, std=0.1, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """Return the product."""
        return x @ self.weight.T


MIXED = weft.BlockType(
    name="mixed",
    doc="A square linear map; y = W x.",
    source="this test",
    signature=lambda _, __: weft.Signature(
        inputs=(weft.port("x", "f[... d_model]"),), outputs=(weft.port("y", "f[... d_model]"),)
    ),
    weights=lambda arguments: {"weight": (arguments["d_model"], arguments["d_model"])},
    module=Mixed,
)


@pytest.mark.slow
def test_a_run_uses_a_block_of_the_caller(toy_run: Callable[..., Run], tmp_path: Path) -> None:
    """Its checkpoints can be resumed and opened with the block, and not without."""
    base = weft.load("transformer-tiny", blocks=[MIXED])
    spec = base.swap("encoder.*.feed_forward/f", "mixed@1").written
    (tmp_path / "mixed.json").write_text(json.dumps({**spec, "name": "mixed-tiny"}))
    settings = toy_run(spec="mixed.json", updates=4).model_dump(mode="json")
    run = tmp_path / "run.json"
    run.write_text(json.dumps(settings))
    out = tmp_path / "out"

    with pytest.raises(weft.SpecError, match="unknown block 'mixed@1'"):
        weft.train(run, out=out)
    weft.train(run, out=out, blocks=[MIXED])
    result = weft.train(run, out=out, overrides={"updates": 6}, resume=True, blocks=[MIXED])

    assert result.state.update == 6
    assert result.averaged is not None
    [line] = weft.open(result.averaged, blocks=[MIXED]).translate(["sun moon"])
    assert isinstance(line, str)
    with pytest.raises(weft.SpecError, match="blocks="):
        weft.open(result.averaged)
