"""Tests of the expanded graph and its weights, counted by hand for transformer-base."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import networkx as nx
import pytest
from weft.extensions.interop.export.flat import flat_graph
from weft.graphs.ir.canonical import fingerprint
from weft.graphs.ir.traverse import walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.graphs.ir.graph import Graph
    from weft.specs.findings import Finding

    Edit = Callable[..., dict[str, Any]]
    GraphOf = Callable[..., Graph]


@pytest.fixture
def base(edit: Edit, graph_of: GraphOf) -> Graph:
    """Return the graph of transformer-base."""
    return graph_of(edit({}))


def test_the_expanded_graph_has_a_vertex_for_each_block(base: Graph) -> None:
    """3 inputs, 2 embeddings, 2 positions, 6 x 2 + 6 x 3 sub-layers, head, output: 39."""
    flat = flat_graph(base)

    kinds = [kind for _, kind in flat.nodes(data="kind")]
    assert kinds.count("input") == 3
    assert kinds.count("output") == 1
    assert kinds.count("block") == 2 + 2 + 6 * 2 + 6 * 3 + 1
    assert len(kinds) == 39


def test_the_expanded_graph_has_an_edge_for_each_pair_that_is_wired(base: Graph) -> None:
    """Counted in the figure of the paper: 54."""
    flat = flat_graph(base)

    inputs_to_embeddings, embeddings_to_positions = 2, 2
    into_and_through_encoder = 6 * 2
    into_and_through_decoder = 6 * 3
    memory_to_cross = mask_to_self = mask_to_cross = 6
    to_head, to_output = 1, 1
    assert flat.number_of_edges() == (
        inputs_to_embeddings
        + embeddings_to_positions
        + into_and_through_encoder
        + into_and_through_decoder
        + memory_to_cross
        + mask_to_self
        + mask_to_cross
        + to_head
        + to_output
    )
    assert flat.number_of_edges() == 54
    assert nx.is_directed_acyclic_graph(flat)
    assert not list(nx.isolates(flat))


def test_an_edge_names_ports_and_type(base: Graph) -> None:
    """The memory of every decoder layer is the output of the last encoder layer."""
    flat = flat_graph(base)

    for layer in range(6):
        [wire] = flat.edges["encoder.5.feed_forward", f"decoder.{layer}.cross_attention"]["wires"]
        assert (wire["port"], wire["value"], str(wire["type"])) == ("memory", "y", "f[B S 512]")
    assert list(flat.successors("encoder.2.self_attention")) == ["encoder.2.feed_forward"]
    assert set(flat.predecessors("decoder.3.cross_attention")) == {
        "decoder.3.self_attention",
        "encoder.5.feed_forward",
        "source_mask",
    }
    assert list(flat.predecessors("output:logits")) == ["head"]


def test_two_wires_between_one_pair_share_an_edge(edit: Edit, graph_of: GraphOf) -> None:
    """The edge has both wires."""
    spec = edit({"/blocks/decoder_layer/nodes/cross_attention/in/memory": "self_attention.y"})
    cross = spec["blocks"]["decoder_layer"]["nodes"]["cross_attention"]
    del cross["in"]["mask"], spec["blocks"]["decoder_layer"]["inputs"]["mask"], spec["step"]
    del spec["blocks"]["decoder_layer"]["inputs"]["memory"]
    spec["nodes"]["decoder"]["in"] = {"x": "target_position.y"}
    spec["outputs"]["memory"] = "encoder.x"

    edge = flat_graph(graph_of(spec)).edges["decoder.0.self_attention", "decoder.0.cross_attention"]

    assert sorted(wire["port"] for wire in edge["wires"]) == ["memory", "x"]


def test_weights_have_the_names_of_their_places(base: Graph) -> None:
    """As in a checkpoint; a tied weight has its first path."""
    weights = base.weights()

    assert weights["source_embedding.weight"] == (37000, 512)
    assert "target_embedding.weight" not in weights
    assert "head.weight" not in weights
    assert weights["decoder.3.self_attention.f.query.weight"] == (512, 512)
    assert weights["decoder.3.cross_attention.norm.bias"] == (512,)
    assert weights["encoder.5.feed_forward.f.inner.weight"] == (2048, 512)
    assert weights["encoder.5.feed_forward.f.outer.bias"] == (512,)
    assert not any("position" in name for name in weights)


def test_parameters_counted_by_hand(base: Graph) -> None:
    """One table for both languages and the head; biases everywhere but in the head."""
    d, d_ff, vocab = 512, 2048, 37000
    attention, norm = 4 * (d * d + d), 2 * d
    feed_forward = d * d_ff + d_ff + d_ff * d + d

    encoder = attention + norm + feed_forward + norm
    decoder = 2 * (attention + norm) + feed_forward + norm
    assert base.parameters() == 6 * encoder + 6 * decoder + vocab * d
    assert base.parameters() == sum(map(prod, base.weights().values()))


def test_without_ties_each_table_counts(edit: Edit, graph_of: GraphOf, base: Graph) -> None:
    """Two additional tables."""
    untied = graph_of(edit({}, ["/tie"]))

    assert untied.parameters() == base.parameters() + 2 * 37000 * 512
    assert len(untied.weights()) == len(base.weights()) + 2


def test_a_star_ties_all_copies_whatever_their_number(
    edit: Edit, graph_of: GraphOf, base: Graph
) -> None:
    """It equals the list of paths, also in the fingerprint; one copy ties nothing."""
    path = "encoder.{}.self_attention.f.query.weight"
    starred, written = (
        edit({"/tie/1": paths})
        for paths in ([path.format("*")], [path.format(i) for i in range(6)])
    )

    tied = graph_of(starred)

    assert tied.parameters() == base.parameters() - 5 * 512 * 512
    assert tied.ties == graph_of(written).ties
    assert fingerprint(tied) == fingerprint(graph_of(written))
    assert len(graph_of(starred, layers=1).ties) == 1


def test_a_star_among_other_paths_is_checked_as_they_are(
    edit: Edit, findings_of: Callable[..., list[Finding]]
) -> None:
    """A copy tied twice is reported; an unknown weight is reported once, not six times."""
    path = "encoder.{}.self_attention.f.query.{}"
    value = edit(
        {"/tie/1": [path.format("*", "weight"), path.format(3, "weight"), path.format("*", "wait")]}
    )

    assert [(f.code, f.at) for f in findings_of(value)] == [
        ("W09", "/tie/1/1"),
        ("N07", "/tie/1/2"),
    ]


def test_weights_inside_a_repeat_may_be_tied(edit: Edit, graph_of: GraphOf, base: Graph) -> None:
    """By the path of the layer."""
    path = "encoder.{}.self_attention.f.query.weight"
    tied = graph_of(edit({"/tie/1": [path.format(i) for i in range(6)]}))

    assert tied.parameters() == base.parameters() - 5 * 512 * 512
    assert path.format(0) in tied.weights()
    assert path.format(5) not in tied.weights()


def test_walking_names_each_node_once(base: Graph) -> None:
    """Repeats are not expanded; a star stands for the index."""
    paths = [path for path, _ in walk(base.root)]

    assert len(paths) == len(set(paths)) == 7 + 2 + 3
    assert "decoder.*.cross_attention" in paths


def test_a_template_used_once_is_walked_without_a_star(edit: Edit, graph_of: GraphOf) -> None:
    """Its nodes follow the name of the node that uses it."""
    wires = {"x": "source_position.y", "mask": "source_mask"}
    graph = graph_of(edit({"/nodes/encoder": {"use": "encoder_layer", "in": wires}}))

    assert "encoder.self_attention" in [path for path, _ in walk(graph.root)]
    assert "encoder.feed_forward" in flat_graph(graph)
    assert "encoder.self_attention.norm.weight" in graph.weights()
