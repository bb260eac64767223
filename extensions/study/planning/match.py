"""Solve a param of a row so that its model is as large as the baseline's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....specs.findings import InputError
from ..document.change import Match

LARGEST = 1 << 24
"""Largest value of a param that is tried."""


@dataclass(frozen=True, slots=True)
class Solution:
    """A value of a param, and the size of the model with it."""

    value: int
    size: int
    wanted: int

    @property
    def difference(self) -> float:
        """Difference from the wanted size, as a fraction of it."""
        return self.size / self.wanted - 1 if self.wanted else float(self.size > 0)


def solve(match: Match, wanted: int, size_of: Callable[[int], int]) -> Solution:
    """Return the multiple with which a model comes closest to a size.

    The size must not decrease with the param.  Each size is computed once; the number of
    evaluations grows with the logarithm of the solution.

    Args:
        match: the param, and the multiple that its value must be.
        wanted: size of the baseline.
        size_of: size of the model by value of the param; it raises an InputError for a value that
            the model does not permit.

    Raises:
        InputError: the param does not change the size, or no value comes near.
    """
    step, known = match.multiple, dict[int, int]()

    def size(count: int) -> int:
        if count not in known:
            known[count] = size_of(count * step)
        return known[count]

    low, high = 1, 2
    while size(high) < wanted and high * step <= LARGEST:
        low, high = high, 2 * high
    if size(high) == size(1):
        raise InputError(
            f"'{match.param}' does not change the {_words(match)} of this row",
            help="match another param",
        )
    if size(low) < wanted:
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if size(middle) < wanted else (low, middle)
    else:
        high = low
    count = min((low, high), key=lambda one: (abs(size(one) - wanted), one))
    found = Solution(count * step, size(count), wanted)
    if abs(found.difference) > match.tolerance:
        raise InputError(
            f"no '{match.param}' that is a multiple of {step} gives {wanted:,} {_words(match)};"
            f" the nearest, {found.value:,}, gives {found.size:,} ({found.difference:+.1%})",
            help=("lower 'multiple', " if step > 1 else "")
            + "raise 'tolerance', match another param, or set \"match\": false in the row",
        )
    return found


def _words(match: Match) -> str:
    words = {"decode_state": "bytes of decoding state", "flops": "FLOPs"}
    return words.get(match.quantity, match.quantity)
