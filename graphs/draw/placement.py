"""Placement: where everything in a picture is, in points from the lower left corner."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Point = tuple[float, float]
Wire = tuple[str, str, bool]
"""DOT names of the two ends, and whether it carries masks."""
Rect = tuple[float, float, float, float]
"""Left, lower, right and upper edge."""

HEAD = 6.5
"""Length of the head of an arrow."""
_RADIUS, _SHORT = 4.0, 0.5
"""Radius of a corner, and what is too short to be a line."""
_POINTS = 72.0
"""Points in an inch, the unit of the sizes of dot."""


@dataclass(slots=True)
class Curve:
    """The course of a wire: cubic curves that follow each other, and the tip of its arrow."""

    points: list[Point]
    """The start, then three points for each curve."""
    tip: Point | None = None
    """The tip of the arrow, a little after the last point; None without an arrow."""
    label: Point | None = None
    """The center of its text, if it has one."""

    def text(self) -> str:
        """Return it as the attribute `pos` of an edge."""
        words = " ".join(f"{x:.1f},{y:.1f}" for x, y in self.points)
        return f"e,{self.tip[0]:.1f},{self.tip[1]:.1f} {words}" if self.tip else words


def cornered(points: Iterable[Point], *, arrow: bool = True) -> Curve:
    """Return straight lines from point to point, with round corners, as a curve.

    >>> cornered([(0, 0), (0, 20)], arrow=False).points
    [(0, 0), (0, 0), (0, 20), (0, 20)]
    """
    path = [*_turns(points)]
    tip = path[-1] if arrow else None
    if arrow:
        path[-1] = _towards(path[-1], path[-2], HEAD)
    curve = [path[0]]
    for index, corner in enumerate(path[1:-1], start=1):
        before, after = path[index - 1], path[index + 1]
        radius = min(_RADIUS, _length(before, corner) / 2, _length(corner, after) / 2)
        start, end = _towards(corner, before, radius), _towards(corner, after, radius)
        curve += [curve[-1], start, start, corner, corner, end]
    return Curve([*curve, curve[-1], path[-1], path[-1]], tip)


def _turns(points: Iterable[Point]) -> Iterator[Point]:
    """Yield the points at which a line begins, turns or ends."""
    path = [*points]
    path = [path[0], *(b for a, b in pairwise(path) if _length(a, b) > _SHORT)]
    yield path[0]
    for (a, b), (_, c) in pairwise(pairwise(path)):
        if (b[0] - a[0]) * (c[1] - b[1]) != (b[1] - a[1]) * (c[0] - b[0]):
            yield b
    yield path[-1]


def _length(a: Point, b: Point) -> float:
    return abs(a[0] - b[0]) + abs(a[1] - b[1])


def _towards(start: Point, end: Point, distance: float) -> Point:
    """Return the point at a distance from one on a level or an upright line to another."""
    share = min(1.0, distance / (_length(start, end) or 1.0))
    return start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share


@dataclass(slots=True)
class PicturePlacement:
    """Where the parts of a picture are."""

    at: dict[str, Point] = field(default_factory=dict)
    """DOT name of a box to its center."""
    size: dict[str, Point] = field(default_factory=dict)
    """DOT name of a box to its width and height."""
    frames: dict[str, Rect] = field(default_factory=dict)
    """Path of a frame to its edges."""
    labels: dict[str, Point] = field(default_factory=dict)
    """Path of a frame to the center of its label."""
    wires: dict[Wire, list[Curve]] = field(default_factory=dict)
    """A wire to its curve, or to several if it branches."""
    width: float = 0.0
    height: float = 0.0

    def above(self) -> dict[str, str]:
        """Return the next box above each box, by DOT name."""
        columns: dict[float, list[str]] = {}
        for name in sorted(self.at, key=lambda name: self.at[name][1]):
            columns.setdefault(self.at[name][0], []).append(name)
        return {a: b for column in columns.values() for a, b in pairwise(column)}

    def rect(self, name: str) -> Rect:
        """Return the edges of a box."""
        (x, y), (width, height) = self.at[name], self.size[name]
        return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def read_layouts(content: bytes) -> Iterator[PicturePlacement]:
    """Yield where dot places pictures, from what it writes for them as JSON."""
    decoder, remaining = json.JSONDecoder(), content.decode().strip()
    while remaining:
        value, end = decoder.raw_decode(remaining)
        yield _read_layout(value)
        remaining = remaining[end:].lstrip()


def _read_layout(value: Mapping[str, Any]) -> PicturePlacement:
    west, low, east, high = map(float, value["bb"].split(","))
    placement = PicturePlacement(width=east - west, height=high - low)

    def point(text: str) -> Point:
        x, y = map(float, text.split(","))
        return x - west, y - low

    names: dict[int, str] = {}
    for item in value.get("objects", ()):
        name = names[item["_gvid"]] = item["name"]
        if name.startswith("cluster_") and "bb" in item:
            x, bottom, end, top = map(float, item["bb"].split(","))
            edges = (x - west, bottom - low, end - west, top - low)
            placement.frames[name.removeprefix("cluster_")] = edges
            if "lp" in item:
                placement.labels[name.removeprefix("cluster_")] = point(item["lp"])
        elif "pos" in item and item.get("style") != "invis":
            placement.at[name] = point(item["pos"])
            placement.size[name] = float(item["width"]) * _POINTS, float(item["height"]) * _POINTS
    for edge in value.get("edges", ()):
        if edge.get("style") == "invis" or "pos" not in edge:
            continue
        ends = (names[edge["tail"]], names[edge["head"]], edge.get("style") == "dashed")
        words = edge["pos"].split()
        tip = next((point(word[2:]) for word in words if word.startswith("e,")), None)
        points = [point(word) for word in words if word[:2] not in ("e,", "s,")]
        label = point(edge["lp"]) if "lp" in edge else None
        placement.wires[ends] = [Curve(points, tip, label)]
    return placement
