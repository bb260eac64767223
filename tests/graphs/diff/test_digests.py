"""Tests of node digests, which show changed nodes when only hashes were stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from weft.graphs.diff.digests import ROOT, changed_paths, digests
from weft.graphs.ir.traverse import walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.graphs.ir.graph import Graph

    Edit = Callable[..., dict[str, Any]]
    GraphOf = Callable[..., Graph]


def test_every_node_has_a_fingerprint(edit: Edit, graph_of: GraphOf) -> None:
    """The paths are those of the graph walk, plus one for the spec itself."""
    graph = graph_of(edit({}))

    assert set(digests(graph)) == {ROOT, *(path for path, _ in walk(graph.root))}


@pytest.mark.parametrize(
    ("edits", "paths"),
    [
        ({"/doc": "Other words."}, []),
        ({"/nodes/head/params/bias": True}, ["head"]),
        ({"/nodes/encoder/repeat": 5}, ["encoder"]),
        ({"/outputs/states": "decoder.x"}, [ROOT]),
        (
            {"/blocks/encoder_layer/nodes/feed_forward/params/order": "pre"},
            ["encoder.*.feed_forward"],
        ),
        (
            {
                "/nodes/source_position/in/x": "norm.y",
                "/nodes/norm": {"use": "layer_norm@1", "in": {"x": "source_embedding.y"}},
            },
            ["norm", "source_position"],
        ),
        (
            {"/blocks/encoder_layer/outputs": {"x": "self_attention.y", "y": "feed_forward.y"}},
            ["encoder"],
        ),
    ],
    ids=str,
)
def test_a_change_is_at_its_node(
    edits: dict[str, Any], paths: list[str], edit: Edit, graph_of: GraphOf
) -> None:
    """And at no other node."""
    before, now = digests(graph_of(edit({}))), digests(graph_of(edit(edits)))

    assert changed_paths(before, now) == paths


def test_a_template_in_a_slot_has_its_own(edit: Edit, graph_of: GraphOf) -> None:
    """A change inside it is named there."""
    inner = {"inputs": {"x": "f[B S d_model]"}, "outputs": {"y": "map.y"}}
    node = {"use": "feed_forward@1", "in": {"x": "x"}, "params": {"d_ff": 64}}
    at = "/blocks/encoder_layer/nodes/feed_forward/fill/f"
    slot = {at: {"use": "inner"}}

    def made(d_ff: int) -> dict[str, str]:
        map_ = {**node, "params": {"d_ff": d_ff}}
        edits = {**slot, "/blocks/inner": {**inner, "nodes": {"map": map_}}}
        return digests(graph_of(edit(edits)))

    assert changed_paths(made(64), made(32)) == ["encoder.*.feed_forward/f.map"]


def test_added_and_removed_nodes_are_named() -> None:
    """Current nodes first, then the removed ones."""
    now = {"head": "1", "new": "2"}

    assert changed_paths({"head": "1", "old": "3"}, now) == ["new", "old"]
