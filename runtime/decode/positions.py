"""Models with a limited number of positions: learned tables end somewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import nn

from ...graphs.ir.traverse import position_limits
from ...specs.findings import InputError
from ..codegen.generated import program_of


def positions_of(model: nn.Module) -> int | None:
    """Return the number of positions that every sequence of a model may have; None if unlimited."""
    return min(position_limits(program_of(model).graph), default=None)


def refuse_long(model: nn.Module, pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> None:
    """Raise an error for the first pair that has more tokens than a model has positions.

    Args:
        model: a built model.
        pairs: ids of sources and targets, without end tokens.

    Raises:
        InputError: a pair is too long.
    """
    most = positions_of(model)
    if most is None:
        return
    for number, pair in enumerate(pairs, 1):
        for side, ids in zip(("source", "target"), pair, strict=True):
            if len(ids) + 1 > most:
                raise InputError(
                    f"the {side} has {len(ids) + 1} tokens, end token included, but the model has"
                    f" {most} positions",
                    place=f"pair {number}",
                    help="shorten it, or leave the pair out",
                )
