"""Inside: the operations in a block, as a block declares them for drawings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operation inside a block."""

    name: str
    reads: tuple[str, ...]
    """What it reads: earlier steps, or wired ports of the block."""
    title: str = ""
    """Its name in a drawing; empty for the name of the block in `slot`."""
    detail: str = ""
    """Its params, on a smaller line; those of the block in `slot` follow."""
    family: str = "other"
    """Decides its color, as the family of a block."""
    slot: str = ""
    """The slot whose block computes it, or part of it."""
    letter: str = ""
    """The letter of its input in a figure, such as Q."""
    frame: str = ""
    """Name of the frame that contains it; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """The operations of one use of a block, in order of computation."""

    steps: tuple[Step, ...]
    outputs: Mapping[str, str]
    """Output of the block to the step that computes it."""
    frames: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Name of a frame to its title, and how often its steps run side by side."""
    rows: tuple[tuple[str, ...], ...] = ()
    """Steps that are drawn side by side, from left to right."""
