"""Learning rate schedules, as pure functions of the update.

Updates are counted from 1.  Every schedule begins with `warmup` updates of linear warmup.

Not here: setting the rate of an optimizer (`optimize.py`).
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ...specs.findings import InputError
from ...specs.wording import SettingError


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Noam(_Settings):
    """Schedule of the paper, whose peak follows from the width of the model.

    scale * d_model^-0.5 * min(update^-0.5, update * warmup^-1.5)

    Source: Vaswani et al. 2017, section 5.3, https://arxiv.org/abs/1706.03762
    """

    type: Literal["noam"] = "noam"
    """Selects this schedule."""
    scale: float = Field(default=1.0, gt=0)
    """Factor of all rates; 1 in the paper."""
    warmup: int = Field(default=4000, ge=1)
    """Updates of linear warmup; the peak is scale * (d_model * warmup)^-0.5."""


class InverseSqrt(_Settings):
    """The curve of `noam` with an explicit peak: peak * sqrt(warmup / update) after the warmup."""

    type: Literal["inverse_sqrt"] = "inverse_sqrt"
    """Selects this schedule."""
    peak: float = Field(gt=0)
    """Maximum rate, reached at update `warmup`."""
    warmup: int = Field(default=4000, ge=1)
    """Updates of linear warmup."""


class Cosine(_Settings):
    """Half a cosine period from the peak down to the floor.

    Source: Loshchilov and Hutter 2017, section 3, https://arxiv.org/abs/1608.03983,
    without restarts and with a linear warmup.
    """

    type: Literal["cosine"] = "cosine"
    """Selects this schedule."""
    peak: float = Field(gt=0)
    """Maximum rate, reached at update `warmup`."""
    warmup: int = Field(default=0, ge=0)
    """Updates of linear warmup; 0 starts just below the peak."""
    total: int = Field(ge=1)
    """Update at which the rate reaches the floor, where it stays."""
    floor: float = Field(default=0.0, ge=0)
    """Minimum rate, as an absolute rate, not as a fraction of the peak."""

    @model_validator(mode="after")
    def _falls(self) -> Cosine:
        if self.warmup >= self.total:
            msg = f"warmup {self.warmup} must be less than total {self.total}"
            raise SettingError(msg, "warmup", help_=f"set it to less than {self.total}")
        if self.floor > self.peak:
            msg = f"floor {self.floor} must not exceed peak {self.peak}"
            raise SettingError(msg, "floor", help_=f"set it to at most {self.peak}")
        return self


class Constant(_Settings):
    """A constant rate, after an optional warmup."""

    type: Literal["constant"] = "constant"
    """Selects this schedule."""
    rate: float = Field(gt=0)
    """Rate from update `warmup` on."""
    warmup: int = Field(default=0, ge=0)
    """Updates of linear warmup; 0 disables it."""


Schedule = Annotated[Noam | InverseSqrt | Cosine | Constant, Field(discriminator="type")]
"""The `schedule` of a run file, selected by `type`."""


def learning_rate(update: int, settings: Schedule, d_model: int | None) -> float:
    """Return the learning rate of one update.

    Args:
        update: number of the update, counted from 1.
        settings: one of the schedules above.
        d_model: width of the model; only `noam` uses it.

    Raises:
        ValueError: `update` is below 1.
        InputError: the schedule is `noam` and the model has no single width.
    """
    if update < 1:
        msg = f"updates are counted from 1, not {update}"
        raise ValueError(msg)
    match settings:
        case Noam(scale=scale, warmup=warmup):
            if d_model is None:
                problem = "schedule 'noam' needs the param 'd_model', which the spec does not have"
                help_ = "use 'inverse_sqrt' with a 'peak', or add a param 'd_model' to the spec"
                raise InputError(problem, location="/schedule", help=help_)
            return float(scale * d_model**-0.5 * min(update**-0.5, update * warmup**-1.5))
        case InverseSqrt(peak=peak, warmup=warmup):
            return peak * min(update / warmup, math.sqrt(warmup / update))
        case Cosine(peak=peak, warmup=warmup, total=total, floor=floor):
            if update < warmup:
                return peak * update / warmup
            done = min(1.0, (update - warmup) / (total - warmup))
            return floor + 0.5 * (peak - floor) * (1.0 + math.cos(math.pi * done))
        case Constant(rate=rate, warmup=warmup):
            return rate * min(1.0, update / warmup) if warmup else rate
