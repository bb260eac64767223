"""Tests of outlines: types and parameter counts of a model tree, checked by hand."""

from __future__ import annotations

import json
from math import prod
from typing import Any

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.cost.table import cost_table
from weft.graphs.draw.outline import OutlineLine, as_json, outline, render, weights_of
from weft.graphs.ir.graph import Graph
from weft.graphs.ir.traverse import find_weight
from weft.runtime.spec.check import graph_of
from weft.specs.load import load, loaded
from weft.specs.reader import SHIPPED

ATTENTION = 4 * 512 * 512 + 4 * 512
"""Parameters of the paper's attention: four projections with biases."""
FEED_FORWARD = 512 * 2048 + 2048 + 2048 * 512 + 512
NORM = 2 * 512
ENCODER_LAYER = ATTENTION + FEED_FORWARD + 2 * NORM
DECODER_LAYER = 2 * ATTENTION + FEED_FORWARD + 3 * NORM
TABLE = 37000 * 512

TINY: dict[str, Any] = {
    "format": 1,
    "name": "tiny",
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"ids": "ids:5[B T]"},
    "outputs": {"y": "out.y"},
    "blocks": {
        "inner": {
            "inputs": {"x": "f[B T 4]"},
            "outputs": {"x": "map.y"},
            "nodes": {"map": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": 4}}},
        },
        "outer": {
            "inputs": {"x": "f[B T 4]"},
            "outputs": {"x": "pair.x"},
            "nodes": {"pair": {"repeat": 2, "block": "inner", "carry": ["x"], "in": {"x": "x"}}},
        },
    },
    "nodes": {
        "table": {"use": "embedding@1", "in": {"ids": "ids"}, "params": {"d_model": 4}},
        "stack": {"repeat": 3, "block": "outer", "carry": ["x"], "in": {"x": "table.y"}},
        "last": {"use": "inner", "in": {"x": "stack.x"}},
        "out": {"use": "linear@1", "in": {"x": "last.x"}, "params": {"d_out": 5}},
    },
}


def base() -> Graph:
    """Return the paper's base model."""
    spec = load("transformer-base")
    return check(spec.form, registry(), source=spec.source)


def tiny(**changes: Any) -> Graph:
    """Return a model of nested templates with changed keys."""
    return check(loaded({**TINY, **changes}).form, registry())


def by_path(graph: Graph) -> dict[str, OutlineLine]:
    """Return the lines of an outline by path."""
    return {line.path: line for line in outline(graph)}


def test_parameters_of_the_paper_agree_with_a_hand_calculation() -> None:
    """For each block, each layer, each stack, and the model."""
    lines = by_path(base())

    assert ENCODER_LAYER == 3_152_384
    assert lines["encoder.*.self_attention/f"].per_copy == ATTENTION
    assert lines["encoder.*.self_attention"].per_copy == ATTENTION + NORM
    assert lines["encoder.*.feed_forward/f"].per_copy == FEED_FORWARD
    assert lines["encoder"].per_copy == ENCODER_LAYER
    assert lines["encoder"].parameters == 6 * ENCODER_LAYER
    assert lines["decoder"].per_copy == DECODER_LAYER
    assert lines["decoder.*.cross_attention/f"].parameters == 6 * ATTENTION
    assert lines["source_position"].parameters == 0
    assert base().parameters() == TABLE + 6 * (ENCODER_LAYER + DECODER_LAYER) == 63_082_496


def test_tied_parameters_are_counted_once() -> None:
    """The root lines, minus shared parameters, add up to the model."""
    graph = base()
    top = [line for line in outline(graph) if line.depth == 0]

    assert sum(line.parameters - line.tied for line in top) == graph.parameters()
    assert by_path(graph)["source_embedding"].tied == 0
    assert by_path(graph)["target_embedding"].tied == TABLE
    assert by_path(graph)["head"].tied == TABLE


def test_repeats_in_repeats_multiply() -> None:
    """A block in two copies of three copies occurs six times."""
    lines = by_path(tiny())
    each = 4 * 4 + 4

    assert (lines["stack"].per_copy, lines["stack"].parameters) == (2 * each, 6 * each)
    assert (lines["stack.*.pair"].per_copy, lines["stack.*.pair"].parameters) == (each, 6 * each)
    assert (lines["stack.*.pair.*.map"].per_copy, lines["stack.*.pair.*.map"].parameters) == (
        each,
        6 * each,
    )
    assert lines["last.map"].parameters == each
    assert [lines[path].repeat for path in ("stack", "stack.*.pair", "last")] == [3, 2, None]


