"""Settings of a study: which runs are trained, how they are measured and compared.

A study names one base run.  Each row changes it: other params or patches of the model, another
spec, another objective, or other settings of the run.  The base run itself is the row `baseline`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ....specs.findings import did_you_mean
from ....specs.wording import SettingError
from ...data.settings import PathText, Settings
from ...metrics.metric import Metric
from ...metrics.registry import METRICS
from ...system.plugins import Selected

BASELINE = "baseline"
"""Name of the row that is the base run without changes."""
MOST_ROWS = 1_000
"""Maximum number of rows, with those of the grid."""

AnyMetric = Annotated[Metric, Selected(METRICS)]
RowName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.=,+-]{0,99}$")]
"""Letters, digits and `_.=,+-`."""
Seed = Annotated[int, Field(ge=0, lt=2**31)]
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
        given = (self.extends, self.params, self.unset, self.patch, self.objective, self.set)
        return any(given)


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
        """Check that the factor has one kind of levels.

        Raises:
            SettingError: it has none, or several.
        """
        given = [key for key in ("param", "set", "levels") if getattr(self, key)]
        if len(given) != 1:
            msg = f"a factor has one of 'param', 'set' and 'levels', not {len(given)}"
            raise SettingError(msg, help_="give one of them")
        if self.levels and self.values:
            msg = "'values' has no effect with 'levels'"
            raise SettingError(msg, "values", help_="remove it")
        if not self.levels and not self.values:
            raise SettingError(f"'{given[0]}' needs 'values'", help_="list the values")
        return self


class Grid(Settings):
    """Rows from factors."""

    factors: dict[RowName, Factor] = Field(min_length=1)
    """Factors by name; a row is named after its levels, such as `heads=8`."""
    cross: bool = False
    """Whether all combinations of levels are rows, or each level alone."""


class Budget(Settings):
    """What each run may use; at most one of `updates`, `tokens` and `flops` is given.

    That one sets the number of updates of every run, and the length of its schedule with it.
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
        given = [key for key in ("updates", "tokens", "flops") if getattr(self, key) is not None]
        if len(given) > 1:
            msg = f"'{given[0]}' and '{given[1]}' both determine the number of updates"
            raise SettingError(msg, given[1], help_="remove one of them")
        return self


class Measure(Settings):
    """How trained models are measured; choices are made on the validation data only."""

    tests: tuple[str, ...] | None = None
    """Test sets of the base run; null is all of them."""
    metrics: tuple[AnyMetric, ...] = ()
    """Metrics, of which the first decides; empty: those of the base run."""
    checkpoint: Literal["averaged", "best"] = "averaged"
    """Which checkpoint of a run is measured; `best` is selected on the validation data."""
    predict: dict[str, Any] = Field(default_factory=dict)
    """Changes of the settings of the predictor, such as `{"beam": 5}`."""


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


class Study(Settings):
    """Settings of a study."""

    format: Literal[1]
    """Version of the study file format."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
    """Name of the study; its folder is `outputs/NAME`."""
    doc: str = ""
    """Description: the question that the study answers."""
    run: PathText | dict[str, Any]
    """Base run: a shipped name, a file in the folder of the study, or a complete run."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Settings of the base run that differ in this study, by dotted path."""
    rows: dict[RowName, Change] = Field(default_factory=dict)
    """Rows by name; the base run is the row `baseline`."""
    grid: Grid | None = None
    """Further rows."""
    seeds: tuple[Seed, ...] = Field(default=(1, 2, 3), min_length=1)
    """Seeds with which each row is trained."""
    match: Match | None = None
    """Makes the rows equally large; null leaves them as they are."""
    budget: Budget = Budget()
    measure: Measure = Measure()
    compare: Compare = Compare()
    require: tuple[Requirement, ...] = ()
    """Conditions on every row."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Check what single settings cannot know.

        Raises:
            SettingError: there are no rows, or settings do not fit together.
        """
        if not self.rows and self.grid is None:
            raise SettingError("the study has no rows", help_="add 'rows' or 'grid'")
        if BASELINE in self.rows:
            msg = f"'{BASELINE}' is the base run itself"
            raise SettingError(msg, "rows", BASELINE, help_="give the row another name")
        for name, row in self.rows.items():
            if not row.changes():
                msg = f"the row '{name}' changes nothing"
                help_ = "add 'params', 'patch', 'extends', 'objective' or 'set', or remove the row"
                raise SettingError(msg, "rows", name, help_=help_)
        if len(set(self.seeds)) < len(self.seeds):
            raise SettingError("a seed occurs twice", "seeds", help_="give each seed once")
        own = self.compare.baseline
        if self.grid is None and own not in (BASELINE, *self.rows):
            msg = f"there is no row '{own}'"
            help_ = did_you_mean(own, [BASELINE, *self.rows])
            raise SettingError(msg, "compare", "baseline", help_=help_)
        if self.compare.pairs == "all" and "baseline" in self.compare.model_fields_set:
            msg = "'baseline' has no effect if all rows are compared with each other"
            raise SettingError(msg, "compare", "baseline", help_="remove it")
        return self

    def __repr__(self) -> str:
        """Return the name and the number of rows and seeds."""
        return f"<Study {self.name}: {len(self.rows) + 1} rows, {len(self.seeds)} seeds>"

    __str__ = __repr__
