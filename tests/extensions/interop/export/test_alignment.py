"""Nodes correspond by what they compute, not by their names."""

from __future__ import annotations

from typing import Any

import pytest
from weft.blocks.registry import registry
from weft.extensions.interop.export.huggingface.alignment import align
from weft.extensions.interop.export.huggingface.equations import params_for
from weft.graphs.checker.check import check
from weft.graphs.ir.graph import Graph
from weft.specs.load import loaded


def spec(**changes: Any) -> dict[str, Any]:
    """Return a spec of an embedding, two maps of which one is in a repeat, and a head."""
    value: dict[str, Any] = {
        "format": 1,
        "name": "small",
        "params": {"d": 4, "layers": 2, "vocab": 9},
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"tokens": "ids:vocab[B T]"},
        "outputs": {"logits": "head.y"},
        "blocks": {
            "layer": {
                "inputs": {"x": "f[B T d]"},
                "outputs": {"x": "norm.y"},
                "nodes": {
                    "map": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": "=d"}},
                    "norm": {"use": "layer_norm@1", "in": {"x": "map.y"}},
                },
            }
        },
        "nodes": {
            "words": {"use": "embedding@1", "in": {"ids": "tokens"}, "params": {"d_model": "=d"}},
            "stack": {
                "repeat": "=layers",
                "block": "layer",
                "carry": ["x"],
                "in": {"x": "words.y"},
            },
            "head": {"use": "linear@1", "in": {"x": "stack.x"}, "params": {"d_out": "=vocab"}},
        },
    }
    nodes = changes.pop("nodes", {})
    return {**value, **changes, "nodes": {**value["nodes"], **nodes}}


def graph(value: dict[str, Any]) -> Graph:
    """Return the graph of a spec."""
    return check(loaded(value).form, registry(), source="small.json")


OTHER = {
    "format": 1,
    "name": "other",
    "axes": {"N": "batch", "L": "time"},
    "inputs": {"ids": "ids:30[N L]"},
    "outputs": {"scores": "out.y"},
    "blocks": {
        "step": {
            "inputs": {"h": "f[N L 6]"},
            "outputs": {"h": "scaled.y"},
            "nodes": {
                "mix": {"use": "linear@1", "in": {"x": "h"}, "params": {"d_out": 6, "bias": False}},
                "scaled": {"use": "layer_norm@1", "in": {"x": "mix.y"}},
            },
        }
    },
    "nodes": {
        "look": {"use": "embedding@1", "in": {"ids": "ids"}, "params": {"d_model": 6}},
        "drop": {"use": "dropout@1", "in": {"x": "look.y"}, "params": {"dropout": 0.1}},
        "deep": {"repeat": 3, "block": "step", "carry": ["h"], "in": {"h": "drop.y"}},
        "out": {"use": "linear@1", "in": {"x": "deep.h"}, "params": {"d_out": 30}},
    },
}


def test_renamed_nodes_correspond_and_give_the_params() -> None:
    """Dropout is passed over, and a missing bias is noted."""
    mine, theirs = graph(spec()), graph(OTHER)

    params = params_for(mine, theirs, align(mine, theirs))
    assert params == {"d": 6, "layers": 3, "vocab": 30}

    found = align(graph({**spec(), "params": params}), theirs)
    assert found.differences == []
    assert found.lacking == [f"stack.{i}.map.bias" for i in range(3)]
    assert found.inputs == {"tokens": "ids"}
    assert found.weights["words.weight"] == "look.weight"
    assert found.weights["stack.2.map.weight"] == "deep.2.mix.weight"
    assert found.weights["head.bias"] == "out.bias"


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"params": {"d": 4, "layers": 3, "vocab": 9}}, ["'stack' has 3 copies"]),
        (
            {"tie": [["words.weight", "head.weight"]]},
            ["only the model ties head.weight and words.weight"],
        ),
        (
            {
                "outputs": {"logits": "act.y"},
                "nodes": {
                    "act": {
                        "use": "elementwise@1",
                        "params": {"y": "relu(x)"},
                        "in": {"x": "head.y"},
                    }
                },
            },
            ["'act' (elementwise@1) has no counterpart", "the outputs are logits"],
        ),
    ],
)
def test_what_differs_is_listed(changes: dict[str, Any], wanted: list[str]) -> None:
    """One sentence for each place, with paths of the second graph."""
    assert align(graph(spec()), graph(spec(**changes))).differences == wanted
