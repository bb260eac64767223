"""Comparisons of a study that looks at its results several times, and adds seeds in between.

The error of a study, `1 - level`, is divided among its looks before anything trains.  A comparison
is rejected at the first look whose p-value is within its share, which is valid for any dependence
between looks and for any reason to stop (Bonferroni's inequality); the smallest p-value over its
share is therefore a p-value, and Holm's correction over the rows holds for these as for others.
Intervals have the level of their look, so that those of all looks hold together.

Source: Lan & DeMets 1983 for shares by a spending function; O'Brien & Fleming 1979 for the one that
spends little at first; Jennison & Turnbull 1989 for repeated intervals.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import scipy  # scipy.special is loaded when it is used

from ..comparison import Comparison, holm, verdict_of
from ..procedure import Sequential


def shares_of(looks: Sequence[int], error: float, spending: str) -> list[float]:
    """Return the share of the error of each look; they sum to 1.

    Args:
        looks: number of seeds at each look, the last one the most.
        error: probability of any false alarm, between 0 and 1.
        spending: `obrien_fleming` or `equal`.
    """
    if spending == "equal":
        return [1 / len(looks)] * len(looks)
    quantile = float(scipy.special.ndtri(1 - error / 2))
    spent = [0.0] + [
        2 * float(scipy.special.ndtr(-quantile / math.sqrt(look / looks[-1]))) / error
        for look in looks
    ]
    return [after - before for before, after in itertools.pairwise(spent)]


def combined(
    looks: Sequence[Sequence[Comparison]],
    shares: Sequence[float],
    *,
    level: float,
    higher_is_better: bool,
) -> list[Comparison]:
    """Return the comparisons of several looks as one family.

    A comparison has the difference and the interval of its last look.

    Args:
        looks: comparisons of each look; those of later looks are some of the first one's.
        shares: share of the error of each look.
        level: 1 - probability of any false alarm.
        higher_is_better: whether a higher value is better.
    """
    last: dict[tuple[str, str], Comparison] = {}
    best: dict[tuple[str, str], tuple[float, float]] = {}
    for comparisons, share in zip(looks, shares, strict=False):
        for comparison in comparisons:
            pair = (comparison.baseline, comparison.other)
            last[pair] = comparison
            if comparison.p is not None:
                p = min(1.0, comparison.p / share)
                best[pair] = min(best.get(pair, (math.inf, 0.0)), (p, comparison.difference))
    values = [best[pair][0] if pair in best else None for pair in last]
    return [
        replace(
            comparison,
            p=p,
            adjusted=adjusted,
            verdict=verdict_of(
                best[pair][1] if pair in best else 0.0, adjusted, 1 - level, higher_is_better
            ),
        )
        for (pair, comparison), p, adjusted in zip(last.items(), values, holm(values), strict=True)
    ]


def open_pairs(comparisons: Sequence[Comparison], settings: Sequential) -> list[Comparison]:
    """Return the comparisons that need more seeds.

    Args:
        comparisons: those of the looks so far.
        settings: when a comparison needs no more.
    """
    return [comparison for comparison in comparisons if not _closed(comparison, settings)]


def _closed(comparison: Comparison, settings: Sequential) -> bool:
    """Return whether a comparison needs no more seeds."""
    if settings.decided and comparison.verdict in ("better", "worse"):
        return True
    low, high = comparison.low, comparison.high
    if low is None or high is None:  # a value that is not finite is not repaired by more seeds
        return True
    return settings.width is not None and high - low <= settings.width


def words_of(looks: Sequence[int], done: int, settings: Any) -> str:
    """Return how seeds were added, in a sentence.

    Args:
        looks: numbers of seeds at the looks of the schedule.
        done: number of looks that took place.
        settings: the settings of the study.
    """
    spending = {
        "obrien_fleming": "in shares as by O'Brien and Fleming",
        "equal": "in equal shares",
    }[settings.spending]
    taken = ", ".join(map(str, looks[:done])) or "no"
    return (
        f"Seeds were added as scheduled (looks after {', '.join(map(str, looks))} seeds, of which"
        f" those after {taken} took place); the error is spent {spending}, and p-values and"
        " intervals are corrected for all looks."
    )
