"""Settings of a study: which runs are trained, how they are measured and compared.

A study names one base run.  Each row changes it: other params or patches of the model, another
spec, another objective, or other settings of the run.  The base run itself is the row `baseline`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from ....plugin import METRICS, Metric, SettingError
from ....runtime.data.settings import PathText, Settings
from ....runtime.system.plugins import Selected
from ....specs.findings import did_you_mean
from ....specs.wording import refuse
from .change import Change, Factor, Match, Positive, RowName
from .search import Search

BASELINE = "baseline"
"""Name of the row that is the base run without changes."""
MOST_ROWS = 1_000
"""Maximum number of rows, with those of the grid."""


def _text_or_object(value: Any) -> Any:
    """Return the value of `run`, which has one of two types.

    Raises:
        SettingError: it has neither.
    """
    if not isinstance(value, str | dict):
        msg = "the base run is neither a text nor an object"
        raise SettingError(msg, help_="write a shipped name, the path of a file, or a complete run")
    return value


AnyMetric = Annotated[Metric, Selected(METRICS)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]


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


class StudySettings(Settings):
    """Settings of a study."""

    format: Literal[1]
    """Version of the study file format."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
    """Name of the study; its folder is `outputs/NAME`."""
    doc: str = ""
    """Description: the question that the study answers."""
    run: Annotated[PathText | dict[str, Any], BeforeValidator(_text_or_object)]
    """Base run: a shipped name, a file in the folder of the study, or a complete run."""
    root: PathText | None = None
    """Folder of the data; `null` is `data.root` of the base run."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Settings of the base run that differ in this study, by dotted path."""
    rows: dict[RowName, Change] = Field(default_factory=dict)
    """Rows by name; the base run is the row `baseline`."""
    grid: Grid | None = None
    """Further rows."""
    search: Search | None = None
    """Search for further rows, which `weft study search` runs."""
    seeds: tuple[Seed, ...] = Field(default=(1, 2, 3), min_length=1)
    """Seeds with which each row is trained."""
    match: Match | None = None
    """Makes the rows equally large; `null` leaves them as they are."""
    budget: Budget = Budget()
    measure: Measure = Measure()
    compare: Compare = Compare()
    require: tuple[Requirement, ...] = ()
    """Conditions on every row."""

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> Self:
        """Check what single settings cannot know.

        Raises:
            CombinedSettingError: there are no rows, or settings do not fit together.
        """
        refuse(self._mistakes(), info)
        return self

    def _mistakes(self) -> Iterator[SettingError]:
        """Yield an error for each setting that does not fit others, or has no effect."""
        if not self.rows and self.grid is None and self.search is None:
            yield SettingError("the study has no rows", help_="add 'rows', 'grid' or 'search'")
        if self.search is not None and not self.search.factors and self.grid is None:
            yield SettingError("the search has no factors", "search", help_="add 'factors'")
        if BASELINE in self.rows:
            msg = f"'{BASELINE}' is the base run itself"
            yield SettingError(msg, "rows", BASELINE, help_="give the row another name")
        for name, row in self.rows.items():
            if not row.changes():
                msg = f"the row '{name}' changes nothing"
                help_ = "add 'params', 'patch', 'extends', 'objective' or 'set', or remove the row"
                yield SettingError(msg, "rows", name, help_=help_)
        if len(set(self.seeds)) < len(self.seeds):
            yield SettingError("a seed occurs twice", "seeds", help_="give each seed once")
        baseline = self.compare.baseline
        if self.grid is None and baseline not in (BASELINE, *self.rows):
            msg = f"there is no row '{baseline}'"
            help_ = did_you_mean(baseline, [BASELINE, *self.rows])
            yield SettingError(msg, "compare", "baseline", help_=help_)
        if self.compare.pairs == "all" and "baseline" in self.compare.model_fields_set:
            msg = "'baseline' has no effect if all rows are compared with each other"
            yield SettingError(msg, "compare", "baseline", help_="remove it")

    def __repr__(self) -> str:
        """Return the name and the number of rows and seeds."""
        return f"<Study {self.name}: {len(self.rows) + 1} rows, {len(self.seeds)} seeds>"

    __str__ = __repr__
