"""Any graph is made from any other by their diff, and names alone are no difference."""

from __future__ import annotations

import copy
import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse
from weft.graphs.diff.diff import diff
from weft.graphs.diff.text import rows
from weft.graphs.draw.diff import diff_picture
from weft.graphs.ir.canonical import canonical, fingerprint
from weft.specs.load import loaded

from .apply import apply
from .edited import SHIPPED, Json, graph_of, renamed

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.graphs.ir.graph import Graph


NAMES = ("a", "b", "c", "d", "e", "f")
PARTS: tuple[Json, ...] = (
    {"use": "layer_norm@1"},
    {"use": "linear@1", "params": {"d_out": 8}},
    {"use": "linear@1", "params": {"d_out": 8, "bias": False}},
    {"use": "dropout@1", "params": {"dropout": 0.1}},
    {"use": "attention@1", "params": {"heads": 2}},
    {
        "use": "sublayer@1",
        "params": {"order": "pre"},
        "fill": {"f": {"use": "attention@1", "params": {"heads": 2}}},
    },
    {
        "use": "sublayer@1",
        "params": {"order": "post"},
        "fill": {"f": {"use": "feed_forward@1", "params": {"d_ff": 16}}},
    },
)


def chain(dice: random.Random, blocks: Json) -> tuple[Json, str]:
    """Return a chain of nodes over values f[B T 8], and the value of the last.

    Args:
        dice: source of all random choices.
        blocks: templates that the nodes may use; `inner` may only fill slots.
    """
    nodes: Json = {}
    value, templates = "x", [name for name in blocks if name != "inner"]
    for name in dice.sample(NAMES, dice.randint(1, 4)):
        kind = dice.random()
        given = "y"
        if templates and kind < 0.4:
            block, given = dice.choice(templates), "x"
            node: Json = {"use": block}
            if kind < 0.25:
                node = {"repeat": dice.randint(2, 4), "block": block, "carry": ["x"]}
                if dice.random() < 0.3:
                    node["share"] = True
                elif dice.random() < 0.5:
                    node["instead"] = {str(dice.randrange(node["repeat"])): dice.choice(templates)}
        else:
            node = copy.deepcopy(dice.choice(PARTS))
            if "fill" in node and "inner" in blocks and dice.random() < 0.5:
                node["fill"] = {"f": {"use": "inner"}}
        nodes[name] = {**node, "in": {"x": value}}
        value = f"{name}.{given}"
    return nodes, value


def used_by(nodes: Json) -> set[str]:
    """Return the blocks and templates that nodes use."""
    used = set()
    for node in nodes.values():
        used |= {node.get("use", node.get("block")), *node.get("instead", {}).values()}
        used |= {inner["use"] for inner in node.get("fill", {}).values()}
    return used


def generated(seed: int) -> Json:
    """Return a random spec; most names come from a small pool, so that two specs share some."""
    dice = random.Random(seed)
    blocks: Json = {}
    if dice.random() < 0.5:
        nodes, value = chain(dice, {})
        blocks["inner"] = {"inputs": {"x": "f[B T 8]"}, "outputs": {"y": value}, "nodes": nodes}
    for name in dice.sample(("part", "layer", "stack"), dice.randint(0, 3)):
        nodes, value = chain(dice, blocks)
        blocks[name] = {"inputs": {"x": "f[B T 8]"}, "outputs": {"x": value}, "nodes": nodes}
    nodes, value = chain(dice, blocks)
    outputs = {dice.choice(("y", "z")): value}
    if dice.random() < 0.3:
        name = dice.choice(list(nodes))
        outputs["more"] = f"{name}.{'y' if nodes[name].get('use') in PART_KEYS else 'x'}"
    used = used_by(nodes)
    for name in reversed(list(blocks)):
        used |= used_by(blocks[name]["nodes"]) if name in used else set()
    spec: Json = {
        "format": 1,
        "name": dice.choice(("one", "two")),
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]"},
        "outputs": outputs,
        "blocks": {name: body for name, body in blocks.items() if name in used},
        "nodes": nodes,
    }
    norms = [f"{name}.weight" for name, node in nodes.items() if node.get("use") == "layer_norm@1"]
    if len(norms) > 1 and dice.random() < 0.5:
        spec["tie"] = [norms]
    return {key: value for key, value in spec.items() if value not in ({}, [])}


PART_KEYS = {part["use"] for part in PARTS}


