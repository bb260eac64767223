"""Tests of what pictures show: alternating copies, carried values, templates in slots, text."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.draw.diagram import diagram
from weft.graphs.draw.labels import MOST_LINES, number, wrapped
from weft.graphs.draw.layout import lay_out_graph
from weft.graphs.draw.patterns import covers, periods, segments
from weft.graphs.draw.picture import Frame, Picture
from weft.graphs.ir.graph import Graph, RepeatNode
from weft.specs.load import load, loaded

from .test_diagram import NEEDS_DOT, TOY, text_of


def alternating(layers: int, every: int, **changes: Any) -> Graph:
    """Return a model whose layers are local, except the last of each `every`, which is global."""
    layer = TOY["blocks"]["layer"]
    stack = {**TOY["nodes"]["stack"], "repeat": layers, "block": "local"}
    stack["instead"] = {f"{every - 1}::{every}": "global"}
    blocks = {"start": TOY["blocks"]["start"], "local": layer, "global": layer}
    spec = {**TOY, "blocks": blocks, "nodes": {**TOY["nodes"], "stack": stack}, **changes}
    return check(loaded(spec).form, registry())


def frames(frame: Frame) -> list[Frame]:
    """Return all frames below a frame."""
    return [each for inner in frame.frames for each in (inner, *frames(inner))]


def test_alternating_layers_fold_to_their_pattern() -> None:
    """Eighteen layers are six times local, local, global; each of these is drawn once."""
    picture = lay_out_graph(alternating(18, 3))

    found = [(one.copies, one.pattern or one.title) for one in frames(picture.root)]
    assert found == [
        (None, "start"),
        (6, "local, local, global"),
        (2, "local"),
        (None, "global"),
    ]
    source = diagram(alternating(18, 3)).source
    assert "× 6: local, local, global" in text_of(source)


def test_layers_after_the_last_complete_pattern_are_drawn_after_it() -> None:
    """Twenty layers: six patterns of three, then two local ones, wired in order."""
    picture = lay_out_graph(alternating(20, 3))

    titles = [(one.copies, one.pattern or one.title) for one in frames(picture.root)]
    assert titles[1:] == [(6, "local, local, global"), (2, "local"), (None, "global"), (2, "local")]
    boxes = [name for name in picture.boxes if name.startswith("node/stack")]
    assert len(boxes) == 6
    chain = ["node/opening.place", *boxes, "node/head"]
    assert [ends for ends in picture.wires if ends[1].startswith("node/stack")] == [
        *pairwise(chain[:-1])
    ]


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ("aaaa", [(0, 1, 4)]),
        ("ababab", [(0, 2, 3)]),
        ("llglln", [(0, 1, 2), (2, 1, 1), (3, 1, 2), (5, 1, 1)]),
        ("dmmmm", [(0, 1, 1), (1, 1, 4)]),
        ("lllllglllllgll", [(0, 6, 2), (12, 1, 2)]),
    ],
)
def test_the_pattern_that_covers_most_copies_is_folded(
    keys: str, found: list[tuple[int, int, int]]
) -> None:
    """First copy, length of the pattern, times."""
    assert periods([ord(key) for key in keys]) == found


def test_every_copy_belongs_to_one_unit_of_a_pattern() -> None:
    """The path of a unit, such as `2,5,..,17`, names the first two copies and the last."""
    stack = next(node for node in alternating(20, 3).root.nodes if node.name == "stack")
    assert isinstance(stack, RepeatNode)
    units = [unit for segment in segments(stack) for unit in segment.units]

    for index, body in stack.copies():
        [unit] = [unit for unit in units if covers(unit.path, index)]
        assert unit.body is body
    assert [unit.path for unit in units] == ["0-1,3-4,..,15-16", "2,5,..,17", "18-19"]


def test_shared_weights_are_marked_in_the_unit_of_their_copy() -> None:
    """Copies 2 and 5 are both `global`."""
    ties = [["stack.2.attend.f.query.weight", "stack.5.attend.f.query.weight"]]
    picture = lay_out_graph(alternating(6, 3, tie=ties))

    shared = [name for name, box in picture.boxes.items() if "shared weight" in box.notes]
    assert shared == ["node/stack.2,5.attend"]


def convolutional() -> Picture:
    """Return the picture of the convolutional model."""
    spec = load("conv-s2s")
    return lay_out_graph(check(spec.form, registry(), source=spec.source))


def test_a_constant_that_enters_like_the_carried_value_is_marked() -> None:
    """In every decoder layer of conv-s2s, `x` comes from the layer below, `embedding` does not."""
    picture = convolutional()

    marks = {box.words.title: box.shape for box in picture.boxes.values() if ":" in box.words.title}
    assert marks == {"x: carried": "carried", "embedding: constant": "constant"}
    assert ("node/decoder_in", "entry/decoder.*/x") in picture.wires
    assert ("node/target_position", "entry/decoder.*/embedding") in picture.wires
    assert ("entry/decoder.*/x", "node/decoder.*.add") in picture.wires


def test_a_residual_wire_branches_inside_its_frame() -> None:
    """Otherwise it would leave the frame and enter it again."""
    picture = convolutional()

    branch = "join/encoder.*/x"
    assert {target for source, target in picture.wires if source == branch} == {
        "node/encoder.*.dropout",
        "node/encoder.*.add",
    }
    assert [source for source, target in picture.wires if target == branch] == ["node/encoder_in"]


def test_the_memory_of_a_decoder_is_not_marked() -> None:
    """It comes from another stack; it cannot be taken for the carried value."""
    spec = load("transformer-base")
    picture = lay_out_graph(check(spec.form, registry()))

    assert not [name for name in picture.boxes if name.startswith("entry/")]


LATENT: dict[str, Any] = {
    **TOY,
    "blocks": {
        **TOY["blocks"],
        "twice": {
            "inputs": {"x": "f[B T 16]"},
            "outputs": {"y": "b.y"},
            "nodes": {
                "a": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": 16}},
                "b": {
                    "use": "elementwise@1",
                    "in": {"x": "x", "z": "a.y"},
                    "params": {"y": "x + z"},
                },
            },
        },
        "heads": {
            "inputs": {"x": "f[B 2 T 8]"},
            "outputs": {"y": "n.y"},
            "nodes": {"n": {"use": "rms_norm@1", "in": {"x": "x"}}},
        },
        "layer": {
            "inputs": {"x": "f[B T 16]"},
            "outputs": {"x": "mlp.y"},
            "nodes": {
                "attend": {
                    "use": "attention@1",
                    "in": {"x": "x"},
                    "params": {"heads": 2, "causal": True},
                    "fill": {
                        "after_query": {"use": "heads"},
                        "position": {"use": "rotary@1"},
                        "mask": {"use": "window@1", "params": {"distance": 4}},
                    },
                },
                "mlp": {
                    "use": "sublayer@1",
                    "in": {"x": "attend.y"},
                    "fill": {"f": {"use": "twice"}},
                },
            },
        },
    },
}


def test_an_expanded_picture_shows_the_templates_in_slots() -> None:
    """Their nodes are boxes in a frame; wires enter and leave it."""
    picture = lay_out_graph(check(loaded(LATENT).form, registry()), unfolded=True)

    titles = {one.title for one in frames(picture.root)}
    assert {"twice", "after_query: heads"} <= titles
    for copy in range(3):
        mlp, attend = f"stack.{copy}.mlp", f"stack.{copy}.attend"
        wires = {
            (f"node/{attend}", f"join/{mlp}/f/x"),
            (f"join/{mlp}/f/x", f"node/{mlp}/f.a"),
            (f"join/{mlp}/f/x", f"node/{mlp}/f.b"),
            (f"node/{mlp}/f.a", f"node/{mlp}/f.b"),
            (f"node/{mlp}/f.b", f"band/{mlp}/0"),
            (f"entry/{attend}/after_query/x", f"node/{attend}/after_query.n"),
            (f"node/{attend}/after_query.n", f"node/{attend}"),
        }
        assert wires <= set(picture.wires)


def test_an_expanded_picture_lists_what_fills_slots() -> None:
    """One line for each slot of attention; a folded one has them among the params."""
    graph = check(loaded(LATENT).form, registry())
    expanded, folded = (lay_out_graph(graph, unfolded=flag) for flag in (True, False))

    lines = expanded.boxes["node/stack.1.attend"].lines
    assert lines == ["after query: heads", "position: rotary", "mask: window distance 4"]
    detail = folded.boxes["node/stack.*.attend"].words.detail
    assert detail == "2 heads, heads, rotary, window distance 4"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5**0.5, "0.7071"), (1 / 3, "0.3333"), (1e6, "1000000"), (1e-6, "1e-06"), (0.0, "0")],
)
def test_numbers_have_four_significant_digits(value: float, text: str) -> None:
    """0.7071067811865476 says no more about a picture than 0.7071."""
    assert number(value) == text


def test_long_text_is_wrapped_after_commas_then_at_spaces() -> None:
    """No line is longer than its box, nothing is lost, and hostile text has a last line."""
    text = "8 heads, 4 key-value heads, soft cap 50, window distance 4095"

    assert wrapped(text, 20) == [
        "8 heads,",
        "4 key-value heads,",
        "soft cap 50,",
        "window distance 4095",
    ]
    assert wrapped("x" * 50, 20) == ["x" * 20, "x" * 20, "x" * 10]
    endless = wrapped("word " * 400, 20)
    assert len(endless) == MOST_LINES
    assert endless[-1].endswith("…")
    assert all(len(line) <= 20 for line in endless)


@NEEDS_DOT
@pytest.mark.parametrize(
    "name", ["transformer-base", "conv-s2s", "moe-transformer", "parsing-tags"]
)
def test_no_wire_crosses_the_label_of_a_frame(name: str) -> None:
    """Neither masks, which come from below, nor outputs, which leave in the middle."""
    dot = diagram(check(load(name).form, registry())).source
    done = subprocess.run(["dot", "-Tjson0"], input=dot.encode(), capture_output=True, check=True)
    drawn = json.loads(done.stdout)

    labels = [_area(one) for one in drawn["objects"] if "lwidth" in one]
    assert labels
    for edge in drawn["edges"]:
        for x, y in _curve(edge["pos"]) if edge.get("style") != "invis" else ():
            inside = [box for box in labels if box[0] < x < box[2] and box[1] < y < box[3]]
            assert not inside, (edge["tail"], edge["head"])


def _area(frame: dict[str, str]) -> tuple[float, float, float, float]:
    """Return the edges of the label of a frame: left, lower, right, upper."""
    (x, y) = map(float, frame["lp"].split(","))
    width, height = float(frame["lwidth"]) * 72 - 4, float(frame["lheight"]) * 72 - 4
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _curve(pos: str) -> Iterator[tuple[float, float]]:
    """Yield points of the Bezier curves of a wire."""
    texts = [text.removeprefix("e,") for text in pos.split() if not text.startswith("e,")]
    points = [tuple(map(float, text.split(","))) for text in texts]
    for first in range(0, len(points) - 3, 3):
        for step in range(17):
            t = step / 16
            weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
            some = points[first : first + 4]
            x, y = (sum(w * p[i] for w, p in zip(weights, some, strict=True)) for i in (0, 1))
            yield x, y


def test_a_value_that_several_boxes_read_leaves_its_frame_once() -> None:
    """The three outputs of the tagger branch above the frame of its layers."""
    picture = lay_out_graph(check(load("parsing-tags").form, registry()))

    [point] = [name for name in picture.boxes if name.startswith("exit/")]
    assert len([1 for source, _ in picture.wires if source == point]) == 3
    assert len([1 for _, target in picture.wires if target == point]) == 1
    assert point in picture.root.boxes


def test_a_tie_of_one_copy_is_noted_as_such() -> None:
    """The maps of the other copies have weights of their own."""
    linear = {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": 8, "bias": False}}
    spec = {
        "format": 1,
        "name": "tied",
        "axes": {"B": "batch"},
        "inputs": {"x": "f[B 8]"},
        "outputs": {"y": "stack.x"},
        "blocks": {
            "layer": {
                "inputs": {"x": "f[B 8]"},
                "outputs": {"x": "map.y"},
                "nodes": {"map": linear},
            }
        },
        "nodes": {
            "first": linear,
            "stack": {"block": "layer", "in": {"x": "first.y"}, "repeat": 3, "carry": ["x"]},
        },
    }

    def notes(*weights: str) -> dict[str, list[str]]:
        value = {**spec, "tie": [["first.weight", *weights]]}
        picture = lay_out_graph(check(loaded(value).form, registry()))
        return {name: box.notes for name, box in picture.boxes.items() if box.notes}

    stack = [f"stack.{copy}.map.weight" for copy in range(3)]
    assert notes(stack[1])["node/stack.*.map"] == ["shared weight of copy 1"]
    assert notes(*stack[1:])["node/stack.*.map"] == ["shared weight of copies 1 and 2"]
    assert notes(*stack) == {
        "node/first": ["shared weight"],
        "node/stack.*.map": ["shared weight"],
    }
