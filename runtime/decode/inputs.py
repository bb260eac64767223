"""Inputs of the models that a search decodes: what fills them, and the lengths that they take.

Learned positions end, and axes such as `4*S` need padding.

Axes: N sentences, S positions of the sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from ...graphs.ir.traverse import position_limits
from ...graphs.ir.value_type import ValueType
from ...specs.findings import InputError
from ..codegen.generated import program_of
from ..data.columns.column_settings import BATCH
from ..data.columns.fitting import Fitting

_TEXTS = {
    name: ValueType(kind, (BATCH, side))
    for side in ("source", "target")
    for name, kind in ((side, "ids"), (f"{side}_mask", "mask"))
}
"""Inputs of a model that reads a text `source` and writes a text `target`."""


class Inputs(Protocol):
    """What fills the inputs of a model that a search decodes."""

    @property
    def written(self) -> str:
        """Input of the ids that the search writes."""

    @property
    def written_masks(self) -> tuple[str, ...]:
        """Masks of these ids."""

    def fixed(
        self, source_NS: Tensor, mask_NS: Tensor, others: Sequence[Mapping[str, Any]]
    ) -> dict[str, Tensor]:
        """Return the inputs that do not depend on what is written.

        Args:
            source_NS: ids of the sources, with end tokens and padding.
            mask_NS: which of them are not padding.
            others: for each sentence, encoded values of further columns by name.
        """


@dataclass(frozen=True, slots=True)
class UsualInputs:
    """Inputs by their usual names: `source` with `source_mask`, and `target`, which is written."""

    written: str = "target"
    written_masks: tuple[str, ...] = ("target_mask",)

    def fixed(
        self,
        source_NS: Tensor,
        mask_NS: Tensor,
        others: Sequence[Mapping[str, Any]],  # noqa: ARG002 - there are none
    ) -> dict[str, Tensor]:
        """Return the source and its mask."""
        return {"source": source_NS, "source_mask": mask_NS}


def positions_of(*models: nn.Module) -> int | None:
    """Return the number of positions that every sequence of models may have; None if unlimited.

    Nothing is known of a model that Weft did not build: it counts as unlimited.
    """
    limits = list[int]()
    for model in models:
        with suppress(InputError):
            limits += position_limits(program_of(model).graph)
    return min(limits, default=None)


def fitting_of(model: nn.Module) -> Fitting:
    """Return what a model requires of the lengths of its source and target.

    Nothing is known of a model that Weft did not build: every length fits it.
    """
    try:
        return Fitting.of(program_of(model).graph, _TEXTS)
    except InputError:
        return Fitting()


def longest_source(most: int, positions: int | None) -> int:
    """Return the number of tokens that a source may have, without its end token.

    Args:
        most: the number for models without a limit.
        positions: number of positions of the models; None if unlimited.
    """
    return most if positions is None else min(most, positions - 1)


def refuse_long(
    models: Sequence[nn.Module],
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]],
    start: int = 0,
) -> None:
    """Raise an error for the first pair that has more tokens than models have positions.

    Args:
        models: built models.
        pairs: ids of sources and targets, without end tokens.
        start: number of pairs before these.

    Raises:
        InputError: a pair is too long.
    """
    most = positions_of(*models)
    if most is None:
        return
    for number, pair in enumerate(pairs, start + 1):
        for side, ids in zip(("source", "target"), pair, strict=True):
            if len(ids) + 1 > most:
                raise InputError(
                    f"the {side} has {len(ids) + 1} tokens, end token included, but the model has"
                    f" {most} positions",
                    location=f"pair {number}",
                    help="shorten it, or leave the pair out",
                )
