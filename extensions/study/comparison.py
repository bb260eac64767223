"""Systems that were trained with several seeds, and the variance over seeds that they share."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import scipy  # scipy.special is loaded when it is used
from numpy.typing import NDArray

from ...plugin import Statistics
from ...runtime.metrics.bootstrap import (
    SAMPLES,
    SEED,
    Value,
    approximate_randomization,
    percentiles,
    resampled,
)

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
class _Spread:
    """Variance over seeds with its degrees of freedom."""

    variance: float
    degrees: int


def _own_spread(*systems: System) -> _Spread:
    """Return the variance over seeds of some systems around their own means."""
    squares = 0.0
    for values in (np.array(system.values) for system in systems):
        squares += float(np.sum((values - values.mean()) ** 2))
    degrees = sum(len(system.values) - 1 for system in systems)
    return _Spread(squares / degrees if degrees else 0.0, degrees)


@dataclass(frozen=True, slots=True)
class _Pool:
    """The variance over seeds that the systems of a study have in common."""

    spread: _Spread
    names: frozenset[str]
    """Systems that it is pooled over."""

    @classmethod
    def of(cls, systems: Sequence[System]) -> _Pool:
        """Pool the variances of systems but for outliers."""
        pooled = list(systems)
        while (outlier := _outlier(pooled)) is not None:
            pooled = [system for system in pooled if system is not outlier]
        return cls(_own_spread(*pooled), frozenset(system.name for system in pooled))

    def parts(self, *systems: System) -> list[tuple[_Spread, float]]:
        """Return the variances of a sum or difference of means, each with its weight."""
        if all(system.name in self.names for system in systems):
            weight = sum(1 / len(system.values) for system in systems)
            return [(self._common(_own_spread(*systems)), weight)]
        return [
            (self._common(spread) if system.name in self.names else spread, 1 / len(system.values))
            for system, spread in ((system, _own_spread(system)) for system in systems)
        ]

    def _common(self, spread: _Spread) -> _Spread:
        """Return the pooled variance, or that of some of its systems if it is larger."""
        degrees = self.spread.degrees - spread.degrees
        if not spread.degrees or not degrees:
            return self.spread
        total = self.spread.variance * self.spread.degrees
        other_variance = (total - spread.variance * spread.degrees) / degrees
        if other_variance <= 0:
            return spread if spread.variance > 0 else self.spread
        larger = (
            float(scipy.special.fdtrc(spread.degrees, degrees, spread.variance / other_variance))
            < UNEQUAL
        )
        return spread if larger else self.spread


def _outlier(systems: Sequence[System]) -> System | None:
    """Return the system with the largest variance over seeds if it is an outlier.

    Source: Cochran 1941, by the F distribution, as in ISO 5725-2, section 7.3.3.
    """
    several = [system for system in systems if len(system.values) > 1]
    if not several:
        return None
    largest = max(several, key=lambda system: _own_spread(system).variance)
    alone, others = (
        _own_spread(largest),
        _own_spread(*(system for system in systems if system is not largest)),
    )
    if not others.variance:
        return None
    p = len(several) * float(
        scipy.special.fdtrc(alone.degrees, others.degrees, alone.variance / others.variance)
    )
    return largest if p < OUTLYING else None


Verdict = Literal["better", "worse", "not distinguishable", "not tested"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSummary:
    """Mean and spread of a system."""

    name: str
    mean: float
    spread: float | None
    """Standard deviation over seeds; None for one seed."""
    low: float | None
    high: float | None
    """Interval of the mean over seeds and examples; None if it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The difference between two systems."""

    baseline: str
    other: str
    difference: float
    """Mean of the other minus mean of the baseline."""
    low: float | None
    high: float | None
    """Interval of the difference, without correction for several comparisons."""
    p: float | None
    """Probability of a difference as large if there were none; None if it cannot be tested."""
    adjusted: float | None
    """`p` with the correction of Holm 1979 for all comparisons of the family."""
    verdict: Verdict
    detectable: float | None
    """Smallest difference that would have been found with the wanted power, by estimate.

    None if it is unknown, as where nothing varies: the systems may have the same predictions.
    """
    test: str
    """The test, in words."""

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Means over seeds on resampled examples, and their variance that comes from the seeds."""

    values: NDArray[np.float64]
    of_seeds: float

    def __sub__(self, other: _Drawn) -> _Drawn:
        return _Drawn(self.values - other.values, self.of_seeds + other.of_seeds)

    @property
    def variance(self) -> float:
        """Variance that comes from the choice of the examples alone."""
        return max(0.0, float(self.values.var(ddof=1)) - self.of_seeds)


