"""Grid: positions for pictures with too many boxes for dot, whose time grows faster than they do.

Each stack is one column of boxes in order of computation; wires that skip boxes go around them.
Graphviz's `neato -n2` then draws what is placed here.
"""

from __future__ import annotations

import bisect

from ...specs.json_tree import cells
from .labels import DETAIL, TITLE, wrapped
from .picture import MASKS, Box, Frame, Picture
from .placement import PicturePlacement, Point, cornered

WIDE, NARROW, GAP = 144.0, 132.0, 22.0
"""Width of wide and narrow boxes, and space between two boxes, in points."""
_PAD, _BESIDE = 16.0, 70.0
"""Space between a frame and its boxes, and beside a column for wires."""
_LANE, _STEP, _LINES = 11.0, 5.0, 5
"""Distance of a wire from the boxes that it skips, of lines of others, and how many are apart."""


def grid_positions(picture: Picture, label_lines: int) -> PicturePlacement:
    """Return positions for a picture.

    Args:
        picture: the picture.
        label_lines: number of lines that the label of a frame may have.
    """
    placement = _Placer(picture, label_lines).positions()
    placement.height = max(placement.height, *(placement.rect(name)[3] for name in placement.at))
    wires = _Wires(picture, placement)
    for source, target in wires.by_length():
        types = picture.wires.get((source, target), ())
        curve = cornered(wires.path(source, target), arrow=picture.boxes[target].shape != "join")
        for faint in {type_.kind in MASKS for type_ in types} or {False}:
            placement.wires[source, target, faint] = [curve]
    return placement


class _Wires:
    """The ways of wires between boxes in columns."""

    def __init__(self, picture: Picture, placement: PicturePlacement) -> None:
        self.picture, self.placement = picture, placement
        self.above, self.stacks = placement.above(), picture.stacks()
        self.lanes: dict[float, list[list[tuple[float, float]]]] = {}
        """The middle of a column, or its negative on the left, to the heights that are taken."""
        self.trunks: dict[float, dict[str, int]] = {}
        """The middle of a gap to the number of the line that the wires of a box share there."""

    def by_length(self) -> list[tuple[str, str]]:
        """Return the ends of all wires, the shortest first, which are nearest to their boxes."""
        at = self.placement.at
        ends = dict.fromkeys((*self.picture.wires, *self.picture.residuals))
        return sorted(ends, key=lambda pair: abs(at[pair[1]][1] - at[pair[0]][1]))

    def path(self, source: str, target: str) -> list[Point]:
        """Return the corners of a wire: straight up, around boxes, or to another column."""
        (x, y), (to_x, level) = self.placement.at[source], self.placement.at[target]
        begin, end = self.placement.rect(source), self.placement.rect(target)
        if x != to_x:
            right = to_x > x
            start, last = (begin[2], end[0]) if right else (begin[0], end[2])
            middle = (start + last) / 2
            lines = self.trunks.setdefault(middle, {})
            number = lines.setdefault(source, len(lines)) % _LINES
            middle += (number + 1) // 2 * (-1) ** number * _STEP
            return [(start, y), (middle, y), (middle, level), (last, level)]
        is_fork = self.picture.boxes[source].shape == "join"
        start = y if is_fork else begin[3]
        if self.above.get(source) == target and (source, target) in self.picture.wires:
            return [(x, start), (x, end[1])]
        turn = start if is_fork else start + _STEP
        sign, edge = (-1, 0) if self.picture.side_of(target, self.stacks) == "left" else (1, 2)
        lane = x + sign * (WIDE / 2 + _LANE + self._lane(sign * x, turn, level) * _PAD)
        return [(x, start), (x, turn), (lane, turn), (lane, level), (end[edge], level)]

    def _lane(self, side: float, low: float, high: float) -> int:
        """Return the number of an upright line beside a column that no other wire has taken."""
        lanes = self.lanes.setdefault(side, [[] for _ in range(_LINES)])
        for number, lane in enumerate(lanes):
            at = bisect.bisect(lane, (low, high))
            if (not at or lane[at - 1][1] <= low) and (at == len(lane) or lane[at][0] >= high):
                lane.insert(at, (low, high))
                return number
        return _LINES - 1


