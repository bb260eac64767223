"""Settings of how a study proceeds: how its rows are limited, tuned, measured and compared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import prod
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, model_validator

from ...plugin import METRICS, Metric, Selected, SettingError, Settings
from ...specs.wording import refuse

RowName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.=,+-]{0,99}$")]
"""Letters, digits and `_.=,+-`."""
Positive = Annotated[int, Field(ge=1)]
Quantity = Literal["parameters", "flops", "decode_state"]
"""Parameters of the deployed model, FLOPs of its forward pass, bytes of its decoding state."""
AnyMetric = Annotated[Metric, Selected(METRICS)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Tried = dict[str, tuple[Any, ...]]
"""Values that are tried, by dotted path of a setting of the run."""
BASELINE = "baseline"
"""Name of the row that is the base run without changes."""
_MOST_TRIALS = 200
"""Maximum number of combinations of values that a row is tuned over."""


class Match(Settings):
    """Which param of the model is solved so that a row has the size of the baseline."""

    param: str
    """Param of the model, a whole number, such as `d_ff`."""
    multiple: Positive = 1
    """The solution is a multiple of it."""
    quantity: Quantity = "parameters"
    """What is made equal."""
    tolerance: float = Field(default=0.01, gt=0.0, le=1.0)
    """Largest difference that remains, as a fraction of the baseline's value."""


class Budget(Settings):
    """What each run may use; at most one of `updates`, `tokens` and `flops` is given.

    That one sets the number of updates of every run, over which pieces of a schedule stretch.
    """

    updates: Positive | None = None
    """Updates of each run."""
    tokens: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Tokens of all texts together that each run trains on, by estimate."""
    flops: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """FLOPs of the training of each run, by the formulas of its blocks."""
    seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Limit on the estimated duration of each run; a longer one is an error."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Check that the number of updates is determined once.

        Raises:
            SettingError: it is determined twice.
        """
        limits = [key for key in ("updates", "tokens", "flops") if getattr(self, key) is not None]
        if len(limits) > 1:
            msg = f"'{limits[0]}' and '{limits[1]}' both determine the number of updates"
            raise SettingError(msg, limits[1], help_="remove one of them")
        return self

    @property
    def counts(self) -> bool:
        """Whether it determines the number of updates."""
        return bool(self.updates or self.tokens or self.flops)


class Measure(Settings):
    """How trained models are measured; choices are made on the validation data only."""

    tests: tuple[str, ...] | None = None
    """Test sets of the base run; `null` is all of them."""
    metrics: tuple[AnyMetric, ...] = ()
    """Metrics, of which the first decides; empty: those of the base run."""
    checkpoint: Literal["averaged", "best"] = "averaged"
    """Which checkpoint of a run is measured; `best` is selected on the validation data."""
    predict: dict[str, Any] = Field(default_factory=dict)
    """Changes of the settings of the predictor, such as `{"beam": 5}`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Check that no test set occurs twice.

        Raises:
            SettingError: one does.
        """
        names = self.tests or ()
        for number, name in enumerate(names):
            if name in names[:number]:
                msg = f"the test set '{name}' occurs twice"
                raise SettingError(msg, "tests", number, help_="remove it")
        return self


class Compare(Settings):
    """How rows are compared."""

    baseline: RowName = BASELINE
    """Row that the others are compared with."""
    pairs: Literal["baseline", "all"] = "baseline"
    """Whether each row is compared with the baseline, or all rows with each other."""
    level: float = Field(default=0.95, gt=0.5, lt=1.0)
    """Probability of intervals; 1 - level bounds the probability of any false alarm."""
    samples: int = Field(default=1000, ge=100, le=1_000_000)
    """Number of resampled test sets."""
    power: float = Field(default=0.8, gt=0.0, lt=1.0)
    """Probability with which the smallest detectable difference would have been found."""


