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


def scoped(**params: int) -> dict[str, Any]:
    """Return a spec whose template has params with the names of the spec's, of other meaning."""
    layer = {
        "params": {"d": None, "vocab": "=d + 1", "rank": 2},
        "inputs": {"x": "f[B T e]"},
        "outputs": {"x": "up.y"},
        "nodes": {
            "down": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": "=d"}},
            "mid": {"use": "linear@1", "in": {"x": "down.y"}, "params": {"d_out": "=vocab"}},
            "low": {"use": "linear@1", "in": {"x": "mid.y"}, "params": {"d_out": "=rank"}},
            "up": {"use": "linear@1", "in": {"x": "low.y"}, "params": {"d_out": "=e"}},
        },
    }
    by_copy = {"d": "=2*vocab + i", "rank": [3, 5]}
    wires = {"carry": ["x"], "in": {"x": "words.y"}, "params": by_copy}
    last = {"use": "layer", "in": {"x": "stack.x"}, "params": {"d": "=d"}}
    return {
        **spec(),
        "params": {"d": 4, "e": 3, "vocab": 9, **params},
        "blocks": {"layer": layer},
        "nodes": {
            "words": {"use": "embedding@1", "in": {"ids": "tokens"}, "params": {"d_model": "=e"}},
            "stack": {"repeat": 2, "index": "i", "block": "layer", **wires},
            "last": last,
            "head": {"use": "linear@1", "in": {"x": "last.x"}, "params": {"d_out": "=vocab"}},
        },
    }


def test_params_of_templates_are_those_of_each_use() -> None:
    """A template's `d` is `2*vocab + i` in one use, and the spec's `d` in another."""
    mine, theirs = graph(scoped()), graph(scoped(d=7, e=5, vocab=11))
    assert mine.weights()["stack.1.down.weight"] == (19, 3)
    assert mine.weights()["last.mid.weight"] == (5, 4)

    params = params_for(mine, theirs, align(mine, theirs))

    assert params == {"d": 7, "e": 5, "vocab": 11}


def test_a_block_that_a_template_takes_is_found_in_the_spec() -> None:
    """The param `place` of the template is the spec's `inner`, and not the spec's `place`."""

    def with_position(**params: Any) -> Graph:
        value = spec()
        layer = value["blocks"]["layer"]
        layer["params"] = {"place": None}
        layer["nodes"]["norm"] = {"use": "=place", "in": {"x": "map.y"}}
        value["nodes"]["stack"] |= {"params": {"place": "=inner"}, "in": {"x": "first.y"}}
        value["nodes"]["first"] = {"use": "=place", "in": {"x": "words.y"}}
        positions = {key: {"use": "sinusoidal_position@1"} for key in ("place", "inner")}
        value["params"] |= {**positions, **params}
        return graph(value)

    learned = {"use": "learned_position@1", "params": {"max_length": 12}}
    mine, theirs = with_position(), with_position(inner=learned)

    params = params_for(mine, theirs, align(mine, theirs))

    assert params["inner"]["use"] == "learned_position@1"
    assert params["place"]["use"] == "sinusoidal_position@1"


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
