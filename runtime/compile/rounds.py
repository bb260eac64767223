"""Comparison of kernels that compute the same: timed in turns, until the result is settled.

The speed of a machine changes while kernels are timed, so kernels are timed in turns, and compared
by the ratio of their times in the same round.  Rounds are repeated until the interval of the median
ratio decides, and kept, so that another process goes on where this one stopped.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

GAIN = 1.05
"""Speedup over the default kernel below which another kernel is not chosen."""
SAME = 1.1
"""Ratio of times below which it does not matter which of two kernels is chosen."""
LEVEL = 0.95
"""Confidence of the interval of a median ratio."""
LEAST = 6
"""Rounds after which `LEVEL` can be reached: the sign test has p = 2 / 2**6 = 0.03."""
MOST = 120
"""Rounds after which a comparison ends, although it is not settled."""
SECONDS = 3.0
"""Seconds after which this process stops a comparison that is not settled."""


class Ratio(NamedTuple):
    """Median of the ratios of two times, with its interval."""

    low: float
    median: float
    high: float

    def __str__(self) -> str:
        """Return a text such as `1.52 [1.47, 1.60]`."""
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(slots=True)
class Comparison:
    """Times of kernels that compute the same."""

    what: str
    """What they compute, such as `attention at 32`."""
    default: str
    """The kernel that is used if none is faster."""
    seconds: dict[str, list[float]] = field(default_factory=dict)
    """Times of each kernel, one for each round."""

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return min(map(len, self.seconds.values()), default=0)

    def gain(self, kernel: str, over: str) -> Ratio:
        """Return how many times as fast as another kernel a kernel is.

        The interval is that of the sign test, which assumes nothing about the distribution.
        """
        times = zip(self.seconds[over], self.seconds[kernel], strict=True)
        ratios = sorted(slow / fast for slow, fast in times)
        rank = _rank(len(ratios))
        return Ratio(ratios[rank], statistics.median(ratios), ratios[-1 - rank])

    @property
    def best(self) -> str:
        """The kernel with the smallest median time other than the default, if there is one."""
        others = [name for name in self.seconds if name != self.default]
        if not others:
            return self.default
        return min(others, key=lambda name: statistics.median(self.seconds[name]))

    @property
    def choice(self) -> str:
        """The fastest kernel, if it is certainly faster than the default by `GAIN`."""
        best = self.best
        certain = self.rounds >= LEAST and self.gain(best, self.default).low >= GAIN
        return best if certain else self.default

    @property
    def is_settled(self) -> bool:
        """Whether more rounds would not change the choice, or are not worth their time."""
        if self.rounds < LEAST:
            return False
        if self.rounds >= MOST:
            return True
        best = self.best
        gain = self.gain(best, self.default)
        if gain.high < GAIN:
            return True
        others = [name for name in self.seconds if name not in (best, self.default)]
        apart = (self.gain(best, name) for name in others)
        return gain.low >= GAIN and all(
            interval.low > 1 or interval.high < SAME for interval in apart
        )

    def measure(self, jobs: Mapping[str, Callable[[], object]]) -> None:
        """Time all kernels in turns until the comparison is settled or `SECONDS` have passed.

        Args:
            jobs: for each kernel, what is timed; it has run once.
        """
        self.seconds = {name: self.seconds.get(name, [])[: self.rounds] for name in jobs}
        begun = time.perf_counter()
        while not self.is_settled:
            for name, run in jobs.items():
                start = time.perf_counter()
                run()
                self.seconds[name].append(time.perf_counter() - start)
            if self.rounds >= LEAST and time.perf_counter() - begun > SECONDS:
                break

    def __str__(self) -> str:
        """Return a text such as `plain for attention at 32: 4.71 [4.60, 4.92] times fused`."""
        best = self.best
        if best == self.default:
            return f"{best} for {self.what}"
        more = "" if self.is_settled and self.rounds < MOST else ", not settled"
        gain = self.gain(best, self.default)
        return f"{best} for {self.what} {gain} x {self.default} in {self.rounds} rounds{more}"

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as JSON-compatible data."""
        times = {
            name: [float(f"{value:.6g}") for value in seconds]
            for name, seconds in self.seconds.items()
        }
        return {"what": self.what, "default": self.default, "seconds": times}


def comparison_of(stored: Any, what: str, default: str, kernels: list[str]) -> Comparison:
    """Return a stored comparison of these kernels; a new one if it is damaged, or of others."""
    new = Comparison(what, default, {name: [] for name in kernels})
    if not isinstance(stored, dict) or stored.get("default") != default:
        return new
    times = stored.get("seconds")
    if not isinstance(times, dict) or set(times) != set(kernels):
        return new
    lists = [series for series in times.values() if isinstance(series, list)]
    values = [value for series in lists for value in series]
    complete = len({len(series) for series in lists}) == 1 and len(lists) == len(times)
    if not complete or not all(isinstance(value, float) and value > 0 for value in values):
        return new
    return Comparison(what, default, {name: list(times[name]) for name in kernels})


def _rank(count: int) -> int:
    """Return the rank, from 0, of the low end of the sign test's interval of a median."""
    tail, rank = 0.0, -1
    while rank + 1 < count // 2:
        tail += math.comb(count, rank + 1) / 2**count
        if 2 * tail > 1 - LEVEL:
            break
        rank += 1
    return max(rank, 0)
