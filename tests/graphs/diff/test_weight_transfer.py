"""Tests of weight transfer: weights with equal path and shape carry over; a tie is one tensor."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.diff.weight_transfer import weight_transfer
from weft.specs.load import load, loaded

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.graphs.ir.graph import Graph

    Edit = Callable[..., dict[str, Any]]
    GraphOf = Callable[..., Graph]

EMBEDDINGS = ("source_embedding.weight", "target_embedding.weight", "head.weight")


def test_a_graph_carries_all_of_itself(edit: Edit, graph_of: GraphOf) -> None:
    """Every weight once, from where it is stored; nothing is new or lost."""
    graph = graph_of(edit({}))

    same = weight_transfer(graph, graph)

    assert same.carried == graph.weights()
    assert same.sources == {path: path for path in graph.weights()}
    assert [same.new, same.lost, same.reshaped] == [{}, {}, {}]
    assert same.before == same.after == graph.parameters() == 63_082_496
    assert same.render() == "carried   63,082,496 of 63,082,496 parameters (100.0 %)\n"


def test_more_layers_are_new_and_fewer_are_lost(edit: Edit, graph_of: GraphOf) -> None:
    """Copies 0 and 1 carry over; 2 and 3 are new, or lost."""
    short, long = graph_of(edit({}), layers=2), graph_of(edit({}), layers=4)

    longer, shorter = weight_transfer(short, long), weight_transfer(long, short)

    assert longer.carried == shorter.carried == short.weights()
    assert (
        longer.new
        == shorter.lost
        == {path: shape for path, shape in long.weights().items() if path not in short.weights()}
    )
    assert {path.split(".")[1] for path in longer.new} == {"2", "3"}
    assert "  encoder.2-3.self_attention.f.query.weight" in longer.render()


def test_a_weight_of_another_shape_does_not_carry_over(edit: Edit, graph_of: GraphOf) -> None:
    """A wider inner layer: two matrices and a bias of each layer are reshaped."""
    old, new = graph_of(edit({}), layers=1), graph_of(edit({}), layers=1, d_ff=1024)

    found = weight_transfer(old, new)

    inner = "encoder.0.feed_forward.f.inner.weight"
    assert found.reshaped[inner] == ((2048, 512), (1024, 512))
    assert len(found.reshaped) == 2 * 3
    assert [found.new, found.lost] == [{}, {}]
    assert found.sizes()["reshaped"] == 2 * (2 * 512 * 1024 + 1024)
    assert f"  {inner.replace('0', '*')}" in found.render()
    assert "1 x [2048, 512] -> [1024, 512]" in found.render()


def test_untied_weights_begin_as_copies_of_the_shared_one(edit: Edit, graph_of: GraphOf) -> None:
    """Each of the three tables is a copy of the shared one, and the report says so."""
    tied, untied = graph_of(edit({})), graph_of(edit({}, ["/tie"]))

    found = weight_transfer(tied, untied)

    assert [found.sources[path] for path in EMBEDDINGS] == [EMBEDDINGS[0]] * 3
    assert [found.new, found.lost, found.reshaped] == [{}, {}, {}]
    assert found.after - found.before == 2 * 37000 * 512
    assert found.sizes()["carried"] == untied.parameters()
    for name in EMBEDDINGS[1:]:
        assert f"  {name:23}  copied from {EMBEDDINGS[0]}\n" in found.render()


def test_newly_tied_weights_begin_as_the_first(edit: Edit, graph_of: GraphOf) -> None:
    """The first of three tables carries over, the others are lost."""
    untied, tied = graph_of(edit({}, ["/tie"])), graph_of(edit({}))

    found = weight_transfer(untied, tied)

    assert found.sources[EMBEDDINGS[0]] == EMBEDDINGS[0]
    assert sorted(found.lost) == sorted(EMBEDDINGS[1:])


def test_a_tied_weight_carries_over_by_any_of_its_names(edit: Edit, graph_of: GraphOf) -> None:
    """If the stored path no longer exists, another tied path is used."""
    source = ["head.weight", "target_embedding.weight"]
    old = graph_of(edit({"/tie": [["source_embedding.weight", *source]]}))
    new = graph_of(
        edit(
            {
                "/tie": [source],
                "/nodes/words": edit({})["nodes"]["source_embedding"],
                "/nodes/source_position/in/x": "words.y",
            },
            ["/nodes/source_embedding"],
        )
    )

    found = weight_transfer(old, new)

    assert found.sources["head.weight"] == "source_embedding.weight"
    assert found.new == {"words.weight": (37000, 512)}
    assert not found.lost
    assert "  head.weight  copied from source_embedding.weight" in found.render()


def test_the_first_tied_weight_of_a_fitting_shape_carries_over(
    edit: Edit, graph_of: GraphOf
) -> None:
    """The first of the newly tied weights with a fitting shape is used."""
    old = graph_of(edit({"/nodes/source_embedding/params/d_model": 512}, ["/tie"]))
    new = graph_of(edit({"/tie/0": ["head.weight", "source_embedding.weight"]}, []))

    found = weight_transfer(old, new)

    assert found.sources["head.weight"] == "head.weight"
    assert list(found.lost) == ["source_embedding.weight"]


def test_every_parameter_is_counted_once(edit: Edit, graph_of: GraphOf) -> None:
    """Carried, new and reshaped parameters add up to the new graph."""
    old = graph_of(edit({}), layers=3)
    changes = {"/blocks/encoder_layer/nodes/feed_forward/fill/f/params/d_ff": 64}
    new = graph_of(edit(changes, ["/tie"]), layers=4)

    found = weight_transfer(old, new)

    sizes = found.sizes()
    assert sizes["after"] == sizes["carried"] + sizes["new"] + sizes["reshaped"]
    assert {*found.carried, *found.new, *found.reshaped} == set(new.weights())
    assert sizes["new"] == sum(map(prod, found.new.values()))
    assert json.loads(json.dumps(found.as_json()))["parameters"] == sizes


def test_a_new_tie_begins_as_the_one_that_fits() -> None:
    """Of two weights that become one tensor, the one with its shape is used."""

    def graph_of(width: int, **keys: Any) -> Graph:
        nodes = {
            "one": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": width}},
            "two": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": 8}},
        }
        value = {"format": 1, "name": "pair", "axes": {"B": "batch"}, "inputs": {"x": "f[B 4]"}}
        outputs = {"one": "one.y", "two": "two.y"}
        return check(loaded({**value, "outputs": outputs, "nodes": nodes, **keys}).form, registry())

    found = weight_transfer(graph_of(6), graph_of(8, tie=[["one.weight", "two.weight"]]))

    assert found.sources["one.weight"] == "two.weight"
    assert found.carried["one.weight"] == (8, 4)
    assert found.lost == {"one.weight": (6, 4)}
    assert found.reshaped == {"one.bias": ((6,), (8,))}


def test_a_weight_of_one_copy_is_listed_with_its_number(tmp_path: Path) -> None:
    """Even if no other copy has a weight of that name."""
    child = {
        "format": 1,
        "name": "one",
        "extends": "transformer-tiny",
        "patch": [
            {
                "select": "decoder.1.feed_forward/f",
                "set": {"use": "gated_feed_forward@1"},
            }
        ],
    }
    path = tmp_path / "one.json"
    path.write_text(json.dumps(child), encoding="utf-8")
    old = check(load("transformer-tiny").form, registry())
    new = check(load(path).form, registry())

    text = weight_transfer(old, new).render()

    assert "decoder.1.feed_forward.f.gate.weight" in text
    assert "decoder.*.feed_forward.f.gate" not in text
