"""Student's t distribution and the F distribution: probabilities and quantiles.

Source: Abramowitz and Stegun 1964, sections 26.5 and 26.7; the continued fraction of the incomplete
beta function is evaluated as in Lentz 1976.
"""

from __future__ import annotations

import math

_TINY = 1e-300
_MOST = 10_000
"""Maximum number of terms of the continued fraction."""


def two_sided(t: float, degrees: float) -> float:
    """Return the probability of a value at least as far from 0 as `t`.

    Args:
        t: value of the statistic.
        degrees: degrees of freedom, greater than 0; infinity gives the normal distribution.
    """
    if math.isinf(degrees):
        return math.erfc(abs(t) / math.sqrt(2))
    return _beta(degrees / 2, 0.5, degrees / (degrees + t * t))


def f_above(ratio: float, upper: float, lower: float) -> float:
    """Return the probability that a ratio of two variances is at least as large.

    Args:
        ratio: quotient of the variances, at least 0.
        upper: degrees of freedom of the numerator.
        lower: degrees of freedom of the denominator.
    """
    return _beta(lower / 2, upper / 2, lower / (lower + upper * ratio))


def quantile(probability: float, degrees: float) -> float:
    """Return the value below which the statistic lies with a probability.

    Args:
        probability: greater than 0 and less than 1.
        degrees: as for `two_sided`.
    """
    if probability < 0.5:  # noqa: PLR2004 - the distribution is symmetric
        return -quantile(1 - probability, degrees)
    outside, low, high = 2 * (1 - probability), 0.0, 1.0
    while two_sided(high, degrees) > outside:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if two_sided(middle, degrees) > outside else (low, middle)
    return (low + high) / 2


def _beta(a: float, b: float, x: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(scale + a * math.log(x) + b * math.log1p(-x))
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly
        return 1 - front * _fraction(b, a, 1 - x) / b
    return front * _fraction(a, b, x) / a


def _fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of the incomplete beta function."""
    c, d = 1.0, 1 / _nonzero(1 - (a + b) * x / (a + 1))
    found = d
    for m in range(1, _MOST):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _nonzero(1 + term * d)
            c = _nonzero(1 + term / c)
            found *= c * d
        if abs(c * d - 1) < 1e-15:  # noqa: PLR2004 - precision of floats
            break
    return found


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
