"""Systems that were trained with several seeds, and the variance over seeds that they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import fdtrc

from ....runtime.metrics.metric import Statistics

UNEQUAL = 0.1
"""Probability below which a larger variance over seeds of a pair is not taken for chance."""
OUTLYING = 0.01
"""Probability below which the largest variance over seeds of a study is an outlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A system: the values of a metric for each of its trainings."""

    name: str
    values: tuple[float, ...]
    """One value for each seed."""
    sums: tuple[Statistics, ...] = ()
    """Sums of each example for each seed, [N, K]; empty if the metric has none."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Variance over seeds with its degrees of freedom."""

    variance: float
    degrees: int


def own_spread(*systems: System) -> Spread:
    """Return the variance over seeds of some systems around their own means."""
    squares = 0.0
    for values in (np.array(system.values) for system in systems):
        squares += float(np.sum((values - values.mean()) ** 2))
    degrees = sum(len(system.values) - 1 for system in systems)
    return Spread(squares / degrees if degrees else 0.0, degrees)


@dataclass(frozen=True, slots=True)
class Pool:
    """The variance over seeds that the systems of a study have in common."""

    spread: Spread
    names: frozenset[str]
    """Systems that it is pooled over."""

    @classmethod
    def of(cls, systems: Sequence[System]) -> Pool:
        """Pool the variances of systems but for outliers."""
        pooled = list(systems)
        while (outlier := _outlier(pooled)) is not None:
            pooled = [system for system in pooled if system is not outlier]
        return cls(own_spread(*pooled), frozenset(system.name for system in pooled))

    def parts(self, *systems: System) -> list[tuple[Spread, float]]:
        """Return the variances of a sum or difference of means, each with its weight."""
        if all(system.name in self.names for system in systems):
            weight = sum(1 / len(system.values) for system in systems)
            return [(self._common(own_spread(*systems)), weight)]
        return [
            (self._common(spread) if system.name in self.names else spread, 1 / len(system.values))
            for system, spread in ((system, own_spread(system)) for system in systems)
        ]

    def _common(self, spread: Spread) -> Spread:
        """Return the pooled variance, or that of some of its systems if it is larger."""
        degrees = self.spread.degrees - spread.degrees
        if not spread.degrees or not degrees:
            return self.spread
        total = self.spread.variance * self.spread.degrees
        other_variance = (total - spread.variance * spread.degrees) / degrees
        if other_variance <= 0:
            return spread if spread.variance > 0 else self.spread
        larger = float(fdtrc(spread.degrees, degrees, spread.variance / other_variance)) < UNEQUAL
        return spread if larger else self.spread


def _outlier(systems: Sequence[System]) -> System | None:
    """Return the system with the largest variance over seeds if it is an outlier.

    Source: Cochran 1941, by the F distribution, as in ISO 5725-2, section 7.3.3.
    """
    several = [system for system in systems if len(system.values) > 1]
    if not several:
        return None
    largest = max(several, key=lambda system: own_spread(system).variance)
    alone, others = (
        own_spread(largest),
        own_spread(*(system for system in systems if system is not largest)),
    )
    if not others.variance:
        return None
    p = len(several) * float(fdtrc(alone.degrees, others.degrees, alone.variance / others.variance))
    return largest if p < OUTLYING else None
