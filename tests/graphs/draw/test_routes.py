"""Tests of the figures for papers: corners, arrows into attention, and what stands beside."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.draw.diagram import draw, figure, sketch
from weft.graphs.draw.picture import Picture
from weft.graphs.draw.placement import PicturePlacement
from weft.graphs.draw.positions import positions
from weft.graphs.draw.routes import route
from weft.graphs.ir.canonical import canonical
from weft.graphs.ir.graph import Graph
from weft.specs.load import loaded

from .test_diagram import NEEDS_DOT
from .test_figures import shipped

pytestmark = NEEDS_DOT
FIGURES = (
    "transformer-base",
    "transformer-prenorm",
    "gru-attention",
    "gnmt-small",
    "conv-s2s",
    "moe-transformer",
    "bert",
    "t5",
    "parsing-span",
    "mamba",
    "translation",
    "chart-parsing",
)


def routed(graph: Graph, **settings: Any) -> tuple[Picture, PicturePlacement]:
    """Return the figure of a graph, and where its parts are."""
    picture, look = sketch(graph, **{"style": "paper", **settings})
    [placement] = positions([picture], look)
    route(picture, placement, look)
    return picture, placement


@pytest.fixture(scope="module", params=FIGURES)
def parts(request: pytest.FixtureRequest) -> tuple[Picture, PicturePlacement]:
    """Return the figure of one of several specs."""
    return routed(shipped(request.param))


def test_all_lines_are_level_or_upright(parts: tuple[Picture, PicturePlacement]) -> None:
    """As in published figures: residual paths and all other wires have corners."""
    _, placement = parts

    for ends, curves in placement.wires.items():
        for curve in curves:
            for (x, y), (to_x, to_y) in pairwise(curve.points):
                assert min(abs(x - to_x), abs(y - to_y)) < 0.3, ends


def test_no_wire_leads_through_a_box(parts: tuple[Picture, PicturePlacement]) -> None:
    """A wire touches the boxes at its ends alone, and these at their edges."""
    picture, placement = parts
    rects = [placement.rect(n) for n in placement.at if picture.boxes[n].shape != "join"]

    for ends, curves in placement.wires.items():
        for (x, y), (to_x, to_y) in (step for c in curves for step in pairwise(c.points)):
            for left, low, right, high in rects:
                is_clear = (
                    max(x, to_x) < left + 1
                    or min(x, to_x) > right - 1
                    or max(y, to_y) < low + 1
                    or min(y, to_y) > high - 1
                )
                assert is_clear, ends


def test_boxes_are_in_their_frames_and_apart(parts: tuple[Picture, PicturePlacement]) -> None:
    """Also after frames have been made narrower, and stacks have been moved together."""
    picture, placement = parts

    for frame in picture.root.below():
        left, low, right, high = placement.frames[frame.path]
        for box in map(placement.rect, frame.within()):
            assert left < box[0]
            assert low < box[1]
            assert box[2] < right
            assert box[3] < high


def test_no_wire_could_be_taken_for_a_side_of_a_frame(
    parts: tuple[Picture, PicturePlacement],
) -> None:
    """The balance of experts leads out of their layer at some distance of its edge."""
    _, placement = parts
    sides = [
        (x, low, high)
        for left, low, right, high in placement.frames.values()
        for x in (left, right)
    ]

    for ends, curves in placement.wires.items():
        for (x, y), (to_x, to_y) in (step for c in curves for step in pairwise(c.points)):
            assert not any(
                max(abs(x - side), abs(to_x - side)) < 2
                and min(y, to_y) < high
                and max(y, to_y) > low
                for side, low, high in sides
            ), ends


@pytest.mark.parametrize("title", ["Convolution Module", "A", "Wide Titles Have Many Words"])
def test_titles_of_frames_are_beside_the_wires(title: str) -> None:
    """Each is within its frame, which is widened where it has to be."""
    inner = {
        "inputs": {"x": "f[B T 8]"},
        "outputs": {"y": "b.y"},
        "nodes": {
            "a": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": 8}},
            "b": {"use": "linear@1", "in": {"x": "a.y"}, "params": {"d_out": 8}},
        },
    }
    name = title.lower().replace(" ", "_")
    path = {"order": "pre"}
    spec = {
        "format": 1,
        "name": "titled",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]"},
        "outputs": {"y": "layer.x"},
        "blocks": {
            name: inner,
            "layer": {
                "inputs": {"x": "f[B T 8]"},
                "outputs": {"x": "c.y"},
                "nodes": {
                    "c": {
                        "use": "sublayer@1",
                        "in": {"x": "x"},
                        "params": path,
                        "fill": {"f": {"use": name}},
                    }
                },
            },
        },
        "nodes": {"layer": {"use": "layer", "in": {"x": "x"}}},
    }

    picture, placement = routed(check(loaded(spec).form, registry()))

    frame = next(frame for frame in picture.root.below() if frame.title == title)
    left, _, right, high = placement.frames[frame.path]
    (x, y), width = placement.labels[frame.path], 11 * 0.5 * max(map(len, title.split()))
    assert left < x - width / 2
    assert x + width / 2 < right
    assert y < high
    uprights = [
        (a[0], *sorted((a[1], b[1])))
        for curves in placement.wires.values()
        for curve in curves
        for a, b in pairwise(curve.points)
        if abs(a[0] - b[0]) < 1
    ]
    assert any(low < y < top and left < at < right for at, low, top in uprights)
    assert not any(low < y < top and abs(at - x) < width / 2 for at, low, top in uprights)


def test_attention_has_an_arrow_for_each_of_queries_keys_and_values() -> None:
    """Figure 1: three arrows from one value below, or two from the encoder and one from below."""
    _, placement = routed(shipped("transformer-base"))

    def tips(source: str, target: str) -> int:
        return sum(curve.tip is not None for curve in placement.wires[source, target, False])

    own, cross = "node/encoder.*.self_attention/f", "node/decoder.*.cross_attention/f"
    assert tips("join/encoder.*.self_attention", own) == 3
    assert tips("band/encoder.*.feed_forward/0", cross) == 2
    assert tips("join/decoder.*.cross_attention", cross) == 1
    low = placement.rect(cross)[1]
    memory = placement.wires["band/encoder.*.feed_forward/0", cross, False]
    assert {curve.tip[1] for curve in memory if curve.tip} == {low}


def test_the_number_of_copies_is_at_the_frame() -> None:
    """On the outer side of each stack, nearer than the width of a letter."""
    _, placement = routed(shipped("transformer-base"))

    for stack, side in (("encoder", 0), ("decoder", 2)):
        count = placement.rect(f"copies/{stack}.*")
        gap = count[2 - side] - placement.frames[f"{stack}.*"][side]
        assert 0 < abs(gap) < 13
        assert (gap < 0) is (stack == "encoder")


def test_a_carried_value_leads_back_to_where_it_enters() -> None:
    """The upper LSTMs of GNMT carry `x`, beside what they all read."""
    picture, placement = routed(shipped("gnmt-small"))

    [(result, entry)] = picture.loops
    [curve] = placement.wires[result, entry, False]
    assert curve.tip is not None
    assert placement.at[result][1] > placement.at[entry][1] == pytest.approx(curve.tip[1])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("transformer-rotary", "position: rotary"),
        ("transformer-alibi", "position: ALiBi"),
        ("transformer-t5-bias", "position: relative bias"),
        ("transformer-local", "mask: window"),
    ],
)
def test_what_fills_slots_is_named(name: str, text: str) -> None:
    """Positions and the like are what sets these models apart from others."""
    picture, _ = sketch(shipped(name), style="paper")

    attention = [box for box in picture.boxes.values() if box.words.family == "attention"]
    assert any(text in box.words.detail for box in attention)


def test_boxes_without_an_output_and_dropout_are_left_out() -> None:
    """Once masks are left out, nothing reads the box that computes them."""
    for name in ("translation", "r-drop-translation", "bert"):
        picture, _ = sketch(shipped(name), style="paper")

        read = {source for source, _ in (*picture.wires, *picture.residuals)}
        beside = {name for name, _, _ in picture.beside}
        assert {*picture.boxes} - read <= {*picture.outputs} | beside
        assert {"Dropout", "Not Padding"}.isdisjoint(
            box.words.title for box in picture.boxes.values()
        )


UNIT = {
    "format": 1,
    "name": "unit",
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"x": "f[B T 8]"},
    "outputs": {"y": "a.y"},
    "blocks": {
        "gate": {
            "inputs": {"x": "f[B T 8]"},
            "outputs": {"y": "m.y"},
            "nodes": {
                "u": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": 8}},
                "v": {"use": "elementwise@1", "in": {"x": "u.y"}, "params": {"y": "silu(x)"}},
                "m": {
                    "use": "elementwise@1",
                    "in": {"x": "v.y", "z": "x"},
                    "params": {"y": "x * z"},
                },
            },
        }
    },
    "nodes": {"a": {"use": "sublayer@1", "in": {"x": "x"}, "fill": {"f": {"use": "gate"}}}},
}


def test_a_template_in_a_slot_is_drawn_and_formulas_are_written_as_in_figures() -> None:
    """A gated unit is the idea of its model; a product of wires is a circle."""
    picture, placement = routed(check(loaded(UNIT).form, registry()))

    [frame] = picture.root.below()
    assert frame.title == "Gate"
    shapes = [(picture.boxes[n].shape, picture.boxes[n].words.title) for n in frame.boxes]
    assert [pair for pair in shapes if pair[0] != "join"] == [
        ("box", "Linear"),
        ("box", "SiLU"),
        ("times", "×"),
    ]
    assert frame.path in placement.frames


@pytest.mark.parametrize("name", ["gnmt-small", "r-drop-translation"])
def test_a_figure_does_not_depend_on_the_order_of_keys(name: str) -> None:
    """Nor on whether templates and variants are written out."""
    graph = shipped(name)
    value = json.loads(json.dumps(canonical(graph)))
    turned = json.loads(json.dumps(value), object_pairs_hook=lambda pairs: dict(reversed(pairs)))

    figures = {
        figure(*sketch(check(loaded(form).form, registry()), style="paper")).source
        for form in (value, turned)
    }
    assert figures == {figure(*sketch(graph, style="paper")).source}


def test_a_figure_can_be_drawn_in_every_format(tmp_path: Any) -> None:
    """Its .dot file has the positions, so that `neato -n2` draws the same."""
    for suffix, begin in (("svg", b"<?xml"), ("pdf", b"%PDF"), ("dot", b"digraph")):
        out = draw(shipped("mamba"), tmp_path / f"x.{suffix}", style="paper")
        assert out.read_bytes().startswith(begin)
    assert 'pos="e,' in (tmp_path / "x.dot").read_text(encoding="utf-8")
