"""The maximal update parametrization of a run: initial weights and rates that follow its width.

How weights grow is in `graphs/passes/widths.py`; the rates that follow are those of each optimizer
(`OptimizerSettings.width_factor`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from ...data.settings import Settings
from .groups import WeightGroup

if TYPE_CHECKING:
    from ....graphs.passes.widths import WidthGrowth


class Mup(Settings):
    """Maximal update parametrization; Yang et al. 2022, https://arxiv.org/abs/2203.03466."""

    base: Annotated[dict[str, int], Field(min_length=1)]
    """Params of the model at the width where its rates were chosen, such as `{"d_model": 128,
    "heads": 2}`."""


class Parametrization(Settings):
    """How the initial weights and their rates follow the width of the model."""

    mup: Mup
    """Keeps the best rates of a narrow model in a wide one."""


def with_widths(
    groups: Sequence[WeightGroup], grown: Mapping[str, WidthGrowth]
) -> list[WeightGroup]:
    """Return groups of weights whose rates follow the width of the model.

    Args:
        groups: the groups.
        grown: how each weight grows.
    """
    return [
        replace(
            group,
            widths={
                path: group.optimizer.width_factor(grown[path])
                for path in group.weights
                if path in grown
            },
        )
        for group in groups
    ]
