"""Mixture weights: how often the pairs of each file occur in an epoch.

A file of weight w contributes w times its pairs: complete copies for the integer part of w,
and for the fraction a subset that changes every epoch, so that after E epochs each pair was
seen E w times, rounded down or up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class MixturePart(NamedTuple):
    """Consecutive pairs of a corpus that came from one file."""

    pairs: int
    weight: float


def rows_of_epoch(parts: Sequence[MixturePart], seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the rows of one epoch, with repetitions; a pure function of its arguments.

    Args:
        parts: parts of the corpus, in order.
        seed: decides which pairs belong to which epoch where a weight is fractional.
        epoch: counts from 0.
    """
    chosen, begin = [np.empty(0, dtype=np.int64)], 0
    for number, (pairs, weight) in enumerate(parts):
        copies = int(weight)
        chosen += [np.arange(begin, begin + pairs)] * copies
        share = pairs * (weight - copies)
        first, last = round(epoch * share), round((epoch + 1) * share)
        if last > first:
            order = np.random.default_rng((seed % (1 << 64), number)).permutation(pairs)
            chosen.append(begin + order[np.arange(first, last) % pairs])
        begin += pairs
    return np.concatenate(chosen)