def summaries(
    systems: Sequence[System],
    value_of: Value | None,
    *,
    level: float = 0.95,
    samples: int = SAMPLES,
    seed: int = SEED,
) -> list[RowSummary]:
    """Return mean, spread and interval of each system.

    Args:
        systems: the systems.
        value_of: value of the metric for a total of sums; None if it has none.
        level: probability of intervals.
        samples: number of resampled corpora.
        seed: seed of the random numbers.

    Raises:
        InputError: systems were measured on different examples.
    """
    finite, rows = _finite(systems), []
    names = {system.name for system in finite}
    pool, means = _Pool.of(finite), _resampled_means(finite, value_of, samples, seed)
    for system in systems:
        mean = float(np.mean(system.values))
        if system.name not in names:
            rows.append(RowSummary(name=system.name, mean=mean, spread=None, low=None, high=None))
            continue
        estimate = _own_spread(system)
        spread = math.sqrt(estimate.variance) if estimate.degrees else None
        low = high = None
        drawn = means.get(system.name)
        if not pool.spread.degrees:
            if drawn is not None:
                low, high = percentiles(drawn.values, level)
        else:
            low, high = _bounds(mean, pool.parts(system), drawn, system, level)
        rows.append(RowSummary(name=system.name, mean=mean, spread=spread, low=low, high=high))
    return rows


def compare(
    systems: Sequence[System],
    pairs: Sequence[tuple[str, str]],
    value_of: Value | None,
    *,
    higher_is_better: bool = True,
    level: float = 0.95,
    power: float = 0.8,
    samples: int = SAMPLES,
    seed: int = SEED,
) -> list[Comparison]:
    """Return the comparisons of pairs of systems, corrected as one family.

    Args:
        systems: all systems of the study, whose spread over seeds is pooled.
        pairs: names of a baseline and of another system.
        value_of: value of the metric for a total of sums; None if it has none.
        higher_is_better: whether a higher value is better.
        level: probability of intervals; `1 - level` bounds the probability of any false alarm.
        power: probability with which a difference of `detectable` would be found.
        samples: number of resampled corpora.
        seed: seed of the random numbers.

    Raises:
        InputError: systems were measured on different examples.
    """
    by_name = {system.name: system for system in systems}
    finite = {system.name: system for system in _finite(systems)}
    pool = _Pool.of([*finite.values()])
    means = _resampled_means([*finite.values()], value_of, samples, seed)
    first = (1 - level) / max(1, sum(a in finite and b in finite for a, b in pairs))
    comparisons = [
        _pair(by_name[a], by_name[b], pool, means, value_of, (level, first, power, seed))
        if a in finite and b in finite
        else _untested(by_name[a], by_name[b])
        for a, b in pairs
    ]
    adjusted = holm([comparison.p for comparison in comparisons])
    return [
        replace(
            comparison,
            adjusted=p,
            verdict=verdict_of(comparison.difference, p, 1 - level, higher_is_better),
        )
        for comparison, p in zip(comparisons, adjusted, strict=True)
    ]


def all_pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return each pair of names once."""
    return list(itertools.combinations(names, 2))


def holm(probabilities: Sequence[float | None]) -> list[float | None]:
    """Return probabilities corrected for their number; None stays None.

    Source: Holm 1979.

    >>> holm([0.01, 0.04, None, 0.03])
    [0.03, 0.06, None, 0.06]
    """
    ordered = sorted((p, number) for number, p in enumerate(probabilities) if p is not None)
    adjusted: list[float | None] = [None] * len(probabilities)
    largest = 0.0
    for rank, (p, number) in enumerate(ordered):
        largest = max(largest, min(1.0, p * (len(ordered) - rank)))
        adjusted[number] = largest
    return adjusted


def verdict_of(
    difference: float,
    adjusted: float | None,
    most: float,
    higher_is_better: bool,  # noqa: FBT001 - the last of four that all callers give
) -> Verdict:
    """Return the verdict on a difference with a corrected p-value.

    Args:
        difference: mean of the other minus mean of the baseline.
        adjusted: corrected p-value; None if it could not be tested.
        most: largest p-value of a difference that is found.
        higher_is_better: whether a higher value is better.
    """
    if adjusted is None:
        return "not tested"
    if adjusted > most:
        return "not distinguishable"
    return "better" if (difference > 0) == higher_is_better else "worse"


def _finite(systems: Sequence[System]) -> list[System]:
    """Return the systems of which every value and every sum is finite."""
    return [
        system
        for system in systems
        if all(map(math.isfinite, system.values))
        and all(bool(np.isfinite(sums).all()) for sums in system.sums)
    ]


def _resampled_means(
    systems: Sequence[System], value_of: Value | None, samples: int, seed: int
) -> dict[str, _Drawn]:
    """Return the mean over seeds of each system on resampled examples; empty without sums."""
    if value_of is None or not systems or not all(system.sums for system in systems):
        return {}
    flat = [sums for system in systems for sums in system.sums]
    values = resampled(flat, value_of, samples=samples, seed=seed)
    drawn, start = {}, 0
    for system in systems:
        estimates = values[start : start + len(system.sums)]
        drawn[system.name] = _Drawn(estimates.mean(0), _of_seeds(estimates))
        start += len(system.sums)
    return drawn


def _of_seeds(values: NDArray[np.float64]) -> float:
    """Return the variance of a resampled mean that comes from differences between the seeds.

    Args:
        values: values of one system by seed and resampled corpus.
    """
    seeds = len(values)
    if seeds == 1:
        return 0.0
    residuals = (values - values.mean(0)).var(1, ddof=1).sum() / (seeds - 1)
    return float(residuals) / seeds


_Settings = tuple[float, float, float, int]
"""Level of intervals, level of the first step of Holm's correction, power, and seed."""