def assert_whole(old: Graph, new: Graph) -> None:
    """Assert that the diff, converted to JSON and back, makes the new form with keys in order."""
    found = diff(old, new)

    # A diff is about the form in which held models are templates.
    before, after = canonical(old, models="templates"), canonical(new, models="templates")

    made = apply(json.loads(json.dumps(found.as_json())), before)

    assert json.dumps(made) == json.dumps(after)
    assert made == apply(found, before)
    assert found.equal == (fingerprint(old) == fingerprint(new))
    assert bool(found.changes) == (canonical(old) != canonical(new))
    assert set(found.render().splitlines()) >= {
        str(row) for row in rows(found.changes) if not row.path
    }
    drawn = diff_picture(old, new, found).source
    for graph in (old, new):
        assert all(f"output/{name}" in drawn for name in graph.outputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_spec_is_made_from_another(name: str) -> None:
    """Applying the diff to the old spec gives the new one, in both directions."""
    for other in ("transformer-base", "transformer-tiny"):
        assert_whole(graph_of(name), graph_of(other))
        assert_whole(graph_of(other), graph_of(name))


@pytest.mark.integration
@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_any_graph_is_made_from_any_other(one: int, other: int) -> None:
    """apply(diff(A, B), A) is B, also through JSON text."""
    assert_whole(graph_of(generated(one)), graph_of(generated(other)))


@pytest.mark.integration
@given(st.integers(0, 2**32))
def test_the_full_form_of_a_full_form_is_itself(seed: int) -> None:
    """Expanding again changes nothing, and a graph equals its full form."""
    graph = graph_of(generated(seed))

    full = canonical(graph)
    again = graph_of(full)

    assert canonical(again) == full
    assert diff(graph, again).changes == ()


@pytest.mark.integration
@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_a_graph_with_other_names_differs_in_nothing_else(seed: int, order: int) -> None:
    """Renaming every node gives only renames."""
    spec = canonical(graph_of(generated(seed)))
    spec.pop("tie", None)
    names = [f"node_{index}" for index in range(len(NAMES))]
    random.Random(order).shuffle(names)
    now = dict(zip(NAMES, names, strict=True))
    other = copy.deepcopy(spec)
    for scope in (other, *other.get("blocks", {}).values()):
        scope["nodes"] = {now[name]: node for name, node in scope["nodes"].items()}
        for wires in (scope["outputs"], *(node["in"] for node in scope["nodes"].values())):
            for port, value in wires.items():
                node, dot, given = value.partition(".")
                wires[port] = f"{now[node]}.{given}" if dot else value

    found = diff(graph_of(spec), graph_of(other))

    assert {change.kind for change in found.changes} <= {"renamed", "template"}
    assert [found.weight_transfer.new, found.weight_transfer.lost] == [{}, {}]


def repeat(spec: Json, dice: random.Random) -> Json:
    """Return a repeated node."""
    return spec["nodes"][dice.choice([n for n, v in spec["nodes"].items() if "repeat" in v])]


def sublayer(spec: Json, dice: random.Random) -> Json:
    """Return a node of a template that has slots."""
    body = spec["blocks"][dice.choice(sorted(spec["blocks"]))]
    return body["nodes"][dice.choice([n for n, v in body["nodes"].items() if "fill" in v])]


def split(spec: Json, dice: random.Random) -> None:
    """Give one copy of a repeat its own template."""
    node, name = repeat(spec, dice), f"split_{dice.randrange(99)}"
    spec["blocks"][name] = copy.deepcopy(spec["blocks"][node["block"]])
    node["instead"] = {str(dice.randrange(4)): name}


def insert(spec: Json, dice: random.Random) -> None:
    """Put a norm on one wire of a template or of the spec."""
    scope = dice.choice([spec, *spec["blocks"].values()])
    reader = scope["nodes"][dice.choice([n for n, v in scope["nodes"].items() if "x" in v["in"]])]
    name = f"norm_{dice.randrange(99)}"
    scope["nodes"][name] = {"use": "layer_norm@1", "in": {"x": reader["in"]["x"]}}
    reader["in"]["x"] = f"{name}.y"


EDITS: tuple[Callable[[Json, random.Random], Any], ...] = (
    lambda s, d: renamed(s, (d.choice(sorted(s["nodes"])), f"other_{d.randrange(99)}")),
    lambda s, d: renamed(s, (d.choice(sorted(s["blocks"])), f"layer_{d.randrange(99)}")),
    lambda s, d: renamed(s, (d.choice(sorted(s["inputs"])), f"input_{d.randrange(99)}")),
    lambda s, d: repeat(s, d).update(repeat=d.randint(2, 8)),
    lambda s, d: repeat(s, d).update(share=True),
    lambda s, d: repeat(s, d).update(instead={"0": d.choice(sorted(s["blocks"]))}),
    lambda s, d: sublayer(s, d)["params"].update(order="pre"),
    lambda s, d: sublayer(s, d)["params"].update(dropout=d.choice([0, 0.0, 0.1, 1e-3])),
    lambda s, d: sublayer(s, d)["fill"].update(f={"use": "feed_forward@1", "params": {"d_ff": 8}}),
    lambda s, _: s.pop("tie", None),
    lambda s, _: s.update(tie=[[*dict.fromkeys(s["tie"][0][::-1])]]),
    lambda s, _: s.pop("step", None),
    lambda s, d: s["outputs"].update({f"out_{d.randrange(9)}": d.choice(sorted(s["inputs"]))}),
    lambda s, d: s.update(doc="Words.", name=f"name-{d.randrange(9)}"),
    lambda s, _: s["axes"].update(B="batch", U="time"),
    split,
    insert,
)
"""Typical edits of a full form; edits that make an invalid spec are skipped."""


@pytest.mark.integration
@settings(max_examples=25)
@given(st.sampled_from(SHIPPED), st.lists(st.integers(0, 2**32), min_size=1, max_size=4))
def test_an_edited_spec_is_made_from_the_shipped_one(name: str, seeds: list[int]) -> None:
    """After a few typical edits, in both directions."""
    old = graph_of(name)
    spec = canonical(old)
    for seed in seeds:
        dice = random.Random(seed)
        before = copy.deepcopy(spec)
        try:
            dice.choice(EDITS)(spec, dice)
        except (KeyError, IndexError):
            spec = before  # An earlier edit removed a part that this edit needs.
        if analyse(loaded(spec).form, registry())[0] is None:
            spec = before
    new = graph_of(spec)

    assert_whole(old, new)
    assert_whole(new, old)
