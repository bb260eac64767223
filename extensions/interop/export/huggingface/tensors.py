"""Source tensors: assembled from target weights by the lines of a table.

In this file, "target" weights are the parameters of the table's spec and "source" tensors those of
the exported folder.  Every element of a source tensor is written once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .....plugin import InputError
from .....specs.expressions import ExpressionError
from ...importing.config import Configuration
from ...importing.layout import Layout
from ...importing.plan import Origin, assigned
from ...importing.table import Table


@dataclass(slots=True)
class _Source:
    """What the lines of a table write into one source tensor."""

    pieces: list[tuple[str, Layout, Tensor]] = field(default_factory=list)
    """Path of the target weight, its layout and its values."""
    unread: float | None = None


def assembled(
    table: Table, source: str, weights: Mapping[str, Tensor], config: Configuration
) -> dict[str, Tensor]:
    """Return the source tensors of target weights, by their names in the folder.

    Args:
        table: origin of each weight.
        source: file of the table.
        weights: every target weight once.
        config: configuration read by the table's expressions.

    Raises:
        InputError: a weight has no counterpart, or elements of a tensor would be written twice or
            not at all.
        SpecError: a path matches two patterns of the table.
    """
    plan, without = assigned(table, source, weights)
    if without:
        raise InputError(
            f"the table '{table.name}' has no counterpart of '{without[0]}'", location=source
        )
    sources: dict[str, _Source] = {}
    for path, origin in plan.items():
        try:
            for name, layout, piece in _pieces(path, origin, weights[path], config):
                entry = sources.setdefault(name, _Source())
                entry.pieces.append((path, layout, piece))
                if origin.weight.unread is not None:
                    entry.unread = origin.weight.unread
        except ExpressionError as error:
            raise InputError(f"'{path}' cannot be exported: {error}", location=source) from error
    return {full_name(name, table): _tensor(name, entry) for name, entry in sources.items()}


def full_name(name: str, table: Table) -> str:
    """Return the name of a tensor in the folder, given its name in the table."""
    return name if name.partition(".")[0] in table.outside else f"{table.prefix}{name}"


def _pieces(
    path: str, origin: Origin, tensor: Tensor, config: Configuration
) -> Iterator[tuple[str, Layout, Tensor]]:
    """Yield the source tensors that a target weight is written into, with layout and values.

    Raises:
        InputError: the weight has no source tensor, and is not the constant that an import gives.
        ExpressionError: an expression of the table cannot be evaluated.
    """
    weight = origin.weight
    if not weight.names:
        if not bool((tensor == (weight.fill or 0.0)).all()):
            raise InputError(
                f"'{path}' has no counterpart, and is not {weight.fill or 0.0:g} everywhere",
                help="export as another architecture: weft fits lists them",
            )
        return
    if weight.add is not None:
        tensor = tensor - origin.number(weight.add, config)
    if weight.times is not None:
        tensor = tensor / origin.number(weight.times, config)
    layout, names = origin.layout(config), origin.names(config)
    if weight.stack is None:
        yield names[0][0], layout, tensor
        return
    if len(names) != tensor.size(0):
        raise InputError(f"'{path}' has {tensor.size(0)} entries, but {len(names)} tensors")
    for (first, *_), piece in zip(names, tensor.unbind(0), strict=True):
        yield first, layout, piece


def _tensor(name: str, source: _Source) -> Tensor:
    """Return a source tensor.

    Raises:
        InputError: its shape is unknown, or elements are written twice or not at all.
    """
    try:
        shape = _shape(source)
        tensor = torch.full(shape, source.unread or 0.0)
        written = torch.zeros(shape, dtype=torch.bool)
        for path, layout, piece in source.pieces:
            target = layout.view(tensor)
            filled = layout.view(written)
            values = piece.reshape(target.shape)
            if bool(((target != values) & filled).any()):
                raise InputError(
                    f"'{path}' and another weight are one tensor of theirs, '{name}', but differ",
                    help="tie them in the spec, or export as another architecture",
                )
            target.copy_(values)
            filled.fill_(value=True)
    except (ValueError, RuntimeError) as error:
        raise InputError(f"the tensor '{name}' cannot be written: {error}") from error
    if source.unread is None and not bool(written.all()):
        count = int((~written).sum())
        raise InputError(f"{count} elements of the tensor '{name}' have no counterpart")
    return tensor


def _shape(source: _Source) -> list[int]:
    """Return the shape that fits all pieces.

    Raises:
        ValueError: there is none.
    """
    every = [layout.extents(tuple(piece.shape)) for _, layout, piece in source.pieces]
    if len({len(extents) for extents in every}) > 1:
        msg = "the lines of the table give it different numbers of axes"
        raise ValueError(msg)
    shape = []
    for axis in zip(*every, strict=True):
        exact = {extent.size for extent in axis if extent.exact}
        least = max(extent.size for extent in axis)
        if len(exact) > 1 or (exact and least > max(exact)):
            msg = f"the lines of the table give an axis the sizes {sorted(exact | {least})}"
            raise ValueError(msg)
        shape.append(exact.pop() if exact else least)
    return shape
