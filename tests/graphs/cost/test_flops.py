"""Tests of the FLOPs of a forward pass against hand calculations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.cost.flops import default_sizes, flops, flops_by_node
from weft.graphs.ir.graph import BlockNode
from weft.graphs.ir.traverse import walk
from weft.specs.findings import InputError
from weft.specs.load import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.graphs.ir.graph import Graph

    GraphOf = Callable[..., Graph]

SIZES = {"B": 3, "S": 11, "T": 7}
STACK: dict[str, Any] = {
    "format": 1,
    "name": "stack",
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"x": "f[B T 8]"},
    "outputs": {"y": "last.y"},
    "blocks": {
        "pair": {
            "inputs": {"x": "f[B T 8]"},
            "outputs": {"x": "down.y"},
            "nodes": {
                "up": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": 5}},
                "down": {"use": "linear@1", "in": {"x": "up.y"}, "params": {"d_out": 8}},
            },
        },
        "stack": {
            "inputs": {"x": "f[B T 8]"},
            "outputs": {"x": "inner.x"},
            "nodes": {
                "inner": {"repeat": 3, "block": "pair", "carry": ["x"], "in": {"x": "x"}},
            },
        },
    },
    "nodes": {
        "outer": {"repeat": 4, "block": "stack", "carry": ["x"], "in": {"x": "x"}},
        "last": {"use": "linear@1", "in": {"x": "outer.x"}, "params": {"d_out": 2}},
    },
}
GATED: dict[str, Any] = {
    "inputs": {"x": "f[B T 8]"},
    "outputs": {"x": "map.y"},
    "nodes": {
        "map": {"use": "gated_feed_forward@1", "in": {"x": "x"}, "params": {"d_ff": 9}},
    },
}


def hand(b: int, s: int, t: int) -> int:
    """Return the FLOPs of the base Transformer of the paper, computed by hand.

    A multiplication and an addition are 2; d_model 512, d_ff 2048, 6 and 6 layers,
    37,000 words.
    """
    d_model, d_ff, layers, vocab = 512, 2048, 6, 37000

    def attention(reads: int, is_read: int) -> int:
        projections = 2 * d_model * d_model * (2 * reads + 2 * is_read)
        return projections + 2 * 2 * reads * is_read * d_model

    def feed_forward(length: int) -> int:
        return 2 * length * 2 * d_model * d_ff

    encoder = attention(s, s) + feed_forward(s)
    decoder = attention(t, t) + attention(t, s) + feed_forward(t)
    return b * (layers * (encoder + decoder) + 2 * t * d_model * vocab)


@pytest.mark.parametrize("sizes", [SIZES, {"B": 1, "S": 32, "T": 32}, {"B": 2, "S": 1, "T": 1}])
def test_flops_of_transformer_base_by_hand(sizes: dict[str, int]) -> None:
    """Embeddings, positions, norms and dropout cost nothing; the output layer costs most."""
    graph = check(load("transformer-base").form, registry())

    assert flops(graph, sizes) == hand(sizes["B"], sizes["S"], sizes["T"])


def test_defaults_are_one_sequence_of_32() -> None:
    """Every axis of the graph has a size."""
    graph = check(load("transformer-base").form, registry())

    assert default_sizes(graph) == {"B": 1, "S": 32, "T": 32}


def test_flops_are_listed_for_every_block(graph_of: GraphOf) -> None:
    """Copies within copies are 4 * 3; paths are those of `walk`, for blocks only."""
    graph = graph_of(STACK)

    found = flops_by_node(graph, {"B": 2, "T": 7})

    assert found == {
        "outer.*.inner.*.up": 12 * 2 * 14 * 8 * 5,
        "outer.*.inner.*.down": 12 * 2 * 14 * 5 * 8,
        "last": 2 * 14 * 8 * 2,
    }
    assert found.keys() == {path for path, node in walk(graph.root) if isinstance(node, BlockNode)}
    assert flops(graph, {"B": 2, "T": 7}) == sum(found.values())


def test_copies_that_share_weights_work_as_much_as_others(graph_of: GraphOf) -> None:
    """Sharing reduces the parameters, but not the FLOPs."""
    shared = {**STACK["nodes"]["outer"], "share": True}
    spec = {**STACK, "nodes": {**STACK["nodes"], "outer": shared}}

    found = flops_by_node(graph_of(spec), {"B": 2, "T": 7})

    assert found["outer.inner.*.up"] == 12 * 2 * 14 * 8 * 5


def test_a_copy_that_is_another_template_has_its_own_work(graph_of: GraphOf) -> None:
    """Two pairs and one gated map: 2 * 8 * 9 * 3 per position."""
    node = {"repeat": 3, "block": "pair", "carry": ["x"], "in": {"x": "x"}}
    spec = {
        **STACK,
        "blocks": {"pair": STACK["blocks"]["pair"], "gated": GATED},
        "nodes": {**STACK["nodes"], "outer": {**node, "instead": {"1": "gated"}}},
    }

    found = flops_by_node(graph_of(spec), {"B": 2, "T": 7})

    assert found == {
        "outer.*.up": 2 * 2 * 14 * 8 * 5,
        "outer.*.down": 2 * 2 * 14 * 5 * 8,
        "outer.1.map": 14 * 2 * 8 * 9 * 3,
        "last": 2 * 14 * 8 * 2,
    }


def test_an_axis_without_a_size_is_named(graph_of: GraphOf) -> None:
    """The message names the axis, and all known axes."""
    with pytest.raises(InputError, match="axis 'T' of stack has no size") as caught:
        flops(graph_of(STACK), {"B": 1})

    assert caught.value.help == "give a size for each of B, T"
