"""Confidence intervals of metrics by the bootstrap: resample examples with replacement.

Source: Efron 1979; for machine translation: Koehn 2004.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...specs.findings import InputError
from .metric import Statistics

SAMPLES = 1000
"""Default number of resampled corpora."""


def bootstrap_interval(
    statistics: Statistics,
    value_of: Callable[[NDArray[np.float64]], float],
    *,
    level: float = 0.95,
    samples: int = SAMPLES,
    seed: int = 1,
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
    generator = np.random.default_rng(seed)
    values = np.empty(samples)
    for place in range(samples):
        times = np.bincount(generator.integers(count, size=count), minlength=count)
        values[place] = value_of(times @ statistics)
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
