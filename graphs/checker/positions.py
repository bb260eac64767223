"""Positions: the wires of a block that is applied to one position after another."""

from __future__ import annotations

from dataclasses import replace

from ...specs.findings import pointer
from ..ir.block_type import BlockType
from ..ir.value_type import UNKNOWN, Axis, names_of
from .records import Checker
from .wiring import Given, Reads


def at_one_position(
    checker: Checker, block: BlockType, axis: Axis | None, reads: Reads, wires_at: str
) -> Reads:
    """Return the wires that a slot passes on, at one position: there, the axis has the size 1.

    Wires without the axis stay as they are.

    Args:
        checker: the state that the scopes share.
        block: the block with the slot.
        axis: the axis of the positions; None if it is unknown.
        reads: port to the value that it reads.
        wires_at: JSON Pointer of the wires.
    """
    if isinstance(axis, int):
        checker.findings.report(
            code="T03",
            at=wires_at,
            problem=f"{block.key} goes through the positions of an axis, not {axis} fixed ones",
            help="wire values with a time axis, such as T",
        )
    if axis in (None, UNKNOWN) or isinstance(axis, int):
        return {
            name: replace(read, guessed=True) if isinstance(read, Given) else read
            for name, read in reads.items()
        }
    return {
        name: _at_one(checker, block, str(axis), read, wires_at + pointer(name))
        if isinstance(read, Given)
        else read
        for name, read in reads.items()
    }


def _at_one(checker: Checker, block: BlockType, axis: str, read: Given, at: str) -> Given:
    """Return a wire at one position of an axis, and report one whose positions are others."""
    axes = read.type.axes
    related = [other for other in axes if names_of(other) & names_of(axis)]
    if related not in ([], [axis]):
        texts = " and ".join(map(str, related))
        checker.doubts.misfits += 1
        checker.findings.report(
            code="T03",
            at=at,
            problem=f"{block.key} goes through {axis}, but {read.name} has {texts}",
            evidence=(f"given  {read.type}",),
            help=f"wire a value that has {axis} once, or not at all",
        )
        return replace(read, guessed=True)
    axes = tuple(1 if other == axis else other for other in axes)
    return replace(read, type=replace(read.type, axes=axes))
