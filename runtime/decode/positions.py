"""Models with a limited number of positions: learned tables end somewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from torch import nn

from ...graphs.ir.traverse import position_limits
from ...specs.findings import InputError
from ..codegen.generated import program_of
from .settings import SearchSettings


def positions_of(*models: nn.Module) -> int | None:
    """Return the number of positions that every sequence of models may have; None if unlimited.

    Nothing is known of a model that Weft did not build: it counts as unlimited.
    """
    limits = list[int]()
    for model in models:
        with suppress(InputError):
            limits += position_limits(program_of(model).graph)
    return min(limits, default=None)


def bounded(search: SearchSettings, positions: int | None) -> SearchSettings:
    """Return search settings with outputs no longer than models have positions."""
    if positions is None:
        return search
    most = min(positions - 1, search.max_length or positions)
    return search.model_copy(update={"max_length": max(1, most)})


def refuse_long(
    models: Sequence[nn.Module], pairs: Iterable[tuple[Sequence[int], Sequence[int]]]
) -> None:
    """Raise an error for the first pair that has more tokens than models have positions.

    Args:
        models: built models.
        pairs: ids of sources and targets, without end tokens.

    Raises:
        InputError: a pair is too long.
    """
    most = positions_of(*models)
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
