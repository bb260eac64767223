"""Grid: positions for pictures with too many boxes for dot, whose time grows faster than they do.

Each stack is one column of boxes in order of computation; wires that skip boxes bend around them.
Graphviz's `neato -n2` then draws what is placed here.
"""

from __future__ import annotations

from .labels import DETAIL, wrapped
from .picture import MASKS, Box, Frame, Picture
from .placement import Curve, PicturePlacement

WIDE, GAP = 144.0, 22.0
"""Width of a box and space between two boxes, in points."""
_PAD, _BEND = 12.0, 70.0
"""Space between a frame and its boxes, and beside a column for wires that bend."""
_ARROW = 7.0
"""Length of the head of an arrow."""


def grid_positions(picture: Picture, label_lines: int) -> PicturePlacement:
    """Return positions for a picture.

    Args:
        picture: the picture.
        label_lines: number of lines that the label of a frame may have.
    """
    placement = _Placer(picture, label_lines).positions()
    placement.height = max(placement.height, *(placement.rect(name)[3] for name in placement.at))
    above = placement.above()
    for (source, target), types in picture.wires.items():
        near, arrow = above.get(source) == target, picture.boxes[target].shape != "join"
        curve = _curve(placement, source, target, near=near, arrow=arrow)
        for faint in {type_.kind in MASKS for type_ in types}:
            placement.wires[source, target, faint] = [curve]
    for source, target in picture.residuals:
        curve = _curve(placement, source, target, near=False, arrow=True)
        placement.wires[source, target, False] = [curve]
    return placement


def _curve(
    placement: PicturePlacement, source: str, target: str, *, near: bool, arrow: bool
) -> Curve:
    """Return the curve of a wire.

    Args:
        placement: where the boxes are.
        source: DOT name of the box where it begins.
        target: DOT name of the box where it ends.
        near: whether the target is directly above the source.
        arrow: whether it has a head.
    """
    (x, y), (width, height) = placement.at[source], placement.size[source]
    (to_x, to_y), (to_width, to_height) = placement.at[target], placement.size[target]
    head = _ARROW if arrow else 0.0
    if near:
        start, end = (x, y + height / 2), (to_x, to_y - to_height / 2)
        last = (to_x, end[1] - head)
        points = [start, (x, (start[1] + last[1]) / 2), (x, (start[1] + last[1]) / 2), last]
    elif x == to_x:
        bend = x + max(width, to_width) / 2 + min(_BEND - 10, 40 + abs(to_y - y) / 30)
        start, end = (x + width / 2, y), (to_x + to_width / 2, to_y)
        points = [start, (bend, y), (bend, to_y), (end[0] + head, to_y)]
    else:
        side = 1 if to_x > x else -1
        start, end = (x + side * width / 2, y), (to_x - side * to_width / 2, to_y)
        middle = (start[0] + end[0]) / 2
        points = [start, (middle, y), (middle, to_y), (end[0] - side * head, to_y)]
    return Curve(points, end if arrow else None)


class _Placer:
    """Stacks boxes and frames on each other, one column for each stack."""

    def __init__(self, picture: Picture, label_lines: int) -> None:
        self.picture, self.grid = picture, PicturePlacement()
        self.top = label_lines * 14.0 + 6.0
        self.order = {name: index for index, name in enumerate(picture.boxes)}
        self.first: dict[int, int] = {}
        """Identity of a frame to the order of its first box."""

    def positions(self) -> PicturePlacement:
        """Place everything."""
        picture, grid = self.picture, self.grid
        self._find_first(picture.root)
        depth = _depth(picture.root) - 1
        pitch = WIDE + 2 * depth * _PAD + 2 * _BEND
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

    def _rank(self, item: str | Frame) -> int:
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
                height = _height(self.picture.boxes[item])
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
        box = self.picture.boxes[name]
        width = {"box": WIDE, "join": 2.0, "text": 60.0}.get(box.shape, WIDE * 0.8)
        self.grid.at[name], self.grid.size[name] = (x, y), (width, _height(box))


def _depth(frame: Frame) -> int:
    return 1 + max(map(_depth, frame.frames), default=0)


def _height(box: Box) -> float:
    """Return about the height of a box."""
    if box.shape != "box":
        return {"join": 2.0, "text": 20.0}.get(box.shape, 26.0)
    words = box.words
    small = ", ".join(filter(None, (words.params if box.lines else words.detail, *box.notes)))
    lines = len(wrapped(small, DETAIL)) * bool(small) + box.frozen
    lines += sum(len(wrapped(text, DETAIL)) for text in box.lines)
    titles = len(wrapped(words.title, 20))
    return 16.0 + 15.5 * titles + 12.5 * lines + 19.0 * (len(words.below) + len(words.above))