class _Placer:
    """Stacks boxes and frames on each other, one column for each stack."""

    def __init__(self, picture: Picture, label_lines: int) -> None:
        self.picture, self.grid = picture, PicturePlacement()
        self.top = label_lines * 14.0 + 6.0
        self.order: dict[str, float] = {name: at for at, name in enumerate(picture.boxes)}
        for source, target in picture.wires:
            if picture.boxes[source].shape == "join":  # a fork is below what reads it
                self.order[source] = min(self.order[source], self.order[target] - 0.5)
        self.first: dict[int, float] = {}
        """Identity of a frame to the order of its first box."""

    def positions(self) -> PicturePlacement:
        """Place everything."""
        picture, grid = self.picture, self.grid
        self._find_first(picture.root)
        depth = _depth(picture.root) - 1
        pitch = WIDE + 2 * depth * _PAD + 2 * _BESIDE
        stacks = picture.stacks() or picture.inputs[:1]
        columns: list[list[str | Frame]] = [[] for _ in stacks or [""]]
        for item in self._items(picture.root):
            columns[self._column(item, stacks)].append(item)
        high = 0.0
        for index, items in enumerate(columns):
            high = max(high, self._stack(items, (index + 0.5) * pitch, 40.0, depth))
        thin = [name for name in picture.inputs if name not in stacks]
        for name in picture.inputs:
            spread = (thin.index(name) + 1) / (len(thin) + 1) if name in thin else 0.0
            x = len(columns) * spread if name in thin else stacks.index(name) + 0.5
            self._put(name, x * pitch, 12.0)
        offsets: dict[int, int] = {}
        for name in picture.outputs:
            column = self._column(name, stacks)
            offset = offsets[column] = offsets.get(column, -1) + 1
            self._put(name, (column + 0.5) * pitch + offset * WIDE / 2, high + 40.0)
        for name, anchor, side in picture.beside:
            west, low, east, top = grid.frames.get(anchor) or grid.rect(anchor)
            self._put(name, west - GAP if side == "left" else east + GAP, (low + top) / 2)
        grid.width, grid.height = len(columns) * pitch, high + 60.0
        return grid

    def _items(self, frame: Frame) -> list[str | Frame]:
        """Return the boxes and frames directly in a frame, in order of computation."""
        items: list[str | Frame] = [*frame.boxes, *(f for f in frame.frames if id(f) in self.first)]
        return sorted(items, key=self._rank)

    def _rank(self, item: str | Frame) -> float:
        return self.order[item] if isinstance(item, str) else self.first[id(item)]

    def _find_first(self, frame: Frame) -> None:
        """Find the first box of each frame that has boxes."""
        for inner in frame.frames:
            self._find_first(inner)
        orders = [self.order[name] for name in frame.boxes]
        orders += [self.first[id(inner)] for inner in frame.frames if id(inner) in self.first]
        if orders:
            self.first[id(frame)] = min(orders)

    def _column(self, item: str | Frame, stacks: list[str]) -> int:
        """Return the column of a box, or of the first box of a frame that is above an input."""
        names = [item] if isinstance(item, str) else item.within()
        candidates = (self.picture.stack_of(name) for name in names)
        return next((stacks.index(stack) for stack in candidates if stack in stacks), 0)

    def _stack(self, items: list[str | Frame], x: float, y: float, depth: int) -> float:
        """Place boxes and frames above a height, and return the height above them."""
        for item in items:
            y += GAP
            if isinstance(item, str):
                height = _size(self.picture.boxes[item])[1]
                self._put(item, x, y + height / 2)
                y += height
                continue
            lower = y
            y = self._stack(self._items(item), x, y + _PAD - GAP, depth - 1) + self.top
            half = WIDE / 2 + depth * _PAD
            self.grid.frames[item.path] = (x - half, lower, x + half, y)
            self.grid.labels[item.path] = (x - half + 46, y - (self.top - 6) / 2)
        return y

    def _put(self, name: str, x: float, y: float) -> None:
        self.grid.at[name], self.grid.size[name] = (x, y), _size(self.picture.boxes[name])


def _depth(frame: Frame) -> int:
    return 1 + max(map(_depth, frame.frames), default=0)


def _size(box: Box) -> Point:
    """Return about the width and height of a box."""
    if box.shape != "box":
        return {"join": (2.0, 2.0), "text": (60.0, 20.0)}.get(box.shape, (WIDE * 0.8, 26.0))
    words = box.words
    small = ", ".join(filter(None, (words.params if box.lines else words.detail, *box.notes)))
    lines = [line for text in (small, *box.lines) if text for line in wrapped(text, DETAIL)]
    titles = len(wrapped(words.title, TITLE))
    rows = len(words.below) + len(words.above)
    width = max(NARROW, *(5.0 * cells(line) + 10.0 for line in lines), 0.0)
    return width, 14.0 + 12.5 * titles + 9.2 * (len(lines) + box.frozen) + 19.0 * rows
