"""Masks that a spec has and that a block could use, but does not."""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.graph import Graph, Part
from ..ir.value_type import Misfit, fit
from .remark import Remark, behaviors, blocks


def unused_masks(graph: Graph) -> Iterator[Remark]:
    """Yield the blocks that read padding though an input of the spec masks it.

    A block that reads only earlier positions needs no mask: padding comes last, and what stands
    there is not used.
    """
    masks = {name: type_ for name, type_ in graph.inputs.items() if type_.kind == "mask"}
    for at, part in blocks(graph):
        full = {axis for axis, behavior in behaviors(part) if behavior == "full"}
        if _masked(part):
            continue
        for port in part.signature.inputs:
            if port.type.kind != "mask" or not port.optional or port.name in part.inputs:
                continue
            for name, type_ in masks.items():
                bound = {key: axis for key, axis in part.axes.items() if key != "..."}
                if isinstance(fit(port.type, type_, bound, {}), Misfit):
                    continue
                if not full & {axis for axis in type_.axes if isinstance(axis, str)}:
                    continue
                yield Remark(
                    at=at,
                    problem=f"{part.block.key} reads padding, though there is a mask '{name}'",
                    evidence=(f"given  {type_}  by input {name}",),
                    help=f"wire '{name}' to its port '{port.name}'",
                )


def _masked(part: Part) -> bool:
    """Return whether a block reads a mask, or a bias that a mask may have become."""
    return any(type_.kind in ("mask", "bias") for type_ in part.inputs.values())
