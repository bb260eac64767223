"""Comparison of validations by a metric: which is the best, and when there was no progress."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .metric import Metric


def is_better(metric: Metric, value: float, best: float | None) -> bool:
    """Return whether a value of a metric is better than the best so far.

    A value that is not a number is never better; any number is better than none.
    """
    if math.isnan(value):
        return False
    if best is None or math.isnan(best):
        return True
    return value > best if metric.higher_is_better else value < best


@dataclass(slots=True)
class EarlyStopping:
    """Decides when a run stops because a metric no longer improves."""

    metric: Metric
    """Metric that is observed; losses are better when lower."""
    patience: int | None = None
    """Validations without improvement after which to stop; None never stops."""
    best: float | None = None
    """Best value so far."""
    stale: int = 0
    """Validations since then."""

    def add(self, value: float) -> bool:
        """Add the value of a validation; return whether it is the best so far."""
        if is_better(self.metric, value, self.best):
            self.best, self.stale = value, 0
            return True
        self.stale += 1
        return False

    @property
    def stops(self) -> bool:
        """Whether the patience is used up."""
        return self.patience is not None and self.stale >= self.patience
