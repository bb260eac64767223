"""Solve a param of a row so that its model is as large as the baseline's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....plugin import InputError
from ..procedure import Match

LARGEST = 1 << 24
"""Largest value of a param that is tried."""


@dataclass(frozen=True, slots=True)
class Solution:
    """A value of a param, and the size of the model with it."""

    value: int
    size: int
    target: int

    @property
    def difference(self) -> float:
        """Difference from the target size, as a fraction of it."""
        return self.size / self.target - 1 if self.target else float(self.size > 0)


def solve(match: Match, target: int, size_of: Callable[[int], int]) -> Solution:
    """Return the multiple with which a model comes closest to a size.

    The size must not decrease with the param.  Each size is computed once; the number of
    evaluations grows with the logarithm of the solution.

    Args:
        match: the param, and the multiple that its value must be.
        target: size of the baseline.
        size_of: size of the model by value of the param; it raises an InputError for a value that
            the model does not permit.

    Raises:
        InputError: the param does not change the size, or no value comes near.
    """
    step, sizes = match.multiple, dict[int, int]()

    def size(count: int) -> int:
        if count not in sizes:
            sizes[count] = size_of(count * step)
        return sizes[count]

    low, high = 1, 2
    while size(high) < target and high * step <= LARGEST:
        low, high = high, 2 * high
    if size(high) == size(1):
        raise InputError(
            f"'{match.param}' does not change the {_words(match)} of this row",
            help="match another param",
        )
    if size(low) < target:
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if size(middle) < target else (low, middle)
    else:
        high = low
    count = min((low, high), key=lambda number: (abs(size(number) - target), number))
    solution = Solution(count * step, size(count), target)
    if abs(solution.difference) > match.tolerance:
        raise InputError(
            f"no '{match.param}' that is a multiple of {step} gives {target:,} {_words(match)};"
            f" the nearest, {solution.value:,}, gives {solution.size:,}"
            f" ({solution.difference:+.1%})",
            help=("lower 'multiple', " if step > 1 else "")
            + "raise 'tolerance', match another param, or set \"match\": false in the row",
        )
    return solution


def _words(match: Match) -> str:
    words = {"decode_state": "bytes of decoding state", "flops": "FLOPs"}
    return words.get(match.quantity, match.quantity)
