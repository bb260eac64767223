"""Routes: wires with corners, in place of the curves of dot, and what stands beside boxes.

Residual paths go around the boxes that they skip, keys and values enter attention from below,
and carried values lead back to where they enter a repeat.  A wire for which no free way is found
stays as dot has drawn it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ...specs.json_tree import cells
from .labels import wrapped
from .picture import Frame, Picture, Side, thin
from .placement import HEAD, Curve, PicturePlacement, Point, Rect, cornered
from .writer import Look, frame_label, frame_lines

_LANE, _STEP, _LEVEL, _LANES = 12.0, 7.0, 5.0, 5
"""Distance of a wire from the boxes that it skips, of two upright wires, of two level ones, and
how many may be beside each other."""
_EDGE = 11.0
"""Distance of a frame from what is in it and beside it."""
_UNDER = 9.0
"""Distance of a branch of a wire below the box that it enters."""
_TYPE = 28.0
"""Distance of the type of a wire from the wire."""
_NEAR = 1.5
"""Coordinates that differ by less are equal."""
_CELL = 0.54
"""Width of a character relative to the size of the font."""
_MARK, _BESIDE = 13.0, 24.0
"""Size of the text beside a frame, and width of the circle beside a sum with the gap to it."""

Ends = tuple[str, str]


def route(picture: Picture, placement: PicturePlacement, look: Look) -> None:
    """Give the wires of a picture corners, and place what is beside its boxes.

    Args:
        picture: the picture.
        placement: where dot has placed it, which is changed.
        look: how it is written.
    """
    router = _Router(picture, placement)
    router.route_within()
    router.set_gaps()
    router.route_others()
    router.clear_titles(look)
    _Marks(router, look).arrange()
    _fit(placement)


Segment = tuple[str, float, float, float]
"""The box where a wire begins, the coordinate of a line of it, and the lower and upper end."""


@dataclass(slots=True)
class _Router:
    """Finds ways for the wires of a picture."""

    picture: Picture
    placement: PicturePlacement
    uprights: list[Segment] = field(default_factory=list)
    levels: list[Segment] = field(default_factory=list)
    stacks: list[str] = field(init=False)
    wires: list[Ends] = field(init=False)
    """The wires that carry other values than masks."""
    outer: dict[str, list[str]] = field(default_factory=dict)
    """DOT name of a box, or path of a frame, to the frames around it, the outermost first."""

    def __post_init__(self) -> None:
        """Read the stacks, and make frames as narrow as what is in them."""
        picture, at = self.picture, self.placement.at
        self.stacks = picture.stacks()
        self.wires = [
            (source, target)
            for (source, target), types in picture.wires.items()
            if not thin(types) and source in at and target in at
        ]
        self._find_outer(picture.root, [])
        for frame in reversed([*picture.root.below()]):
            rects = [self.placement.rect(name) for name in frame.boxes if name in at]
            rects += [self.placement.frames[inner.path] for inner in frame.frames]
            if frame.path in self.placement.frames and rects and not frame_label(frame, 1):
                _, low, _, high = self.placement.frames[frame.path]
                west, east = min(rect[0] for rect in rects), max(rect[2] for rect in rects)
                self.placement.frames[frame.path] = west - _EDGE, low, east + _EDGE, high

    def _find_outer(self, frame: Frame, outer: list[str]) -> None:
        self.outer |= dict.fromkeys(frame.boxes, outer)
        for inner in frame.frames:
            self.outer[inner.path] = outer
            self._find_outer(inner, [*outer, inner.path])

    def route_within(self) -> None:
        """Route the wires that lead straight up, and those around boxes of their stack."""
        at, skips = self.placement.at, self.picture.skips()
        for source, target in self.wires:
            if (source, target) not in skips and abs(at[source][0] - at[target][0]) < _NEAR:
                self._rise(source, target)
        skips = [ends for ends in skips if ends in self.wires]
        for source, target in sorted(
            (*self.picture.residuals, *skips), key=lambda ends: abs(at[ends[1]][1] - at[ends[0]][1])
        ):
            self._skip(source, target)
        for result, entry in self.picture.loops:
            self._loop(result, entry)

    def set_gaps(self) -> None:
        """Give the gaps between stacks the width that the wires from one to another need."""
        picture, placement = self.picture, self.placement
        counts = dict.fromkeys((self._around(path)[0] for path in placement.frames), 0)
        for source, target in picture.wires:
            if picture.crosses(source, target):
                edge = self._around(target)[0]
                counts[edge] = counts.get(edge, 0) + 1
        for edge in sorted(counts, reverse=True):
            rects = [*map(placement.rect, placement.at), *placement.frames.values()]
            before = max((east for _, _, east, _ in rects if east <= edge), default=None)
            if before is None or any(west < edge < east for west, _, east, _ in rects):
                continue
            gap = 2 * _EDGE + _STEP * counts[edge]
            self._shift(edge, gap - (edge - before))

    def route_others(self) -> None:
        """Route the wires that lead to the side, the shortest first."""
        at, placed = self.placement.at, self.placement.wires
        others = [
            (source, target)
            for source, target in self.wires
            if abs(at[source][0] - at[target][0]) >= _NEAR
            and not _is_cornered(placed.get((source, target, False), ()))
        ]
        for source, target in sorted(
            others, key=lambda ends: (self.picture.crosses(*ends), *_distance(at, *ends))
        ):
            self._enter(source, target)

    def _around(self, name: str) -> Rect:
        """Return the edges of the outermost frame around a box or a frame, or of itself."""
        path = [*self.outer.get(name, ()), name][0]
        return (
            self.placement.frames[path]
            if path in self.placement.frames
            else self.placement.rect(name)
        )

    def _rise(self, source: str, target: str) -> None:
        """Route a wire that leads straight up; attention gets its three values from below."""
        x, top = self._start(source)
        west, bottom, east, _ = self.placement.rect(target)
        if top >= bottom or not self._is_free_upright(source, x, top, bottom, (source, target)):
            return
        under = max(bottom - _UNDER, (top + bottom) / 2)
        heads = self.picture.heads.get((source, target), 1)
        sides = [x - (east - west) / 4, x + (east - west) / 4] if heads > _PAIR else []
        branches = [[(x, under), (side, under), (side, bottom)] for side in sides]
        self._set(source, target, [(x, top), (x, bottom)], *branches)

    def _start(self, source: str) -> Point:
        """Return where the wires of a box begin."""
        x, y = self.placement.at[source]
        is_join = self.picture.boxes[source].shape == "join"
        return x, y if is_join else self.placement.rect(source)[3]

    def _skip(self, source: str, target: str) -> None:
        """Route a wire around what is between its ends."""
        start = self._start(source)
        is_join = self.picture.boxes[source].shape == "join"
        turn = start if is_join else (start[0], start[1] + _UNDER / 2)
        if self.picture.boxes[target].shape in ("text", "join"):
            return
        self._go_around(source, target, self.picture.side_of(target, self.stacks), start, turn)

    def _loop(self, result: str, entry: str) -> None:
        """Lead a carried value back to where it enters."""
        start = self._start(result)
        side = _other(self.picture.side_of(entry, self.stacks))
        self._go_around(result, entry, side, start, (start[0], start[1] + _UNDER / 2))

    def _go_around(self, source: str, target: str, side: Side, start: Point, turn: Point) -> None:
        """Route a wire beside the boxes between its ends, into a side of its target."""
        level = self.placement.at[target][1]
        low, high = min(turn[1], level), max(turn[1], level)
        rects = [self.placement.rect(name) for name in (source, target)]
        column = min(rect[0] for rect in rects), max(rect[2] for rect in rects)
        around = {*self.outer.get(source, ()), *self.outer.get(target, ())}
        frames = self.placement.frames.items()
        passed = [rect for path, rect in frames if path not in around]
        rects += [
            rect
            for rect in (*passed, *(rect for _, rect in self._obstacles()))
            if rect[1] < high and rect[3] > low and rect[0] < column[1] and rect[2] > column[0]
        ]
        for way in (side, _other(side)):
            sign, index = (-1, 0) if way == "left" else (1, 2)
            edge = max((rect[index] for rect in rects), key=lambda x: sign * x)
            end = (self.placement.rect(target)[index], level)
            for number in range(_LANES):
                lane = edge + sign * (_LANE + number * _STEP)
                path = [start, turn, (lane, turn[1]), (lane, level), end]
                if self._is_free((source, target), path):
                    self._set(source, target, path)
                    self._make_room(source, target, lane)
                    return

    def _make_room(self, source: str, target: str, x: float) -> None:
        """Widen the frames around both ends of a wire so that it is within them."""
        for path in {*self.outer.get(source, ())} & {*self.outer.get(target, ())}:
            self.widen(path, x - _EDGE / 2, x + _EDGE / 2)

    def widen(self, path: str, x: float, to_x: float) -> None:
        """Widen a frame so that it reaches around what is between two coordinates."""
        west, low, east, high = self.placement.frames[path]
        self.placement.frames[path] = min(west, x), low, max(east, to_x), high

    def _enter(self, source: str, target: str) -> None:
        """Route a wire into a box from below, or into the side of a sum."""
        x, top = self._start(source)
        west, bottom, east, _ = self.placement.rect(target)
        to_x, level = self.placement.at[target]
        shape, side = self.picture.boxes[target].shape, (west if x < to_x else east)
        if shape in ("sum", "times") and level > top + _UNDER / 2:
            is_below = abs(x - to_x) < self.placement.size[source][0] / 2 - _EDGE
            straight, around = [(to_x, top), (to_x, bottom)], [(x, top), (x, level), (side, level)]
            for path in (straight, around) if is_below else (around,):
                if self._is_free((source, target), path):
                    self._set(source, target, path)
                    return
        entries = [to_x] if shape in ("join", "text") else self._entries(source, target)
        best: list[Point] = []
        for path in self._ways(source, target, entries[0]):
            if self._is_free((source, target), path):
                is_clear = not self._is_along_a_frame(path)
                best = path if is_clear else best or path
                if is_clear:
                    break
        if best:
            under = best[-2][1]
            others = [[(entry, under), (entry, bottom)] for entry in entries[1:]]
            self._set(source, target, best, *others)

    def _entries(self, source: str, target: str) -> list[float]:
        """Return where the heads of a wire enter its target, the farthest from the source first."""
        at, heads = self.placement.at, self.picture.heads
        west, _, east, _ = self.placement.rect(target)
        x = at[target][0]
        sources = [a for a, b in self.wires if b == target]
        is_left = at[source][0] < x
        straight = any(abs(at[a][0] - x) < _NEAR for a in sources)
        same = [a for a in sources if (at[a][0] < x) is is_left and abs(at[a][0] - x) > _NEAR]
        same.sort(key=lambda a: _distance(at, a, target))
        total = sum(heads.get((a, target), 1) for a in same)
        before = sum(heads.get((a, target), 1) for a in same[: same.index(source)])
        if total == 1 and not straight:
            if west + _EDGE < at[source][0] < east - _EDGE:
                return [at[source][0]]
            if len(sources) == 1:
                return [x]
        width = (east - west) / 2 * (-1 if is_left else 1)
        count = heads.get((source, target), 1)
        return [x + width * (before + head + 1) / (total + 1) for head in range(count)]

    def _ways(self, source: str, target: str, entry: float) -> Iterator[list[Point]]:
        """Yield paths from a box to the lower side of another, or to a side; the best first."""
        west, bottom, east, _ = self.placement.rect(target)
        (x, top), level = self._start(source), self.placement.at[target][1]
        last = [(entry, bottom)]
        steps = [number * _LEVEL for number in range(_LANES)]
        for under in [bottom - _UNDER - step for step in steps] + [
            top + _LEVEL + step for step in steps
        ]:
            if top + _LEVEL / 2 < under < bottom - HEAD:
                yield [(x, top), (x, under), (entry, under), *last]
        around, to = self._around(source), self._around(target)
        over = max(top, around[3]) + _UNDER
        edge = self.placement.rect(source)[2 if x < entry else 0]
        y, sign = self.placement.at[source][1], (-1 if x < entry else 1)
        for number in range(_LANES):
            lane = to[0 if x < entry else 2] + sign * (_EDGE + number * _STEP)
            under = bottom - _UNDER - number * _LEVEL
            for first in ([(x, top), (x, over), (lane, over)], [(edge, y), (lane, y)]):
                yield [*first, (lane, under), (entry, under), *last]
        lanes = {
            at + sign * (_LANE + number * _STEP)
            for _, rect in self._obstacles()
            for sign, at in ((-1, rect[0]), (1, rect[2]))
            for number in range(_PAIR)
        }
        if top < level:
            for lane in sorted(lanes, key=lambda lane: (abs(lane - x) + abs(lane - entry), lane)):
                turn = top + _LEVEL
                path = [(x, top), (x, turn), (lane, turn)]
                yield [*path, (lane, level), (west if lane < west else east, level)]
                for under in (bottom - _UNDER - step for step in steps):
                    yield [*path, (lane, under), (entry, under), *last]

    def _obstacles(self, ends: Iterable[str] = ()) -> Iterator[tuple[str, Rect]]:
        shapes = self.picture.boxes
        for name in self.placement.at:
            if shapes[name].shape != "join" and name not in ends:
                yield name, self.placement.rect(name)

    def _is_free_upright(
        self, source: str, x: float, low: float, high: float, ends: Ends = ("", "")
    ) -> bool:
        """Return whether no box and no wire of another box is at an upright line."""
        return not any(
            rect[0] - 3 < x < rect[2] + 3 and rect[1] < high - 1 and rect[3] > low + 1
            for _, rect in self._obstacles(ends)
        ) and not _taken(self.uprights, source, x, low, high)

    def _is_free_level(self, y: float, x: float, to_x: float, ends: Ends) -> bool:
        """Return whether no box and no wire of another box is at a level line."""
        west, east = min(x, to_x), max(x, to_x)
        return not any(
            rect[1] - 2 < y < rect[3] + 2 and rect[0] < east - 1 and rect[2] > west + 1
            for _, rect in self._obstacles(ends)
        ) and not _taken(self.levels, ends[0], y, west, east)

    def _is_free(self, ends: Ends, path: list[Point]) -> bool:
        """Return whether nothing is at a path, also not the inside of its own ends."""
        for (x, y), (to_x, to_y) in pairwise(path):
            if abs(x - to_x) < _NEAR:
                if not self._is_free_upright(ends[0], x, min(y, to_y), max(y, to_y), ends):
                    return False
            elif not self._is_free_level(y, x, to_x, ends):
                return False
        return not any(self._is_inside(end, path) for end in ends)

    def _is_along_a_frame(self, path: list[Point]) -> bool:
        """Return whether a part of a path could be taken for a side of a frame."""
        return any(
            abs(x - side) < _LEVEL - 1 and low < frame[3] and high > frame[1]
            for x, low, high in _uprights(path)
            for frame in self.placement.frames.values()
            for side in (frame[0], frame[2])
        )

    def clear_titles(self, look: Look) -> None:
        """Widen the frames whose titles would be on an upright wire, and move those titles."""
        frames = {frame.path: frame for frame in self.picture.root.below()}
        for path, (x, y) in self.placement.labels.items():
            lines = frame_lines(frames[path], look.frame_line, look.small)
            width = max((cells(line) * size * _CELL for line, size in lines), default=0.0)
            high = sum(size for _, size in lines) / 2
            crossed = [
                upright
                for _, upright, low, top in self.uprights
                if abs(upright - x) < width / 2 and low < y + high and top > y - high
            ]
            if crossed:
                moved = x + width / 2 + _NEAR - min(crossed)
                self.placement.labels[path] = x - moved, y
                for around in (path, *self.outer[path]):
                    west = self.placement.frames[around][0]
                    self.widen(around, west - moved, west)

    def _is_inside(self, box: str, path: list[Point]) -> bool:
        west, low, east, high = self.placement.rect(box)
        return any(
            min(x, to_x) < east - 1
            and max(x, to_x) > west + 1
            and min(y, to_y) < high - 1
            and max(y, to_y) > low + 1
            for (x, y), (to_x, to_y) in pairwise(path)
        )

    def _set(self, source: str, target: str, *paths: list[Point]) -> None:
        """Give a wire its branches, and mark where they are."""
        arrow = self.picture.boxes[target].shape != "join"
        curves = [cornered(path, arrow=arrow) for path in paths]
        before = self.placement.wires.get((source, target, False), ())
        label = next((curve.label for curve in before), None)
        if label and len(paths[0]) > _PAIR:  # beside the longest upright line
            x, low, high = max(_uprights(paths[0]), key=lambda line: line[2] - line[1])
            label = x + _TYPE, (low + high) / 2
        curves[0].label = label
        self.placement.wires[source, target, False] = curves
        for path in paths:
            for (x, y), (to_x, _) in pairwise(path):
                if abs(x - to_x) >= _NEAR:
                    self.levels.append((source, y, min(x, to_x), max(x, to_x)))
            self.uprights += [(source, *line) for line in _uprights(path)]

    def _shift(self, edge: float, distance: float) -> None:
        """Move everything that is right of an edge."""
        placement = self.placement

        def moved(x: float) -> float:
            return x + distance if x >= edge - _NEAR else x

        placement.at = {name: (moved(x), y) for name, (x, y) in placement.at.items()}
        placement.frames = {
            path: (moved(west), low, moved(east), high)
            for path, (west, low, east, high) in placement.frames.items()
        }
        placement.labels = {path: (moved(x), y) for path, (x, y) in placement.labels.items()}
        self.uprights = [(box, moved(x), low, high) for box, x, low, high in self.uprights]
        self.levels = [(box, y, moved(x), moved(to_x)) for box, y, x, to_x in self.levels]
        for curve in (curve for curves in placement.wires.values() for curve in curves):
            curve.points = [(moved(x), y) for x, y in curve.points]
            curve.tip = (moved(curve.tip[0]), curve.tip[1]) if curve.tip else None
            curve.label = (moved(curve.label[0]), curve.label[1]) if curve.label else None


def _uprights(path: Sequence[Point]) -> list[tuple[float, float, float]]:
    """Return x, lower and upper end of each upright line of a path."""
    return [
        (x, min(y, to_y), max(y, to_y))
        for (x, y), (to_x, to_y) in pairwise(path)
        if abs(x - to_x) < _NEAR
    ]


def _taken(lines: Iterable[Segment], source: str, at: float, low: float, high: float) -> bool:
    """Return whether a wire of another box is beside a line."""
    return any(
        other != source and abs(height - at) < _LEVEL - 1 and start < high and end > low
        for other, height, start, end in lines
    )


def _distance(at: Mapping[str, Point], source: str, target: str) -> tuple[float, float]:
    """Return how far apart the centers of two boxes are, to the side and upwards."""
    return abs(at[source][0] - at[target][0]), abs(at[source][1] - at[target][1])


def _is_cornered(curves: Sequence[Curve]) -> bool:
    """Return whether all lines of a wire are level or upright."""
    points = [point for curve in curves for point in curve.points]
    return bool(points) and all(
        min(abs(a[0] - b[0]), abs(a[1] - b[1])) < _NEAR / 5 for a, b in pairwise(points)
    )


_PAIR = 2
"""Keys and values; of more heads of one wire, the middle one is the query."""


def _other(side: Side) -> Side:
    return "left" if side == "right" else "right"


@dataclass(slots=True)
class _Marks:
    """Places what stands beside boxes and frames: numbers of copies, and positions."""

    router: _Router
    look: Look

    def arrange(self) -> None:
        """Place everything, on the side that faces away from other stacks if it is free."""
        picture, placement = self.router.picture, self.router.placement
        for name, anchor, first in picture.beside:
            size = self._size(name)
            rect = placement.frames.get(anchor) or placement.rect(anchor)
            gap = 5.0 if anchor in placement.frames else 11.0
            middle, placement.size[name] = (rect[1] + rect[3]) / 2, size
            ends = {"left": rect[0] - gap - size[0] / 2, "right": rect[2] + gap + size[0] / 2}
            spots = [(ends[side], middle) for side in (first, _other(first))]
            if self.router.picture.boxes[name].shape == "text":
                spots += [(ends[first], middle + rise) for rise in (-size[1] / 2, size[1] / 2)]
            for spot in (*spots, spots[0]):
                placement.at[name] = spot
                if self._is_free(name, anchor):
                    break
            west, _, east, _ = placement.rect(name)
            for path in self.router.outer.get(anchor, ()):
                self.router.widen(path, west - 4, east + 4)
        for source, target in picture.links:
            (x, y), (to_x, _) = placement.at[source], placement.at[target]
            sign = 1 if to_x > x else -1
            start = x + sign * placement.size[source][0] / 2
            end = to_x - sign * placement.size[target][0] / 2
            line = cornered([(start, y), (end, y)], arrow=False)
            placement.wires[source, target, False] = [line]

    def _size(self, name: str) -> Point:
        box = self.router.picture.boxes[name]
        if box.shape == "wave":
            return 24.0, 24.0
        lines = wrapped(box.words.title, self.look.end)
        return max(map(cells, lines)) * _MARK * _CELL + 4, len(lines) * _MARK * 1.2

    def _is_free(self, name: str, anchor: str) -> bool:
        router = self.router
        west, low, east, high = router.placement.rect(name)
        others = [router.placement.rect(other) for other in router.placement.at if other != name]
        others += [
            edges
            for path, edges in router.placement.frames.items()
            if path not in router.outer.get(anchor, ())
        ]
        others += [(x, start, x, end) for _, x, start, end in router.uprights]
        others += [(start, y, end, y) for _, y, start, end in router.levels]
        return not any(
            rect[0] < east and rect[2] > west and rect[1] < high and rect[3] > low
            for rect in others
        )


def _fit(placement: PicturePlacement) -> None:
    """Move everything so that the lower left corner is 0, and set width and height."""
    rects = [*map(placement.rect, placement.at), *placement.frames.values()]
    curves = [curve for wires in placement.wires.values() for curve in wires]
    points = [point for curve in curves for point in (*curve.points, curve.tip or curve.points[0])]
    points += [corner for a, b, c, d in rects for corner in ((a, b), (c, d))]
    west, low = (min(point[axis] for point in points) for axis in (0, 1))
    east, high = (max(point[axis] for point in points) for axis in (0, 1))

    def moved(point: Point) -> Point:
        return point[0] - west, point[1] - low

    placement.at = {name: moved(point) for name, point in placement.at.items()}
    placement.frames = {
        path: (*moved(rect[:2]), *moved(rect[2:])) for path, rect in placement.frames.items()
    }
    placement.labels = {path: moved(point) for path, point in placement.labels.items()}
    for curve in curves:
        curve.points = [*map(moved, curve.points)]
        curve.tip = moved(curve.tip) if curve.tip else None
        curve.label = moved(curve.label) if curve.label else None
    placement.width, placement.height = east - west, high - low
