"""Tests of large pictures: positions without dot, and time."""

from __future__ import annotations

import re
import shutil
import time
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.draw.diagram import diagram, draw
from weft.graphs.draw.grid import grid_positions
from weft.graphs.draw.layout import lay_out_graph
from weft.graphs.draw.picture import Picture
from weft.graphs.ir.graph import Graph
from weft.specs.load import load, loaded

from .test_diagram import NEEDS_DOT


def tall(layers: int) -> Graph:
    """Return an encoder and a decoder with many layers; 5 boxes, and 5 for each layer."""
    return check(load("transformer-tiny").form, registry(), {"layers": layers})


@pytest.fixture(scope="module")
def picture() -> Picture:
    """Return the picture of every copy of eight layers."""
    return lay_out_graph(tall(8), unfolded=True)


def test_boxes_do_not_overlap_and_are_in_their_frames(picture: Picture) -> None:
    """Inputs are lowest, outputs highest, and every copy has a frame around its boxes."""
    grid = grid_positions(picture, 2)

    edges = {
        name: (x - grid.size[name][0] / 2, y - grid.size[name][1] / 2, *_far(grid, name))
        for name, (x, y) in grid.at.items()
    }
    assert set(edges) == set(picture.boxes)
    for (_, one), (_, other) in combinations(edges.items(), 2):
        apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
        assert apart
    for name, (left, low, right, high) in edges.items():
        frame = re.match(r"node/((?:en|de)coder\.\d+)\.", name)
        if frame is not None:
            around = grid.frames[frame[1]]
            assert around[0] < left
            assert around[1] < low
            assert right < around[2]
            assert high < around[3]
    heights = {name: y for name, (_, y) in grid.at.items()}
    assert heights["input/source"] == heights["input/target"] == min(heights.values())
    assert heights["output/logits"] == max(heights.values())


def _far(grid: Any, name: str) -> tuple[float, float]:
    """Return the right and the upper edge of a box."""
    (x, y), (width, height) = grid.at[name], grid.size[name]
    return x + width / 2, y + height / 2


def test_every_wire_leads_up_or_to_the_other_stack(picture: Picture) -> None:
    """A box is above everything that it reads, within its stack; two stacks have two columns."""
    grid = grid_positions(picture, 2)

    for source, target in picture.wires:
        (x, y), (to_x, to_y) = grid.at[source], grid.at[target]
        assert to_y > y or to_x != x
    assert len({x for name, (x, _) in grid.at.items() if name.startswith("node/")}) == 2


@pytest.mark.parametrize(("name", "residuals"), [("transformer-tiny", True), ("conv-s2s", False)])
def test_wires_have_corners_and_cross_no_box(name: str, residuals: bool) -> None:
    """Lines are level or upright, and forks are below what reads them; corners are round."""
    graph = check(load(name).form, registry(), {"layers": 3} if residuals else {})
    picture = lay_out_graph(graph, unfolded=True, residuals=residuals)
    grid = grid_positions(picture, 2)

    boxes = {name: grid.rect(name) for name in grid.at if picture.boxes[name].shape == "box"}
    assert len(grid.wires) >= len(picture.wires)
    for (source, target, _), [curve] in grid.wires.items():
        points = [*curve.points, *([curve.tip] if curve.tip else [])]
        for (x, y), (to_x, to_y) in pairwise(points):
            assert min(abs(x - to_x), abs(y - to_y)) < 0.01 or abs(x - to_x) + abs(y - to_y) <= 8
            for other, (west, low, east, high) in boxes.items():
                if other not in (source, target) and abs(x - to_x) < 0.01:
                    assert not (west < x < east and min(y, to_y) < high and max(y, to_y) > low)
        if picture.boxes[source].shape == "join":
            assert grid.at[source][1] < grid.at[target][1]


def test_a_large_picture_of_every_copy_is_placed_without_dot(tmp_path: Path) -> None:
    """Every box has a position, every wire a curve; small pictures are left to dot."""
    large, small = (diagram(tall(layers), "expanded") for layers in (60, 2))

    assert (large.engine, small.engine) == ("neato", "dot")
    boxes = re.findall(r'^\s*"?node/\S+ \[.*?\]$', large.source, re.MULTILINE)
    assert len(boxes) == 5 + 5 * 60
    assert all(" pos=" in box for box in boxes)
    assert large.source == diagram(tall(60), "expanded").source
    if shutil.which("neato"):
        text = draw(tall(60), tmp_path / "large.svg", "expanded").read_text(encoding="utf-8")
        assert text.count("add &amp; norm") == 5 * 60
        assert "decoder.59" in text


def written(nodes: int) -> Graph:
    """Return a spec whose nodes are all written out: pairs of sub-layers in a chain."""
    spec: dict[str, Any] = {
        "format": 1,
        "name": "written",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 16]"},
        "outputs": {"y": f"n{nodes - 1}.y"},
        "nodes": {},
    }
    for index in range(nodes):
        use = {"use": "linear@1", "params": {"d_out": 16}}
        spec["nodes"][f"n{index}"] = {**use, "in": {"x": f"n{index - 1}.y" if index else "x"}}
    return check(loaded(spec).form, registry())


@pytest.mark.slow
@pytest.mark.parametrize("style", ["plain", "paper"])
def test_time_grows_with_the_number_of_nodes(style: Any) -> None:
    """Ten times as many nodes take about ten times as long, without dot; the least of several."""
    spent = dict.fromkeys((100, 1000), float("inf"))
    for nodes in spent:
        graph = written(nodes)
        for _ in range(5):
            start = time.process_time()
            diagram(graph, style=style)
            spent[nodes] = min(spent[nodes], time.process_time() - start)

    assert spent[1000] < 20 * spent[100]


@pytest.mark.slow
@NEEDS_DOT
def test_ten_thousand_boxes_are_written_out(tmp_path: Path) -> None:
    """Within the time that a renderer may take."""
    out = draw(tall(1999), tmp_path / "many.svg", "expanded")

    assert out.read_text(encoding="utf-8").count("add &amp; norm") == 5 * 1999
