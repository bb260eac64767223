"""Tests of the cost table against hand calculations."""

from __future__ import annotations

from typing import Any

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.cost.flops import flops_by_node
from weft.graphs.cost.table import CostTable, cost_table, value_bytes
from weft.graphs.ir.value_type import parse_type
from weft.specs.load import load

SIZES = {"B": 3, "S": 11, "T": 7}
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
