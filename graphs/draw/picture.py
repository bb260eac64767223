"""Picture: boxes, frames and wires of a diagram, before they are written as DOT.

A DOT name is `node/`, `stack/`, `input/` or `output/`, followed by the path in the graph; the
operations around a block are `join/`, `band/` and `entry/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from ..ir.value_type import ValueType
from .labels import Words

MASKS = frozenset({"mask", "bias", "len", "pos"})
"""Kinds of values that mark positions, such as masks; their wires are thin."""

FROZEN = "\N{SNOWFLAKE} frozen"
"""Note on what training leaves as it is."""

Shape = Literal["box", "stack", "carried", "constant", "join", "text", "sum", "wave"]
"""How a box is drawn.

`stack`: collected outputs.  `carried`, `constant`: a value that enters a repeat.  `join`: a point
where a wire branches.  `text`: words without a line around them.  `sum`: a circle with a plus.
`wave`: a circle with a wave.
"""
Side = Literal["left", "right"]
Lane = Literal["inner", "outer"]


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

    words: Words
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
    beside: list[tuple[str, str, Side, Lane]] = field(default_factory=list)
    """DOT name of a box that stands at the edge of the picture, that of the box whose height it
    has, which edge, and its distance from the stacks."""
    loose: set[tuple[str, str]] = field(default_factory=set)
    """DOT names of the two ends of wires that do not keep one box above the other."""
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
            words=Words(word.replace("_", " "), "", "other"),
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

    def crosses(self, source: str, target: str) -> bool:
        """Return whether a wire leads from one stack into a frame of another."""
        frames = [frame_of(box).partition(".")[0] for box in (source, target)]
        apart = self.stack_of(source) != self.stack_of(target)
        return apart and bool(frames[1]) and frames[0] != frames[1]

    def heights(self) -> dict[str, int]:
        """Return how many boxes are below each box, without wires between stacks."""
        above: dict[str, list[str]] = {}
        waiting = dict.fromkeys(self.boxes, 0)
        pairs = [*self.wires, *self.residuals]
        for source, target in pairs:
            if not self.crosses(source, target):
                above.setdefault(source, []).append(target)
                waiting[target] += 1
        levels = {box: 0 for box, count in waiting.items() if not count}
        ready = [*levels]
        for box in ready:
            for target in above.get(box, ()):
                levels[target] = max(levels.get(target, 0), levels[box] + 1)
                waiting[target] -= 1
                if not waiting[target]:
                    ready.append(target)
        return levels

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
