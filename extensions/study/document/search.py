"""Settings of a search: which changes are tried, how they are chosen, and when it ends."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from ....plugin import SettingError
from ....runtime.data.settings import Settings
from .change import Factor, Positive, RowName


class Dimension(Factor):
    """One factor of a search: the levels of a factor of a grid, or a range of numbers."""

    low: float | int | None = Field(default=None, allow_inf_nan=False)
    """Least value of a range; whole numbers at both ends make a range of whole numbers."""
    high: float | int | None = Field(default=None, allow_inf_nan=False)
    """Largest value."""
    log: bool = False
    """Whether the logarithm of the value is drawn uniformly, as for learning rates."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Check that the factor has levels or a range.

        Raises:
            SettingError: it has none, or both, or an empty range.
        """
        ends = [end for end in (self.low, self.high) if end is not None]
        if not ends:
            if self.log:
                msg = "'log' has no effect without 'low' and 'high'"
                raise SettingError(msg, "log", help_="remove it, or give a range")
            self.check_levels()
            return self
        if self.values or self.levels or (self.param is None) == (self.set is None):
            msg = "a range has 'low', 'high', and either 'param' or 'set'"
            raise SettingError(msg, help_="give these alone")
        if self.low is None or self.high is None or self.low >= self.high:
            msg = "a range needs a 'low' that is less than its 'high'"
            raise SettingError(msg, "low", help_="give both ends, or 'values'")
        if self.log and self.low <= 0:
            msg = "a logarithmic range begins above 0"
            raise SettingError(msg, "low", help_="raise it, or remove 'log'")
        return self


class Search(Settings):
    """A search for the best row by the validation data; `weft study search` runs it."""

    factors: dict[RowName, Dimension] = Field(default_factory=dict)
    """Factors by name; empty: those of `grid`."""
    trials: Positive = 50
    """Number of rows that are tried."""
    seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Seconds of training, of all trials together, after which no trial begins."""
    sampler: Literal["tpe", "random"] = "tpe"
    """How rows are chosen: tree-structured Parzen estimators (Bergstra et al. 2011, section 4), or
    at random (Bergstra & Bengio 2012)."""
    pruner: Literal["median", "quartile", "none"] = "median"
    """Which trials are stopped early: those that are worse at a validation than the median of the
    trials before, or worse than their best quarter."""
    metric: str | None = None
    """What is optimized: a metric of the run's validations; `null` is the run's `evaluate.best`."""
    seeds: Positive = 1
    """Number of the study's seeds with which each trial is trained; the mean counts."""
    seed: int = Field(default=1, ge=0, lt=2**31)
    """Seed of the sampler."""
    best: Positive = 5
    """Number of rows in the report."""
