"""Positions of a picture: from dot, which draws the SVG, or from the grid of large pictures.

All lengths are in points, from the upper left corner.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..grid import place
from ..picture import MASKS, Picture
from ..render import graphviz_output
from ..writer import FRAME_LINES, Look, is_large, write

LONGEST_LAYOUT = 60
"""Timeout of dot, in seconds."""
_POINTS = 72.0
"""Points in an inch, the unit of the sizes of dot."""
_MARGIN = 8.0
"""Space around a picture."""

Point = tuple[float, float]
Wire = tuple[str, str, bool]
"""DOT names of the two ends, and whether it carries masks."""
Rect = tuple[float, float, float, float]
"""Left, upper edge, width and height."""


@dataclass(slots=True)
class Placed:
    """Where everything in a picture is."""

    width: float
    height: float
    boxes: dict[str, Rect] = field(default_factory=dict)
    """DOT name of a box to its place."""
    frames: dict[str, Rect] = field(default_factory=dict)
    """Path of a frame to its place."""
    wires: dict[Wire, list[str]] = field(default_factory=dict)
    """A wire to its curve, and the end of its arrow, in the notation of `pos` in graphviz."""


def placed(pictures: Sequence[Picture], look: Look) -> list[Placed]:
    """Return positions for pictures: those that the SVG has.

    Without dot, every picture is placed as large ones are.

    Args:
        pictures: the pictures.
        look: how they are written.

    Raises:
        InputError: dot fails.
    """
    small = [index for index, picture in enumerate(pictures) if not is_large(picture)]
    layouts: dict[int, Placed] = {}
    if small:
        text = "".join(write(pictures[index], look).source for index in small)
        try:
            for index, value in zip(small, _dot(text), strict=True):
                layouts[index] = _from_dot(value)
        except FileNotFoundError:
            layouts = {}
    return [layouts.get(index) or _from_grid(picture) for index, picture in enumerate(pictures)]


@functools.lru_cache(maxsize=16)
def _dot(text: str) -> list[Any]:
    """Return what dot says of one or several pictures, in one process.

    Most edits of a spec change no word in its picture.
    """
    content = graphviz_output(["dot", "-Tjson0"], text, "drawing", seconds=LONGEST_LAYOUT)
    decoder, remaining, values = json.JSONDecoder(), content.decode().strip(), []
    while remaining:
        value, end = decoder.raw_decode(remaining)
        values.append(value)
        remaining = remaining[end:].lstrip()
    return values


def _from_dot(value: Any) -> Placed:
    x_min, low, right, high = map(float, value["bb"].split(","))
    layout = Placed(right - x_min + 2 * _MARGIN, high - low + 2 * _MARGIN)

    def flip(x: float, y: float) -> Point:
        return x - x_min + _MARGIN, high - y + _MARGIN

    names: dict[int, str] = {}
    for item in value.get("objects", ()):
        name = names[item["_gvid"]] = item["name"]
        if name.startswith("cluster_") and "bb" in item:
            x, bottom, end, top = map(float, item["bb"].split(","))
            layout.frames[name.removeprefix("cluster_")] = (*flip(x, top), end - x, top - bottom)
        elif "pos" in item and item.get("style") != "invis":
            x, y = flip(*map(float, item["pos"].split(",")))
            width, height = float(item["width"]) * _POINTS, float(item["height"]) * _POINTS
            layout.boxes[name] = (x - width / 2, y - height / 2, width, height)
    for edge in value.get("edges", ()):
        if edge.get("style") == "invis" or "pos" not in edge:
            continue
        ends = (names[edge["tail"]], names[edge["head"]], edge.get("style") == "dashed")
        layout.wires[ends] = _curve(edge["pos"], flip)
    return layout


def _curve(pos: str, flip: Callable[[float, float], Point]) -> list[str]:
    """Return the points of a curve, and the end of its arrow, from the upper left corner."""
    commands = []
    for word in pos.split():
        mark = word[:2] if word[:2] in ("e,", "s,") else ""
        x, y = flip(*map(float, word.removeprefix(mark).split(",")))
        commands.append(f"{mark}{x:.1f},{y:.1f}")
    return commands


def _from_grid(picture: Picture) -> Placed:
    grid = place(picture, FRAME_LINES)
    tops = [y + grid.size[name][1] / 2 for name, (_, y) in grid.at.items()]
    high = max([grid.height, *tops]) + _MARGIN
    above = grid.above()
    layout = Placed(grid.width + 2 * _MARGIN, high + _MARGIN)

    def flip(x: float, y: float) -> Point:
        return x + _MARGIN, high - y

    for name, center in grid.at.items():
        (x, y), (width, height) = flip(*center), grid.size[name]
        layout.boxes[name] = (x - width / 2, y - height / 2, width, height)
    for path, (x_min, low, right, top) in grid.frames.items():
        layout.frames[path] = (*flip(x_min, top), right - x_min, top - low)
    for (source, target), types in picture.wires.items():
        near, arrow = above.get(source) == target, picture.boxes[target].shape != "join"
        curve = _curve(grid.spline(source, target, near=near, arrow=arrow), flip)
        for faint in {type_.kind in MASKS for type_ in types}:
            layout.wires[source, target, faint] = curve
    return layout