def test_a_tie_inside_a_copy_is_subtracted_from_every_line_above() -> None:
    """The stack, the pair in it, and the map in the pair."""
    lines = by_path(tiny(tie=[["stack.0.pair.0.map.weight", "stack.2.pair.1.map.weight"]]))
    above = ("stack", "stack.*.pair", "stack.*.pair.*.map")

    assert {path: lines[path].parameters for path in above} == dict.fromkeys(
        above, 6 * (4 * 4 + 4) - 4 * 4
    )
    assert not any(line.tied for line in lines.values())


def test_a_tie_inside_a_template_in_a_slot_is_subtracted_at_its_node() -> None:
    """And from the slot, and from the node with the slot."""
    use = {"use": "sublayer@1", "fill": {"f": {"use": "wide"}}}
    nodes = {
        "table": TINY["nodes"]["table"],
        "one": {**use, "in": {"x": "table.y"}},
        "two": {**use, "in": {"x": "one.y"}},
    }
    stack = {"repeat": 2, "block": "inner", "carry": ["x"], "in": {"x": "x"}}
    wide = {"inputs": {"x": "f[B T 4]"}, "outputs": {"y": "stack.x"}, "nodes": {"stack": stack}}
    blocks = {"inner": TINY["blocks"]["inner"], "wide": wide}
    tie = [["one.f.stack.0.map.weight", "two.f.stack.1.map.weight"]]
    graph = tiny(outputs={"y": "two.y"}, blocks=blocks, nodes=nodes, tie=tie)

    tied = {path: line.tied for path, line in by_path(graph).items() if line.tied}
    assert tied == dict.fromkeys(("two", "two/f", "two/f.stack", "two/f.stack.*.map"), 4 * 4)
    costs = cost_table(graph, {"B": 1, "T": 1})
    assert {node.path: node.parameters for node in costs.nodes} == {
        "table": 5 * 4,
        "one": 2 * 4,
        "one/f.stack.*.map": 2 * (4 * 4 + 4),
        "two": 2 * 4,
        "two/f.stack.*.map": 4 * 4 + 2 * 4,
    }


@pytest.mark.parametrize(
    ("weight", "path", "line"),
    [
        ("head.weight", "head", "head"),
        (
            "decoder.3.self_attention.f.query.weight",
            "decoder.3.self_attention",
            "decoder.*.self_attention/f",
        ),
        ("encoder.0.feed_forward.norm.bias", "encoder.0.feed_forward", "encoder.*.feed_forward"),
    ],
)
def test_a_weight_is_found_at_its_node(weight: str, path: str, line: str) -> None:
    """And at the line of the outline that lists it."""
    found = find_weight(base().root, weight)

    assert (found.path, found.line) == (path, line)
    assert found.folded == line.partition("/")[0]


def test_every_weight_of_the_model_is_listed_once() -> None:
    """Shapes of all lines, times their copies, are the parameters before tying."""
    graph = base()
    listed = 0
    for line in outline(graph):
        copies = line.parameters // line.per_copy if line.per_copy else 1
        listed += copies * sum(map(prod, line.weights.values()))

    assert listed == sum(map(prod, graph.root.weights().values()))


def test_the_text_is_in_columns() -> None:
    """Block, relevant params, types, one copy, all copies, share, work."""
    rows = render(base()).splitlines()

    def row(start: str) -> list[str]:
        return next(line.split() for line in rows if line.strip().startswith(start))

    assert rows[0] == "transformer-base: 63,082,496 parameters"
    types = "f[B S 512], mask[B S] -> f[B S 512]"
    assert row("encoder × 6")[3:] == [
        "encoder_layer",
        *types.split(),
        "3,152,384",
        "18,914,304",
        "30.0%",
        f"{6 * 32 * 2 * (4 * 512**2 + 2 * 32 * 512 + 2 * 512 * 2048) / 1e6:,.1f}",
    ]
    assert row("self_attention")[1:4] == ["sublayer@1", "order=post", "dropout=0.1"]
    assert row("head")[-3:] == ["18,944,000", "tied", f"{32 * 2 * 512 * 37_000 / 1e6:,.1f}"]
    assert row("total")[:3] == ["total", "63,082,496", "100.0%"]
    table = rows[rows.index(next(line for line in rows if line.startswith("node"))) :]
    ends = {
        len(line) for line in table[: table.index("")] if line[-1:].isdigit() or line.endswith("P")
    }
    assert len(ends) == 1
    assert not [line for line in rows if line != line.rstrip()]


