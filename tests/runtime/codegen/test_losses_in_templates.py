"""Losses inside templates are counted as those at the top are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from weft.graphs.ir.losses import origin

WIRES = {"text": "text", "mask": "mask"}
TYPES = {"text": "ids:vocab[B T]", "mask": "mask[B T]"}
NODES = {
    "embedding": {"use": "embedding@1", "in": {"ids": "text"}, "params": {"d_model": 4}},
    "head": {"use": "linear@1", "in": {"x": "embedding.y"}, "params": {"d_out": "=vocab"}},
    "loss": {
        "use": "cross_entropy@1",
        "in": {"logits": "head.y", "labels": "text", "mask": "mask"},
    },
}
BLOCKS = {
    "part": {"inputs": TYPES, "outputs": {"loss": "loss.loss", "nll": "loss.nll"}, "nodes": NODES},
    "half": {
        "inputs": TYPES,
        "outputs": {"loss": "half.y", "nll": "whole.nll"},
        "nodes": {
            "whole": {"use": "part", "in": WIRES},
            "half": {
                "use": "elementwise@1",
                "in": {"x": "whole.loss"},
                "params": {"y": "x / 2", "kind": "loss"},
            },
        },
    },
    "formula": {
        "inputs": {"loss": "loss[]"},
        "outputs": {"loss": "double.y"},
        "nodes": {
            "double": {
                "use": "elementwise@1",
                "in": {"x": "loss"},
                "params": {"y": "2 * x", "kind": "loss"},
            }
        },
    },
}
REPEAT = {"repeat": 2, "block": "half", "collect": ["loss", "nll"], "in": WIRES}
BATCH = {
    "text": torch.tensor([[1, 2, 3, 4], [4, 3, 2, 1]]),
    "mask": torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]]).bool(),
}


def with_nodes(folder: Path, **nodes: Any) -> weft.Spec:
    """Return a spec with some nodes, whose loss is that of node `y`."""
    text = json.dumps(nodes)
    blocks = {name: block for name, block in BLOCKS.items() if f'"{name}"' in text}
    if "half" in blocks:
        blocks["part"] = BLOCKS["part"]
    spec = {
        "format": 1,
        "name": "objective",
        "params": {"vocab": 5},
        "axes": {"B": "batch", "T": "time"},
        "inputs": TYPES,
        "blocks": blocks,
        "nodes": nodes,
        "outputs": {"loss": "y.loss"},
    }
    path = folder / "objective.json"
    path.write_text(json.dumps(spec))
    return weft.load(path)


def objective(folder: Path, **nodes: Any) -> Any:
    """Return the module of such a spec."""
    spec = with_nodes(folder, **nodes)
    assert list(weft.check(spec)) == []
    return weft.build(spec)


@pytest.mark.parametrize(
    "nodes",
    [
        {**NODES, "y": {"use": "formula", "in": {"loss": "loss.loss"}}},
        {"y": {"use": "part", "in": WIRES}},
        {"y": {"use": "half", "in": WIRES}},
        {"y": REPEAT},
        {"y": {**REPEAT, "share": True}},
        {"a": {"use": "half", "in": WIRES}, "y": {"use": "formula", "in": {"loss": "a.loss"}}},
    ],
    ids=["around", "template", "nested", "repeat", "shared copies", "formula"],
)
def test_a_loss_sums_over_the_positions_of_its_mask(tmp_path: Path, nodes: dict[str, Any]) -> None:
    """They are the 3 and 2 that the mask has."""
    weights = objective(tmp_path, **nodes).weights(**BATCH)

    assert {name: weight.item() for name, weight in weights.items()} == {"loss": 5}


def test_the_mean_of_a_loss_in_a_template_is_that_of_the_loss_at_the_top(tmp_path: Path) -> None:
    """With the same weights, so that the same run takes the same steps."""
    top = {**NODES, "y": {"use": "formula", "in": {"loss": "loss.loss"}}}
    inside = {"a": {"use": "part", "in": WIRES}, "y": {"use": "formula", "in": {"loss": "a.loss"}}}
    first, second = objective(tmp_path, **top), objective(tmp_path, **inside)
    weights = {name.removeprefix("a."): value for name, value in second.state_dict().items()}
    first.load_state_dict(weights)

    assert first(**BATCH)["loss"] == second(**BATCH)["loss"]
    assert first.weights(**BATCH) == second.weights(**BATCH)


def test_a_value_of_nested_templates_comes_from_the_block_inside(tmp_path: Path) -> None:
    """A score is averaged over the items of the loss of the same block."""
    root = with_nodes(tmp_path, y={"use": "half", "in": WIRES}).graph().root

    assert origin(root, "y.nll") == ("y", "whole", "loss")
    assert origin(root, "y.loss") == ("y", "half")
