"""FLOPs, critical paths and the table of costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.cost.flops import default_sizes, flops, flops_by_node
from weft.graphs.cost.table import (
    CostTable,
    cost_table,
    paths,
    sequential,
    shortest_paths,
    value_bytes,
)
from weft.graphs.ir.graph import BlockNode
from weft.graphs.ir.traverse import placed, walk
from weft.graphs.ir.value_type import parse_type
from weft.specs.findings import InputError
from weft.specs.load import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.graphs.ir.graph import Graph, Part

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


def test_a_path_along_an_axis_without_a_size_is_refused() -> None:
    """As for FLOPs."""
    with pytest.raises(InputError, match="axis 'S' of transformer-base has no size"):
        sequential(shipped("transformer-base"), {"B": 1, "T": 1})


D_MODEL, D_FF, VOCAB = 512, 2048, 37_000
ATTENTION = 4 * D_MODEL**2 + 4 * D_MODEL
FEED_FORWARD = 2 * D_MODEL * D_FF + D_FF + D_MODEL
NORM = 2 * D_MODEL


def table(name: str, float_bytes: int = 4, **params: Any) -> CostTable:
    """Return the costs of a shipped spec."""
    return cost_table(check(load(name).form, registry(), params), SIZES, float_bytes)


def test_parameters_of_each_node_by_hand() -> None:
    """Six layers; the shared matrix counts at its first node."""
    found = {node.path: node.parameters for node in table("transformer-base").nodes}

    assert found == {
        "source_embedding": VOCAB * D_MODEL,
        "source_position": 0,
        "encoder.*.self_attention": 6 * (ATTENTION + NORM),
        "encoder.*.feed_forward": 6 * (FEED_FORWARD + NORM),
        "target_embedding": 0,
        "target_position": 0,
        "decoder.*.self_attention": 6 * (ATTENTION + NORM),
        "decoder.*.cross_attention": 6 * (ATTENTION + NORM),
        "decoder.*.feed_forward": 6 * (FEED_FORWARD + NORM),
        "head": 0,
    }


@pytest.mark.parametrize(
    "name", ["transformer-shared", "transformer-untied", "transformer-deep-shallow", "gnmt-small"]
)
def test_nodes_add_up_to_the_total(name: str) -> None:
    """Parameters, also of copies that share them, and FLOPs."""
    found = table(name)
    graph = check(load(name).form, registry())

    assert sum(node.parameters for node in found.nodes) == found.parameters == graph.parameters()
    assert {node.path: node.flops for node in found.nodes} == flops_by_node(graph, SIZES)
    assert found.flops == sum(node.flops for node in found.nodes)


def test_copies_that_share_weights_run_as_often_as_others() -> None:
    """One set of weights, six runs."""
    [node] = [n for n in table("transformer-shared").nodes if n.path == "encoder.feed_forward"]

    assert node.runs == 6
    assert node.parameters == FEED_FORWARD + NORM


@pytest.mark.parametrize("float_bytes", [2, 4])
def test_activations_by_hand(float_bytes: int) -> None:
    """A sublayer and the block in it output one value each; scores have V each."""
    found = {n.path: n.activation_bytes for n in table("transformer-base", float_bytes).nodes}
    one = 3 * 11 * D_MODEL * float_bytes

    assert found["source_embedding"] == one
    assert found["encoder.*.feed_forward"] == 6 * 2 * one
    assert found["head"] == 3 * 7 * VOCAB * float_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("f[B T 8]", 3 * 7 * 8 * 2),
        ("ids:9[B T]", 3 * 7 * 8),
        ("mask[B T+1]", 3 * 8),
        ("logits:9[B T]", 3 * 7 * 9 * 2),
        ("len[B]", 3 * 8),
    ],
)
def test_bytes_of_a_value(text: str, count: int) -> None:
    """Integers have 8 bytes, booleans one, and other kinds follow the precision."""
    assert value_bytes(parse_type(text, {})[0], SIZES, 2) == count


def test_as_json_is_plain_data() -> None:
    """Nodes in execution order."""
    said = table("transformer-base").as_json()

    assert said["sizes"] == SIZES
    assert said["path_length"] == {"S": 1, "T": 1}
    assert said["nodes"][2]["use"] == "sublayer@1 attention@1"
    assert said["nodes"][2]["path_length"] == 1