def test_operations_beyond_a_float_are_listed() -> None:
    """The sizes of a spec multiply to more than 10^308."""
    axes = " ".join(["1000000000"] * 40)
    node = {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": 8}}
    graph = tiny(inputs={"x": f"f[B T {axes} 8]"}, blocks={}, nodes={"out": node})

    # One multiply-add counts as 2; a batch of 1 with 32 positions.
    millions = 2 * 8 * 8 * 32 * 10 ** (9 * 40 - 6)
    assert f"{millions:,}.0" in render(graph)


def test_the_text_ends_with_ties_axes_and_decoding() -> None:
    """These are not in the table."""
    end = render(base()).splitlines()[-5:]

    assert end == [
        "tied     source_embedding.weight = target_embedding.weight = head.weight",
        "axes     B batch, S time, T time",
        "decodes  step by step along T",
        "unpads   S and T in training, except in sinusoidal_position@1, attention@1",
        "MFLOP    of matrix products in one forward pass of B=1 S=32 T=32",
    ]
    assert "decodes  no" in render(tiny())
    assert "unpads   T in training\n" in render(tiny())
    assert "tied" not in render(tiny())


def test_control_characters_of_a_doc_are_escaped() -> None:
    """Control characters in a doc do not reach the terminal."""
    assert "\x1b" not in render(tiny(doc="red \x1b[31m\nalert"))


def test_the_json_form_nests_and_round_trips() -> None:
    """Nodes are nested, slots are nodes, and all values are JSON data."""
    form = as_json(base())

    assert json.loads(json.dumps(form)) == form
    assert form["parameters"] == 63_082_496
    assert form["step"] == "T"
    assert form["axes"] == {"B": "batch", "S": "time", "T": "time"}
    nodes = {node["name"]: node for node in form["nodes"]}
    assert next(iter(nodes)) == "source_embedding"
    cross = {node["name"]: node for node in nodes["decoder"]["nodes"]}["cross_attention"]
    assert cross["inputs"] == {"x": "f[B T 512]", "memory": "f[B S 512]", "mask": "mask[B S]"}
    assert cross["weights"] == {"norm.weight": [512], "norm.bias": [512]}
    (slot,) = cross["nodes"]
    assert (slot["path"], slot["use"]) == ("decoder.*.cross_attention/f", "attention@1")
    assert slot["params"]["heads"] == 8
    assert slot["weights"]["query.weight"] == [512, 512]


def test_a_model_without_parameters_has_no_shares() -> None:
    """There is no division by zero."""
    graph = tiny(
        inputs={"x": "f[B T 4]"},
        outputs={"y": "drop.y"},
        blocks={},
        nodes={"drop": {"use": "dropout@1", "in": {"x": "x"}, "params": {"dropout": 0.5}}},
    )

    assert render(graph).splitlines()[0] == "tiny: 0 parameters"
    assert "%" not in render(graph)


def test_a_model_whose_tables_are_tied_counts_them_once() -> None:
    """The row of the model of an objective has the parameters of the model."""
    model = {"spec": "transformer-base"}
    graph = graph_of(load(str(SHIPPED / "objectives/translation.json"), {"model": model}))

    line = by_path(graph)["model"]

    table = 1000 * 512  # of the objective's default vocabulary
    stacks = 6 * ENCODER_LAYER + 6 * DECODER_LAYER
    assert (line.parameters, line.tied) == (table + stacks, 0)


def test_each_tensor_is_listed_once_with_all_of_its_paths() -> None:
    """These are the paths of a checkpoint and of import tables."""
    rows = {row["path"]: row for row in weights_of(base())}

    assert sum(prod(row["shape"]) for row in rows.values()) == base().parameters()
    assert rows["source_embedding.weight"] == {
        "path": "source_embedding.weight",
        "shape": [37000, 512],
        "tied": ["target_embedding.weight", "head.weight"],
    }
    assert "encoder.5.self_attention.f.query.weight" in rows
