"""Mixtures: how often the rows of each source occur in an epoch, by stages of the training.

A source of weight w contributes w times its rows: complete copies for the integer part of w,
and for the fraction a subset that changes every epoch, so that after E epochs each row was
seen E w times, rounded down or up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ....specs.findings import InputError, pointer

if TYPE_CHECKING:
    from ..settings import Stage

Weights = Sequence[tuple[int, float]]
"""Rows and weight of each source; empty if every row occurs once in every epoch."""


class MixtureStage(NamedTuple):
    """Updates of a training that draw from the same mixture."""

    updates: int | None = None
    """Number of updates; None if they do not end."""
    weights: Weights = ()
    begins: bool = False
    """Whether the first update begins a new epoch."""


def weights_of(stage: Stage, sources: Mapping[str, int]) -> Weights:
    """Return the rows and the weight of each source in a stage.

    With a temperature T, a source of n rows has a share of the epoch that is proportional to
    n^(1/T), and an epoch has as many rows as the sources together.

    Args:
        stage: the stage.
        sources: rows of each source.

    >>> from ..settings import Stage
    >>> weights_of(Stage(temperature=2.0), {"large": 900, "small": 100})
    [(900, 0.8333333333333334), (100, 2.5)]
    """
    if stage.temperature is None:
        return [(rows, stage.weights.get(name, 1.0)) for name, rows in sources.items()]
    powers = {name: rows ** (1 / stage.temperature) for name, rows in sources.items()}
    epoch, total = sum(sources.values()), sum(powers.values())
    return [(rows, epoch * powers[n] / total / max(rows, 1)) for n, rows in sources.items()]


def ends_of(stages: Sequence[Stage], updates: int) -> list[int | None]:
    """Return the last update of each stage; None for the last stage.

    Args:
        stages: the stages; shares of the training end at the nearest update.
        updates: updates of the training.
    """
    return [
        None if until is None else round(until * updates) if until < 1 else int(until)
        for until in (stage.until for stage in stages)
    ]


def described(
    stages: Sequence[Stage], sources: Collection[str], updates: int
) -> list[dict[str, Any]]:
    """Return the first and the last update of each stage, and its weights or temperature, as JSON.

    Args:
        stages: settings of the stages.
        sources: names of the sources.
        updates: updates of the training.
    """
    listed, begin = list[dict[str, Any]](), 0
    for stage, end in zip(stages, ends_of(stages, updates), strict=True):
        last = updates if end is None else min(end, updates)
        warm = stage.temperature is not None
        listed.append(
            {
                "updates": [begin + 1, last],
                "weights": {} if warm else {name: stage.weights.get(name, 1.0) for name in sources},
                "temperature": stage.temperature,
            }
        )
        begin = last
    return listed


def stages_of(
    stages: Sequence[Stage], sources: Mapping[str, int], updates: int, done: int = 0
) -> list[MixtureStage]:
    """Return the stages that are left of a training, with the weights of its sources.

    Args:
        stages: settings of all stages; without any, every row occurs once in an epoch.
        sources: rows of each source.
        updates: updates of the training.
        done: updates that are done.

    Raises:
        InputError: an epoch of a stage has less than one row.
    """
    all_weights = [weights_of(stage, sources) for stage in stages]
    for number, weights in enumerate(all_weights):
        if sum(rows * weight for rows, weight in weights) < 1:
            raise InputError(
                "the weights of the sources give an epoch less than one row",
                location=f"#{pointer('data', 'mixture', number, 'weights')}",
                help="increase the weights",
            )
    begin, remaining = 0, list[MixtureStage]()
    for end, weights in zip(ends_of(stages, updates), all_weights, strict=True):
        if end is None or end > done:
            count = None if end is None else end - max(begin, done)
            remaining.append(MixtureStage(count, weights, begins=begin > 0 and begin >= done))
        begin = end or 0
    return remaining or [MixtureStage()]
