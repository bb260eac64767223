"""Tests of parts that are kept from one node, and from one check, to the next."""

from __future__ import annotations

from typing import Any

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse
from weft.graphs.ir.graph import BlockNode
from weft.specs.load import loaded


def _chain(d: Any, *nodes: dict[str, Any]) -> dict[str, Any]:
    """Return a spec with a param `d` and a chain of nodes."""
    ends = ["x", *(f"n{index}.y" for index in range(len(nodes)))]
    return {
        "format": 1,
        "name": "chain",
        "params": {"d": d},
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 64]"},
        "outputs": {"y": ends[-1]},
        "nodes": {f"n{i}": {"in": {"x": ends[i]}, **node} for i, node in enumerate(nodes)},
    }


LINEAR = {"use": "linear@1", "params": {"d_out": "=d"}}


def _parts(value: dict[str, Any]) -> list[Any]:
    """Return the parts of the nodes of a correct spec."""
    graph, findings = analyse(loaded(value).recovered, registry())
    assert graph is not None, findings
    return [node.part for node in graph.root.nodes if isinstance(node, BlockNode)]


def test_nodes_that_are_alike_have_the_same_part_also_in_the_next_check() -> None:
    """The first node reads another width, and a param with another value is another part."""
    wide = _parts(_chain(96, LINEAR, LINEAR, LINEAR))
    assert wide[1] is wide[2]
    assert wide[0] is not wide[1]
    assert _parts(_chain(96, LINEAR, LINEAR))[1] is wide[1]
    narrow = _parts(_chain(64, LINEAR, LINEAR))
    assert [part.params.d_out for part in narrow] == [64, 64]


@pytest.mark.parametrize(
    ("d", "node"),
    [
        ("wide", LINEAR),
        (True, LINEAR),
        (64, {"use": "linear@1", "params": {"d_out": "=d", "width": 3}}),
        (64, {"use": "linear@1", "params": {"d_out": "=d +"}}),
        (64, {"use": "linear@1", "params": {"d_out": "=D"}}),
        (64, {"use": "linear@1"}),
        ("high", {"use": "dropout@1", "params": {"dropout": "=d"}}),
        (64, {"use": "convolution@1", "params": {"kernel": 1, "dilation": 2, "d_out": "=d"}}),
    ],
    ids=str,
)
def test_a_mistake_is_found_in_every_check(d: Any, node: dict[str, Any]) -> None:
    """Two nodes have the same mistake; some mistakes are only reported at the first."""
    value = _chain(d, node, node)
    value["nodes"]["n1"]["in"]["x"] = "x"
    value["outputs"]["z"] = "n0.y"
    _, first = analyse(loaded(value).recovered, registry())
    assert first
    for _ in range(2):
        assert analyse(loaded(value).recovered, registry())[1] == first


def test_a_value_that_only_equals_another_is_no_number() -> None:
    """In Python, true equals 1: the parts of both differ."""
    assert _parts(_chain(1, LINEAR))
    graph, findings = analyse(loaded(_chain(True, LINEAR)).recovered, registry())
    assert graph is None
    assert findings[0].code == "P01"
