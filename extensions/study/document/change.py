"""Changes of a study's base run: what a row, or a level of a factor, changes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ....plugin import SettingError
from ....runtime.data.settings import PathText, Settings

RowName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.=,+-]{0,99}$")]
"""Letters, digits and `_.=,+-`."""
Positive = Annotated[int, Field(ge=1)]
Quantity = Literal["parameters", "flops", "decode_state"]
"""Parameters of the deployed model, FLOPs of its forward pass, bytes of its decoding state."""


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


class Change(Settings):
    """What a row changes in the base run."""

    doc: str = ""
    """Description, for the report."""
    extends: PathText | None = None
    """Name of another spec of the model; params of the base run's model stay, its patches do
    not."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Params of the model that replace or join those of the base run."""
    unset: tuple[str, ...] = ()
    """Params of the base run's model that this row leaves at the default of its spec."""
    patch: tuple[dict[str, Any], ...] = ()
    """Patches of the model, as in a spec that extends another."""
    objective: PathText | None = None
    """Name of another objective, or of a file in the folder of the run."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Settings of the run by dotted path, such as `{"optimizer.clip": 1.0}`."""
    match: Match | Literal[False] | None = None
    """Replaces the study's `match` for this row; false solves nothing."""

    def changes(self) -> bool:
        """Return whether the row changes anything."""
        parts = (self.extends, self.params, self.unset, self.patch, self.objective, self.set)
        return any(parts)


class Factor(Settings):
    """One factor of a grid; exactly one of `param`, `set` and `levels` is given."""

    param: str | None = None
    """Param of the model that takes each of `values`."""
    set: str | None = None
    """Setting of the run, by dotted path, that takes each of `values`."""
    values: tuple[Any, ...] = ()
    """Values of `param` or `set`."""
    levels: dict[RowName, Change] = Field(default_factory=dict)
    """Changes by name of the level."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Check that the factor has levels."""
        self.check_levels()
        return self

    def check_levels(self) -> None:
        """Check that the factor has one kind of levels.

        Raises:
            SettingError: it has none, or several.
        """
        keys = [key for key in ("param", "set", "levels") if getattr(self, key)]
        if len(keys) != 1:
            msg = f"a factor has one of 'param', 'set' and 'levels', not {len(keys)}"
            raise SettingError(msg, help_="give one of them")
        if self.levels and self.values:
            msg = "'values' has no effect with 'levels'"
            raise SettingError(msg, "values", help_="remove it")
        if not self.levels and not self.values:
            raise SettingError(f"'{keys[0]}' needs 'values'", help_="list the values")
