"""Resampling of examples: confidence intervals of metrics, and paired tests of two systems.

Source: Efron 1979; for machine translation: Koehn 2004 (paired bootstrap), Riezler and Maxwell 2005
(approximate randomization).  For one pair of systems, the tests are those of sacreBLEU (Post 2018):
with the same random numbers, they give the same probabilities.  The only difference is that trials
equal to the observation count as beyond it, without which equal outputs would differ, and metrics
with few values, such as accuracy, would give false alarms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ...specs.findings import InputError
from .metric import Statistics

SAMPLES = 1000
"""Default number of resampled corpora."""
TRIALS = 10_000
"""Default number of trials of approximate randomization."""
SEED = 12345
"""Default seed, which is sacreBLEU's."""
_LARGEST = 20_000_000
"""Maximum number of entries of a matrix of random numbers; more are drawn in several blocks."""
_EQUAL = 1e-9
"""Differences that differ by less are equal: sums in another order are rounded differently."""

Value = Callable[[NDArray[np.float64]], float]
"""The value of a metric for a total of sums: `SumMetric.value_of`."""


def resampled(
    systems: Sequence[Statistics], value_of: Value, *, samples: int = SAMPLES, seed: int = SEED
) -> NDArray[np.float64]:
    """Return the values of systems on corpora that are resampled with replacement.

    All systems get the same examples of each resampled corpus, so differences are paired.

    Args:
        systems: the sums of each example for each system, [N, K].
        value_of: value of the metric for a total, [K].
        samples: number of resampled corpora.
        seed: seed of the random numbers.

    Returns:
        Values, [systems, samples].

    Raises:
        InputError: there are no examples, or systems have different ones.
    """
    count = _count(systems)
    widths = np.cumsum([system.shape[1] for system in systems])[:-1]
    joined = np.concatenate(systems, axis=1)
    generator, values = np.random.default_rng(seed), np.empty((len(systems), samples))
    step = max(1, _LARGEST // count)
    for start in range(0, samples, step):
        drawn = generator.integers(count, size=(min(step, samples - start), count))
        times = np.stack([np.bincount(row, minlength=count) for row in drawn]).astype(np.float64)
        totals = np.split(times @ joined, widths, axis=1)
        for number, chunk in enumerate(totals):
            values[number, start : start + len(chunk)] = [value_of(total) for total in chunk]
    return values


def bootstrap_interval(
    statistics: Statistics,
    value_of: Value,
    *,
    level: float = 0.95,
    samples: int = SAMPLES,
    seed: int = SEED,
) -> tuple[float, float]:
    """Return the percentile interval of a metric that is a function of sums over examples.

    Args:
        statistics: the sums of each example, [N, K].
        value_of: the value for a total, [K]: `SumMetric.value_of`.
        level: probability of the interval.
        samples: number of resampled corpora.
        seed: seed of the random numbers.

    Raises:
        InputError: there are no examples, or `level` is not a probability.
    """
    count = len(statistics)
    if not count or samples < 1 or not 0 < level < 1:
        raise InputError(
            f"no interval at level {level:g} from {count} examples and {samples} samples",
            help="give examples, at least one sample and a level between 0 and 1",
        )
    [values] = resampled([statistics], value_of, samples=samples, seed=seed)
    return percentiles(values, level)


def percentiles(values: NDArray[np.float64], level: float) -> tuple[float, float]:
    """Return the bounds between which resampled values lie with a probability."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def approximate_randomization(
    baseline: Statistics,
    other: Statistics,
    value_of: Value,
    *,
    trials: int = TRIALS,
    seed: int = SEED,
) -> float:
    """Return the probability of a difference as large as the observed one if labels do not matter.

    Each trial exchanges the outputs of the systems on a random half of the examples.

    Args:
        baseline: sums of each example for one system, [N, K].
        other: those of the other system, on the same examples.
        value_of: value of the metric for a total, [K].
        trials: number of trials.
        seed: seed of the random numbers.

    Raises:
        InputError: as for `resampled`.
    """
    count = _count([baseline, other])
    observed = abs(value_of(other.sum(0)) - value_of(baseline.sum(0)))
    generator, beyond = np.random.default_rng(seed), 0
    gain, total, step = baseline - other, baseline.sum(0) + other.sum(0), max(1, _LARGEST // count)
    for start in range(0, trials, step):
        chosen = generator.integers(2, size=(min(step, trials - start), count), dtype=bool)
        first = chosen.astype(np.float64) @ gain + other.sum(0)
        for resample in first:
            beyond += abs(value_of(resample) - value_of(total - resample)) >= observed - _EQUAL
    return (beyond + 1) / (trials + 1)


def _count(systems: Sequence[Statistics]) -> int:
    """Return the number of examples.

    Raises:
        InputError: there are none, or systems have different numbers.
    """
    counts = {len(system) for system in systems}
    if len(counts) != 1 or not min(counts):
        numbers = " and ".join(f"{count:,}" for count in sorted(counts)) or "no"
        raise InputError(
            f"systems cannot be compared on {numbers} examples",
            help="measure all systems on the same examples, of which there is at least one",
        )
    return counts.pop()
