"""Values that change over the updates of a run, and fill inputs of its objective."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, ValidationInfo, model_validator

from ...graphs.ir.value_type import ValueType
from ...specs.wording import SettingError, refuse
from ..data.settings import Settings

_Number = Annotated[float, Field(allow_inf_nan=False)]
SCALAR = ValueType("f", ())
"""Type of the inputs that values fill."""


class Ramp(Settings):
    """A value that changes linearly, and is constant before and afterwards."""

    from_: _Number = Field(alias="from")
    """Value up to update `after`."""
    to: _Number
    """Value from update `after` + `over` on."""
    over: int = Field(ge=1)
    """Number of updates in which it changes."""
    after: int = Field(default=0, ge=0)
    """Update after which it begins to change."""

    @model_validator(mode="after")
    def _changes(self, info: ValidationInfo) -> Self:
        """Refuse a value that does not change."""
        if self.from_ == self.to:
            problem = f"the value is {self.to:g} at every update"
            refuse([SettingError(problem, "to", help_=f"write {self.to:g} alone")], info)
        return self


Value = _Number | Ramp
"""A number, or how it changes."""
Values = Mapping[str, Value]
"""Name of an input to its value."""


def values_at(values: Values, update: int | None) -> dict[str, float]:
    """Return the values of an update.

    Args:
        values: the `values` of a run.
        update: its number, counted from 1; None for those at the end.
    """
    return {
        name: _ramped(value, update) if isinstance(value, Ramp) else float(value)
        for name, value in values.items()
    }


def _ramped(ramp: Ramp, update: int | None) -> float:
    done = 1.0 if update is None else min(1.0, max(0.0, (update - ramp.after) / ramp.over))
    return ramp.from_ + done * (ramp.to - ramp.from_)
