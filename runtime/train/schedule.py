"""Schedules: the learning rate of each update, as a pure function.

Updates are counted from 1.  Every schedule rises in a straight line for
`warmup` updates; they differ in what follows.

Not here: who applies the rate (`optimize.py`).
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ...specs.findings import InputError


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Noam(_Settings):
    """The schedule of the paper: its height follows from the width of the model.

    scale * d_model^-0.5 * min(update^-0.5, update * warmup^-1.5)

    Source: Vaswani et al. 2017, section 5.3, https://arxiv.org/abs/1706.03762
    """

    type: Literal["noam"] = "noam"
    """Names this schedule."""
    scale: float = Field(default=1.0, gt=0)
    """Factor on the whole curve; the paper has 1."""
    warmup: int = Field(default=4000, ge=1)
    """Updates of linear rise; the peak is scale * (d_model * warmup)^-0.5."""


class InverseSqrt(_Settings):
    """The shape of `noam` with its peak given outright: then peak * sqrt(warmup / update)."""

    type: Literal["inverse_sqrt"] = "inverse_sqrt"
    """Names this schedule."""
    peak: float = Field(gt=0)
    """Highest rate, reached at update `warmup`."""
    warmup: int = Field(default=4000, ge=1)
    """Updates of linear rise."""


class Cosine(_Settings):
    """Half a cosine from the peak down to the floor.

    Source: Loshchilov and Hutter 2017, section 3, https://arxiv.org/abs/1608.03983,
    without restarts and with a linear rise before it.
    """

    type: Literal["cosine"] = "cosine"
    """Names this schedule."""
    peak: float = Field(gt=0)
    """Highest rate, reached at update `warmup`."""
    warmup: int = Field(default=0, ge=0)
    """Updates of linear rise; 0 starts just below the peak."""
    total: int = Field(ge=1)
    """Update at which the floor is reached; the rate stays there afterwards."""
    floor: float = Field(default=0.0, ge=0)
    """Lowest rate, as a rate and not as a share of the peak."""

    @model_validator(mode="after")
    def _falls(self) -> Cosine:
        if self.warmup >= self.total:
            msg = f"warmup {self.warmup} leaves nothing of total {self.total}"
            raise ValueError(msg)
        if self.floor > self.peak:
            msg = f"floor {self.floor} is above peak {self.peak}"
            raise ValueError(msg)
        return self


class Constant(_Settings):
    """One rate throughout, after an optional rise."""

    type: Literal["constant"] = "constant"
    """Names this schedule."""
    rate: float = Field(gt=0)
    """The rate from update `warmup` on."""
    warmup: int = Field(default=0, ge=0)
    """Updates of linear rise; 0 for none."""


Schedule = Annotated[Noam | InverseSqrt | Cosine | Constant, Field(discriminator="type")]
"""The `schedule` of a run file; `type` says which."""


def learning_rate(update: int, settings: Schedule, d_model: int | None) -> float:
    """Return the learning rate of one update.

    Args:
        update: which update, counted from 1.
        settings: one of the schedules above.
        d_model: width of the model; only `noam` reads it.

    Raises:
        ValueError: `update` is below 1.
        InputError: `noam` is asked about a model that has no single width.
    """
    if update < 1:
        msg = f"updates are counted from 1, not {update}"
        raise ValueError(msg)
    match settings:
        case Noam(scale=scale, warmup=warmup):
            if d_model is None:
                problem = "schedule 'noam' needs the width of the model, which has no 'd_model'"
                way_out = "use 'inverse_sqrt' with a 'peak', or give the spec a 'd_model'"
                raise InputError(problem, place="/schedule", help=way_out)
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
