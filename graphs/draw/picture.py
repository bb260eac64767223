"""Picture: boxes, frames and wires of a diagram, before they are written as DOT.

A DOT name is `node/`, `stack/`, `input/` or `output/`, followed by the path in the graph; the
operations around a block are `join/`, `band/` and `entry/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from ..ir.value_type import ValueType
from .labels import BoxText

MASKS = frozenset({"mask", "bias", "len", "pos"})
"""Kinds of values that mark positions, such as masks; their wires are thin."""

FROZEN = "\N{SNOWFLAKE} frozen"
"""Note on what training leaves as it is."""

Shape = Literal["box", "stack", "carried", "constant", "join", "text", "sum", "times", "wave"]
"""How a box is drawn.

`stack`: collected outputs.  `carried`, `constant`: a value that enters a repeat.  `join`: a point
where a wire branches.  `text`: words without a line around them.  `sum`, `times`: a circle with a
plus or a cross.  `wave`: a circle with a wave.
"""
Side = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class Folds:
    """Templates and repeats that are drawn otherwise than the others of a folded picture."""

    closed: frozenset[str] = frozenset()
    """Paths of nodes that are one box."""
    opened: frozenset[str] = frozenset()
    """Paths of repeats of which every copy is drawn."""


NO_FOLDS = Folds()


@dataclass(slots=True, kw_only=True)
class Box:
    """One box of a picture."""

    words: BoxText
    shape: Shape = "box"
    notes: list[str] = field(default_factory=list)
    """Further texts for its small lines."""
    lines: list[str] = field(default_factory=list)
    """Small lines of their own, below the others."""
    frozen: bool = False
    """Whether its weights do not train."""
    faint: bool = False
    """Whether its words are drawn like a mask."""
    tooltip: str = ""
    letter: str = ""
    """The letter of its input in a figure, such as Q."""
    block: str = ""
    """Name of its block, such as `dropout`."""


@dataclass(slots=True)
class Frame:
    """One use of a template, or the complete picture."""

    path: str
    title: str
    copies: int | None = None
    note: str = ""
    """Text below the number of copies."""
    pattern: str = ""
    """Templates of the copies, if they alternate."""
    boxes: list[str] = field(default_factory=list)
    """DOT names of the boxes directly in it."""
    frames: list[Frame] = field(default_factory=list)

    def below(self) -> Iterator[Frame]:
        """Yield the frames in it, outer ones first."""
        for frame in self.frames:
            yield frame
            yield from frame.below()

    def within(self) -> Iterator[str]:
        """Yield the DOT names of all boxes in it, and in the frames in it."""
        yield from self.boxes
        for frame in self.frames:
            yield from frame.within()


@dataclass(slots=True)
class Picture:
    """Boxes, frames and wires."""

    root: Frame
    unfolded: bool = False
    """Whether every copy is drawn."""
    boxes: dict[str, Box] = field(default_factory=dict)
    """DOT name of a box to the box."""
    wires: dict[tuple[str, str], list[ValueType]] = field(default_factory=dict)
    """DOT names of the two ends to the types between them."""
    residuals: list[tuple[str, str]] = field(default_factory=list)
    """DOT names of the two ends of each residual path."""
    inputs: list[str] = field(default_factory=list)
    """DOT names of the inputs, from left to right."""
    outputs: list[str] = field(default_factory=list)
    """DOT names of the outputs."""
    heads: dict[tuple[str, str], int] = field(default_factory=dict)
    """DOT names of the two ends of a wire to the number of its arrow heads, if it has several: one
    that attention takes keys and values from has two."""
    loops: list[tuple[str, str]] = field(default_factory=list)
    """DOT names of the box that computes a carried value, and of where it enters the next copy."""
    beside: list[tuple[str, str, Side]] = field(default_factory=list)
    """DOT name of what stands beside a box or a frame, that of the box or the path of the frame,
    and on which side."""
    links: list[tuple[str, str]] = field(default_factory=list)
    """DOT names of the two ends of lines without an arrow head."""
    rows: list[list[str]] = field(default_factory=list)
    """DOT names of boxes that stand side by side, from left to right."""
    columns: dict[str, str] = field(default_factory=dict)
    """DOT name of a box to the input above which it is placed: that of its first wire."""

    def add(self, frame: Frame, name: str, box: Box) -> None:
        """Put a box into a frame."""
        self.boxes[name] = box
        frame.boxes.append(name)

    def add_end(self, name: str, type_: ValueType) -> None:
        """Add an input or an output: `input/` or `output/` and its name."""
        what, _, word = name.partition("/")
        self.boxes[name] = Box(
            words=BoxText(word.replace("_", " "), "", "other"),
            shape="text",
            faint=type_.kind in MASKS,
            tooltip=f"{what} {word}: {type_}",
        )
        (self.inputs if what == "input" else self.outputs).append(name)

    def wire(self, source: str, target: str, type_: ValueType) -> None:
        """Draw a wire; wires of the same type between the same boxes are one line."""
        types = self.wires.setdefault((source, target), [])
        if type_ not in types:
            types.append(type_)
        if type_.kind not in MASKS and target not in self.columns:
            self.columns[target] = self.columns.setdefault(source, source)

    def stack_of(self, box: str) -> str:
        """Return the DOT name of the input above which a box is placed."""
        return self.columns.get(box, box)

    def stacks(self) -> list[str]:
        """Return the inputs that stacks of boxes stand above, from left to right."""
        used = {self.stack_of(box) for box in self.boxes if not box.startswith("input/")}
        return [box for box in self.inputs if box in used and not self.boxes[box].faint]

    def side_of(self, box: str, stacks: list[str]) -> Side:
        """Return the side of its stack that faces away from the other stacks."""
        first = len(stacks) > 1 and self.stack_of(box) == stacks[0]
        return "left" if first else "right"

    def crosses(self, source: str, target: str) -> bool:
        """Return whether a wire leads from one stack into attention or a frame of another."""
        frames = [frame_of(box).partition(".")[0] for box in (source, target)]
        apart = self.stack_of(source) != self.stack_of(target)
        into = frames[1] or self.heads.get((source, target), 1) > 1
        return apart and bool(into) and (frames[0] != frames[1] or not frames[1])

    def skips(self) -> list[tuple[str, str]]:
        """Return the wires within a stack whose ends are also connected over other boxes."""
        above: dict[str, list[str]] = {}
        for source, target in self.wires:
            above.setdefault(source, []).append(target)

        def is_longer(source: str, target: str) -> bool:
            waiting, reached = [box for box in above[source] if box != target], set[str]()
            while waiting:
                box = waiting.pop()
                if box == target:
                    return True
                if box not in reached:
                    reached.add(box)
                    waiting += above.get(box, ())
            return False

        return [
            ends
            for ends, types in self.wires.items()
            if not thin(types) and self.stack_of(ends[0]) == self.stack_of(ends[1])
            if len(above[ends[0]]) > 1 and is_longer(*ends)
        ]

    def replace_end(self, box: str, other: str) -> None:
        """Let what reads a box read another one, and remove the box."""
        for source, target in [*self.wires]:
            types = self.wires.pop((source, target))
            if target != box:
                ends = other if source == box else source, target
                self.wires[ends] = [*dict.fromkeys((*self.wires.get(ends, ()), *types))]
        self.heads = {
            (other if a == box else a, b): count for (a, b), count in self.heads.items() if b != box
        }
        for pairs in (self.residuals, self.loops):
            pairs[:] = [(other if a == box else a, other if b == box else b) for a, b in pairs]
        self.remove(box)

    def remove(self, box: str) -> None:
        """Remove a box that no wire ends at."""
        for frame in (self.root, *self.root.below()):
            if box in frame.boxes:
                frame.boxes.remove(box)
        for ends in (self.inputs, self.outputs):
            if box in ends:
                ends.remove(box)
        self.columns.pop(box, None)
        del self.boxes[box]

    def note(self, box: str, text: str) -> None:
        """Add a note to the small lines of a box, once."""
        notes = self.boxes[box].notes
        if text not in notes:
            notes.append(text)


def frame_of(box: str) -> str:
    """Return the path of the frame that a box is in, by its DOT name.

    >>> [frame_of(box) for box in ("node/head", "node/a.*.b/f", "entry/a.*/x", "band/a.*.b/0")]
    ['', 'a.*', 'a.*', 'a.*']
    """
    kind, _, path = box.partition("/")
    if kind == "entry" or (kind == "join" and "/" in path):
        return path.partition("/")[0]
    return path.partition("/")[0].rpartition(".")[0]


def thin(types: Iterable[ValueType]) -> bool:
    """Return whether a wire carries only masks and similar values, and is drawn thin."""
    return all(type_.kind in MASKS for type_ in types)