class Requirement(Settings):
    """A condition that every row must fulfill before anything trains."""

    quantity: Literal["parameters", "flops", "decode_state", "memory"]
    """What is limited; `memory` is the estimated memory of training in bytes."""
    most: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Largest value."""
    within: float | None = Field(default=None, gt=0, le=1.0)
    """Largest difference from the baseline, as a fraction of its value."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Check that something is required.

        Raises:
            SettingError: nothing is.
        """
        if self.most is None and self.within is None:
            raise SettingError("nothing is required", help_="give 'most' or 'within'")
        return self


class Tune(Settings):
    """Values of settings that every row tries on the validation data before its seeds train."""

    values: Tried = Field(min_length=1)
    """Settings of the run by dotted path, each with the values that are tried, such as
    `{"schedule.peak": [0.001, 0.003, 0.01]}`; all combinations are tried."""
    trials: Positive | None = None
    """Number of combinations that every row tries, drawn at random; `null` is all of them."""
    metric: str | None = None
    """Metric of the run's validations that chooses; `null` is `evaluate.best` of the run."""
    seeds: Positive = 1
    """Number of the study's seeds with which each combination is trained; the mean counts."""
    updates: Positive | None = None
    """Updates of these trainings; `null` is those of the run."""

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> Self:
        """Check that there is a choice."""
        refuse(self._mistakes(), info)
        return self

    def _mistakes(self) -> Iterator[SettingError]:
        """Yield an error for each list without a choice, and for a budget without effect."""
        yield from wrong_values(self.values, "values")
        combinations = prod(map(len, self.values.values()))
        if self.trials is not None and self.trials >= combinations:
            msg = f"'trials' has no effect: there are {combinations} combinations of values"
            yield SettingError(msg, "trials", help_="remove it, or list more values")
        elif self.trials is None and combinations > _MOST_TRIALS:
            msg = f"each row would be trained with {combinations:,} combinations of values"
            yield SettingError(msg, "values", help_="limit 'trials', or list fewer values")


def wrong_values(values: Tried, *at: str) -> Iterator[SettingError]:
    """Yield an error for each list of values that leaves no choice.

    Args:
        values: values by setting.
        at: keys that lead to them.
    """
    for name, listed in values.items():
        texts = [json.dumps(value, sort_keys=True) for value in listed]
        if not listed:
            msg = f"the list of values of '{name}' is empty"
            yield SettingError(msg, *at, name, help_="list the values, or remove the setting")
        elif len(listed) == 1:
            msg = f"'{name}' has one value, so there is nothing to tune"
            yield SettingError(msg, *at, name, help_="list more values, or write it in 'set'")
        elif len(set(texts)) < len(texts):
            msg = f"a value of '{name}' occurs twice"
            yield SettingError(msg, *at, name, help_="list each value once")


class Target(Settings):
    """A value of a metric of the validations: how soon each row reaches it."""

    metric: str
    """Metric of the run's validations, such as `bleu` or `nll`."""
    value: Finite
    """The value to reach."""
    stop: bool = False
    """Whether each run stops there (`evaluate.until` of the run)."""


class Sequential(Settings):
    """Seeds that are added until the comparisons are decided, or their intervals narrow.

    The error of looking several times is spent in parts that are fixed before.
    """

    most: Positive
    """Largest number of seeds of a row."""
    step: Positive = 1
    """Number of seeds that are added at a time."""
    decided: bool = True
    """Whether a row needs no more seeds when its comparison has found a difference."""
    width: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Width of the interval of a difference at which its row needs no more seeds."""
    spending: Literal["obrien_fleming", "equal"] = "obrien_fleming"
    """Shares of the error at each look: little at first as by O'Brien & Fleming 1979, or equal."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Check that there is a reason to stop.

        Raises:
            SettingError: there is none.
        """
        if not self.decided and self.width is None:
            msg = "nothing decides when seeds are enough"
            raise SettingError(msg, "decided", help_="set it to true, or give 'width'")
        return self
