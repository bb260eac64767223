"""Late dropout reaches everything that drops values at random."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import weft
from weft.runtime.train.passes import Dropouts

SPECS = {
    "every row of a residual path": {"use": "sublayer@1", "params": {"drop_path": 0.5}},
    "the weights of attention": {
        "use": "sublayer@1",
        "fill": {"f": {"use": "attention@1", "params": {"heads": 2, "dropout": 0.5}}},
    },
    "a layer inside a block": {
        "use": "sublayer@1",
        "fill": {"f": {"use": "feed_forward@1", "params": {"d_ff": 8, "dropout": 0.5}}},
    },
    "a node": {"use": "dropout@1", "params": {"dropout": 0.5}},
}


@pytest.mark.parametrize("node", SPECS.values(), ids=SPECS.keys())
def test_dropout_is_switched_off_and_on_again(tmp_path: Path, node: dict[str, object]) -> None:
    """Off, two passes in training are equal; on again, they differ."""
    fill = {"fill": {"f": {"use": "linear@1", "params": {"d_out": 8}}}}
    node = {**(fill if node["use"] == "sublayer@1" else {}), **node, "in": {"x": "x"}}
    value = {
        "format": 1,
        "name": "drops",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]"},
        "outputs": {"y": "drops.y"},
        "nodes": {"drops": node},
    }
    path = tmp_path / "drops.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    model = weft.build(path).train()
    x = torch.randn(8, 6, 8)
    dropouts = Dropouts(model, weft.load(path).graph())

    dropouts.set(0.0)
    assert model(x=x)["y"].equal(model(x=x)["y"])

    dropouts.set(1.0)
    assert not model(x=x)["y"].equal(model(x=x)["y"])