def _pair(
    baseline: System,
    other: System,
    pool: _Pool,
    means: Mapping[str, _Drawn],
    value_of: Value | None,
    settings: _Settings,
) -> Comparison:
    """Return the comparison of a pair, without correction."""
    level, first, power, seed = settings
    difference = float(np.mean(other.values) - np.mean(baseline.values))
    drawn = means[other.name] - means[baseline.name] if means else None
    parts = pool.parts(baseline, other)
    p = low = high = detectable = None
    if all(spread.degrees for spread, _ in parts):
        error, degrees = _error(parts, drawn, baseline)
        p = _probability(difference, error, degrees)
        width = float(scipy.special.stdtrit(degrees, (1 + level) / 2)) * error
        low, high = difference - width, difference + width
        detectable = (
            float(
                scipy.special.stdtrit(degrees, 1 - first / 2)
                + scipy.special.stdtrit(degrees, power)
            )
            * error
        )
        seeds = f"{len(baseline.values)} and {len(other.values)} seeds"
        over = "" if drawn is None else f" and {len(baseline.sums[0]):,} examples"
        test = f"t test over {seeds}{over}, {degrees:.1f} degrees of freedom"
    elif drawn is not None and value_of is not None:
        pair = baseline.sums[0], other.sums[0]
        p = approximate_randomization(*pair, value_of, seed=seed)
        low, high = percentiles(drawn.values, level)
        error = float(drawn.values.std(ddof=1))
        detectable = float(scipy.special.ndtri(1 - first / 2) + scipy.special.ndtri(power)) * error
        test = f"approximate randomization over {len(baseline.sums[0]):,} examples, one seed"
    else:
        test = "none: one seed, and a metric without sums over examples"
    return Comparison(
        baseline=baseline.name,
        other=other.name,
        difference=difference,
        low=low,
        high=high,
        p=p,
        adjusted=p,
        verdict="not tested",
        detectable=None if _alike(baseline, other) else detectable or None,
        test=test,
    )


def _alike(baseline: System, other: System) -> bool:
    """Return whether two systems have the same sums for each example, seed by seed."""
    pairs = zip(baseline.sums, other.sums, strict=False)
    same = len(baseline.sums) == len(other.sums) > 0
    return same and all(np.array_equal(array, its) for array, its in pairs)


def _untested(baseline: System, other: System) -> Comparison:
    """Return the comparison of a pair of which a value is not finite."""
    return Comparison(
        baseline=baseline.name,
        other=other.name,
        difference=float(np.mean(other.values)) - float(np.mean(baseline.values)),
        low=None,
        high=None,
        p=None,
        adjusted=None,
        verdict="not tested",
        detectable=None,
        test="none: a value is not finite",
    )


def _error(
    parts: Sequence[tuple[_Spread, float]], drawn: _Drawn | None, system: System
) -> tuple[float, float]:
    """Return the standard error over seeds and examples, and its degrees of freedom."""
    seeds = [(spread.variance * weight, spread.degrees) for spread, weight in parts]
    examples = 0.0 if drawn is None else drawn.variance
    total = sum(variance for variance, _ in seeds) + examples
    if not total:
        return 0.0, float(sum(degrees for _, degrees in seeds))
    weights = sum(variance**2 / degrees for variance, degrees in seeds)
    if drawn is not None:
        weights += examples**2 / max(1, len(system.sums[0]) - 1)
    return math.sqrt(total), total**2 / weights


def _probability(difference: float, error: float, degrees: float) -> float:
    if not error:
        return 1.0 if not difference else 0.0
    return float(2 * scipy.special.stdtr(degrees, -abs(difference) / error))


def _bounds(
    mean: float,
    parts: Sequence[tuple[_Spread, float]],
    drawn: _Drawn | None,
    system: System,
    level: float,
) -> tuple[float, float]:
    """Return the interval of a mean."""
    error, degrees = _error(parts, drawn, system)
    width = float(scipy.special.stdtrit(degrees, (1 + level) / 2)) * error
    return mean - width, mean + width
