"""Tests of critical paths and path lengths against hand calculations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.cost.table import paths, sequential, shortest_paths
from weft.graphs.ir.traverse import placed
from weft.specs.findings import InputError
from weft.specs.load import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.graphs.ir.graph import Graph, Part

    GraphOf = Callable[..., Graph]

SIZES = {"B": 3, "S": 11, "T": 7}


def wired(nodes: dict[str, Any], output: str, **more: Any) -> dict[str, Any]:
    """Return a spec of one input of width 8."""
    return {
        "format": 1,
        "name": "some",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]"},
        "outputs": {"y": output},
        "nodes": nodes,
        **more,
    }


def shipped(name: str, **params: Any) -> Graph:
    """Return the graph of a shipped spec."""
    return check(load(name).form, registry(), params)


def part_at(graph: Graph, path: str) -> Part:
    """Return the part of a node."""
    [part] = [node.part for at, node, *_ in placed(graph.root) if at == path]
    assert part is not None
    return part


@pytest.mark.parametrize("layers", [1, 6])
def test_the_chain_of_the_transformer(layers: int) -> None:
    """Embedding and position; layers of 2 and 3 sublayers with their contents; the head.

    The first self-attention of the decoder does not depend on the encoder, and its branch is
    shorter.
    """
    chain = 2 + layers * 2 * 2 + layers * 3 * 2 - 2 + 1

    assert sequential(shipped("transformer-base", layers=layers), SIZES) == chain


def test_the_chain_of_recurrences() -> None:
    """Embedding, dropout, the longer of encoder and decoder; attention, join, dropout, head."""
    assert sequential(shipped("gru-attention"), SIZES) == 2 + 11 + 4
    assert sequential(shipped("gru-attention"), {**SIZES, "T": 100}) == 2 + 100 + 4


def test_a_shortcut_does_not_shorten_the_chain(graph_of: GraphOf) -> None:
    """The longest path counts."""
    nodes = {
        "long": {"use": "rnn@1", "in": {"x": "x"}, "params": {"d_hidden": 8}},
        "add": {"use": "elementwise@1", "in": {"x": "x", "z": "long.y"}, "params": {"y": "x + z"}},
    }

    assert sequential(graph_of(wired(nodes, "add.y")), {"B": 1, "T": 9}) == 10


def test_copies_follow_one_another_and_those_of_another_template_too(graph_of: GraphOf) -> None:
    """Two of one operation, one of nine."""
    blocks = {
        name: {"inputs": {"x": "f[B T 8]"}, "outputs": {"x": "f.y"}, "nodes": {"f": node}}
        for name, node in {
            "map": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": 8}},
            "memory": {"use": "rnn@1", "in": {"x": "x"}, "params": {"d_hidden": 8}},
        }.items()
    }
    node = {"repeat": 3, "block": "map", "carry": ["x"], "in": {"x": "x"}}
    spec = wired({"stack": {**node, "instead": {"1": "memory"}}}, "stack.x", blocks=blocks)

    assert sequential(graph_of(spec), {"B": 1, "T": 9}) == 1 + 9 + 1


def test_a_template_in_a_slot_has_a_chain_of_its_own(graph_of: GraphOf) -> None:
    """One for the sublayer, nine for the recurrence in it, one for the map after it."""
    inner = {
        "inputs": {"x": "f[B T 8]"},
        "outputs": {"y": "out.y"},
        "nodes": {
            "memory": {"use": "rnn@1", "in": {"x": "x"}, "params": {"d_hidden": 8}},
            "out": {"use": "linear@1", "in": {"x": "memory.y"}, "params": {"d_out": 8}},
        },
    }
    node = {"use": "sublayer@1", "in": {"x": "x"}, "fill": {"f": {"use": "inner"}}}
    graph = graph_of(wired({"layer": node}, "layer.y", blocks={"inner": inner}))

    assert sequential(graph, {"B": 1, "T": 9}) == 1 + 9 + 1


def test_slots_side_by_side_run_at_once(graph_of: GraphOf) -> None:
    """One for the norm, and the longer of the two; a signal takes the shorter."""
    fill = {
        "f": {"use": "rnn@1", "params": {"d_hidden": 8}},
        "g": {"use": "attention@1", "params": {"heads": 2}},
    }
    node = {"use": "parallel_sublayer@1", "in": {"x": "x"}, "fill": fill}
    graph = graph_of(wired({"layer": node}, "layer.y"))

    assert sequential(graph, {"B": 1, "T": 9}) == 1 + 9
    assert shortest_paths(graph, {"B": 1, "T": 9}) == {"T": 1}


@pytest.mark.parametrize(
    ("use", "params", "length"),
    [
        ("attention@1", {"heads": 2}, 1),
        ("rnn@1", {"d_hidden": 8}, 11),
        ("lstm@1", {"d_hidden": 4, "direction": "both"}, 11),
        ("convolution@1", {"d_out": 8, "kernel": 3}, 10),
        ("convolution@1", {"d_out": 8, "kernel": 5}, 5),
        ("convolution@1", {"d_out": 8, "kernel": 5, "causal": True}, 3),  # 10 / 4
    ],
)
def test_path_lengths_by_hand(
    graph_of: GraphOf, use: str, params: dict[str, Any], length: int
) -> None:
    """Eleven positions are at most ten apart."""
    node = {"use": use, "in": {"x": "x"}, "params": params}
    graph = graph_of(wired({"layer": node}, "layer.y"))

    assert paths(part_at(graph, "layer"), {"B": 1, "T": 11}) == {"T": length}


def near(distance: int) -> dict[str, Any]:
    """Return the mask of a window."""
    return {"use": "window@1", "params": {"distance": distance}}


@pytest.mark.parametrize(
    ("mask", "length"),
    [
        (near(3), 4),  # 10 / 3
        (near(5), 2),
        (near(50), 1),
        ({"use": "chunked@1", "params": {"size": 11}}, 1),
        ({"use": "block_sparse@1", "params": {"block": 2}}, 5),  # 6 blocks
        ({"use": "all@1", "fill": {"first": near(2), "second": near(5)}}, 5),
        ({"use": "any@1", "fill": {"first": near(2), "second": near(5)}}, 2),
    ],
    ids=str,
)
def test_path_lengths_with_a_mask_by_hand(
    graph_of: GraphOf, mask: dict[str, Any], length: int
) -> None:
    """The same eleven positions; of several masks, the narrowest or the widest counts."""
    node = {"use": "attention@1", "params": {"heads": 2}, "fill": {"mask": mask}, "in": {"x": "x"}}
    graph = graph_of(wired({"layer": node}, "layer.y"))

    assert paths(part_at(graph, "layer"), {"B": 1, "T": 11}) == {"T": length}


def test_chunks_never_connect_all_positions(graph_of: GraphOf) -> None:
    """Two chunks of six positions stay apart in any number of layers."""
    mask = {"use": "chunked@1", "params": {"size": 6}}
    node = {"use": "attention@1", "params": {"heads": 2}, "fill": {"mask": mask}, "in": {"x": "x"}}
    graph = graph_of(wired({"layer": node}, "layer.y"))

    assert paths(part_at(graph, "layer"), {"B": 1, "T": 11}) == {}


def test_a_block_that_never_connects_all_positions_has_no_path(graph_of: GraphOf) -> None:
    """The same for a block that leaves gaps however often it is applied."""
    for use, params in (
        ("linear@1", {"d_out": 8}),
        ("convolution@1", {"d_out": 8, "kernel": 1}),
        ("convolution@1", {"d_out": 8, "kernel": 3, "dilation": 2}),
    ):
        node = {"use": use, "in": {"x": "x"}, "params": params}
        graph = graph_of(wired({"layer": node}, "layer.y"))

        assert paths(part_at(graph, "layer"), {"B": 1, "T": 11}) == {}
        assert shortest_paths(graph, {"B": 1, "T": 11}) == {}


def test_a_sublayer_has_the_path_of_its_block() -> None:
    """The graph has the path of its best node along each axis."""
    base, gnmt, bytenet = map(shipped, ("transformer-base", "gnmt-small", "bytenet"))

    assert paths(part_at(base, "decoder.*.cross_attention"), SIZES) == {"S": 1}
    assert shortest_paths(base, SIZES) == {"S": 1, "T": 1}
    assert shortest_paths(gnmt, SIZES) == {"S": 1, "T": 7}
    # Kernels of 3: centered on the source, and causal on the target.
    assert shortest_paths(bytenet, SIZES) == {"S": 10, "T": 3}


def test_an_axis_without_a_size_is_named() -> None:
    """As for FLOPs."""
    with pytest.raises(InputError, match="axis 'S' of transformer-base has no size"):
        sequential(shipped("transformer-base"), {"B": 1, "T": 1})
