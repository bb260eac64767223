"""Numbers as text: losses and scores of any magnitude, and durations."""

from __future__ import annotations

_THOUSAND = 1_000
_HOUR = 3600.0


def significant(value: float) -> str:
    """Return a number with three significant digits, or as a whole number from 1,000 on.

    Losses have any magnitude: the mean squared error of small targets is not 0.000.

    >>> significant(5.4321), significant(2), significant(0.00041234), significant(123.456)
    ('5.43', '2.00', '0.000412', '123')
    >>> significant(12345.6), significant(0.0), significant(float("inf"))
    ('12,346', '0.00', 'inf')
    """
    if abs(value) < _THOUSAND and abs(float(f"{value:.2e}")) < _THOUSAND:
        return f"{value:#.3g}".removesuffix(".")
    return f"{value:,.0f}"


def duration(seconds: float) -> str:
    """Return a duration in the largest fitting unit.

    >>> duration(42), duration(600), duration(9000)
    ('42 s', '10.0 min', '2.5 h')
    """
    if seconds < 2 * 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 2 * _HOUR else f"{seconds / _HOUR:.1f} h"


def aligned(value: float, decimals: int, *, sign: bool = False) -> str:
    """Return a number with some decimals, and more where they would not show three digits.

    Args:
        value: the number.
        decimals: least number of its decimals.
        sign: whether a positive number begins with `+`, as a difference does.

    >>> aligned(31.42, 4), aligned(0.00001234, 4), aligned(-0.25, 4), aligned(0.0, 4)
    ('31.4200', '1.23e-05', '-0.2500', '0.0000')
    >>> aligned(0.00123, 4, sign=True)
    '+0.00123'
    """
    short = not 0 < abs(value) < 10.0 ** (2 - decimals)
    text = f"{value:.{decimals}f}" if short else significant(value)
    return f"+{text}" if sign and not text.startswith("-") else text
