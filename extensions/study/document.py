"""The document of a study: its settings, the rows of its grid, and what a row changes."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from ...plugin import (
    Finding,
    Nll,
    PathText,
    SettingError,
    Settings,
    SpecError,
    did_you_mean,
    pointer,
)
from ...specs.wording import refuse
from .procedure import (
    BASELINE,
    AnyMetric,
    Budget,
    Compare,
    Match,
    Measure,
    Positive,
    Requirement,
    RowName,
    Sequential,
    Target,
    Tried,
    Tune,
    wrong_values,
)


class RowChange(Settings):
    """What a row changes in the base run."""

    doc: str = ""
    """Description, for the report."""
    extends: PathText | Annotated[tuple[PathText, ...], Field(min_length=2)] | None = None
    """Name of another spec of the model, or of several variants of one spec, which combine.  Params
    of the base run's model stay, also those of its spec if this is a variant of the same spec; its
    patches do not."""
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
    tune: Tried | Literal[False] | None = None
    """Replaces the values of the study's `tune` for this row; false tunes nothing."""

    @property
    def parents(self) -> tuple[str, ...]:
        """The specs that it extends."""
        return (self.extends,) if isinstance(self.extends, str) else self.extends or ()

    def changes(self) -> bool:
        """Return whether the row changes anything."""
        parts = (self.extends, self.params, self.unset, self.patch, self.objective, self.set)
        return any(parts)


class Ladder(RowChange):
    """A family of rows that differ in their size; no row of it is compared with the baseline."""

    sizes: Tried = Field(min_length=1)
    """Params of the model, each with its values from the first size to the last, such as
    `{"d_model": [64, 128, 256], "heads": [2, 4, 8]}`."""
    rates: Literal["mup", "tune", "same"]
    """Where the rates of a size come from: those of the first size by muP, a tuning of each size,
    or the same for all sizes."""
    against: Literal["parameters", "training_flops"] = "training_flops"
    """What the line is fitted against: parameters of the model, or FLOPs of its training."""
    metric: AnyMetric = Nll()
    """What is fitted on the validation data: a loss, or one of the metrics of `measure`."""

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> Self:
        """Check that there are sizes enough for a line."""
        refuse(self._mistakes(), info)
        return self

    def _mistakes(self) -> Iterator[SettingError]:
        """Yield an error for lists of sizes that do not fit, and for settings without effect."""
        counts = {name: len(values) for name, values in self.sizes.items()}
        first = next(iter(counts))
        for name, count in counts.items():
            if count < _LEAST_SIZES:
                msg = f"'{name}' has {count} sizes, and a line through them needs {_LEAST_SIZES}"
                yield SettingError(msg, "sizes", name, help_="list more sizes")
            elif count != counts[first]:
                msg = f"'{name}' has {count} values, and '{first}' {counts[first]}"
                yield SettingError(msg, "sizes", name, help_="give each size a value of each param")
            if name in self.params:
                msg = f"'{name}' is set by 'params' and by 'sizes'"
                yield SettingError(msg, "params", name, help_="remove it")
        if self.match is not None:
            msg = "'match' would make all sizes equal"
            yield SettingError(msg, "match", help_="remove it")
        if self.tune is False and self.rates == "tune":
            msg = "'tune' is false, and 'rates' come from a tuning"
            yield SettingError(msg, "tune", help_="remove it, or change 'rates'")


class Factor(Settings):
    """One factor of a grid; exactly one of `param`, `set` and `levels` is given."""

    param: str | None = None
    """Param of the model that takes each of `values`."""
    set: str | None = None
    """Setting of the run, by dotted path, that takes each of `values`."""
    values: tuple[Any, ...] = ()
    """Values of `param` or `set`."""
    levels: dict[RowName, RowChange] = Field(default_factory=dict)
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


_LEAST_SIZES = 3
"""Sizes through which a line can be fitted with an interval."""
_MOST_ROWS = 1_000
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


Seed = Annotated[int, Field(ge=0, lt=2**31)]


class Grid(Settings):
    """Rows from factors."""

    factors: dict[RowName, Factor] = Field(min_length=1)
    """Factors by name; a row is named after its levels, such as `heads=8`."""
    cross: bool = False
    """Whether all combinations of levels are rows, or each level alone."""


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
    rows: dict[RowName, RowChange] = Field(default_factory=dict)
    """Rows by name; the base run is the row `baseline`."""
    grid: Grid | None = None
    """Further rows."""
    ladders: dict[RowName, Ladder] = Field(default_factory=dict)
    """Families of further rows of several sizes, by name."""
    labels: dict[RowName, Annotated[str, Field(min_length=1, max_length=100)]] = Field(
        default_factory=dict
    )
    """Labels of rows in reports and figures; a row without one has its name."""
    search: Search | None = None
    """Search for further rows, which `weft study search` runs."""
    seeds: tuple[Seed, ...] = Field(default=(1, 2, 3), min_length=1)
    """Seeds with which each row is trained."""
    sequential: Sequential | None = None
    """Adds seeds until the comparisons are decided; `null` trains `seeds` alone."""
    tune: Tune | None = None
    """Tunes each row on the validation data first; `null` leaves the settings as they are."""
    target: Target | None = None
    """Measures how soon each row reaches a value on the validation data."""
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
        if not (self.rows or self.ladders or self.grid or self.search or self.tune):
            help_ = "add 'rows', 'grid', 'ladders', 'tune' or 'search'"
            yield SettingError("the study has no rows", help_=help_)
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
        yield from self._procedure()
        for name, label in self.labels.items():
            others = [*self.labels.values(), BASELINE, *self.rows]
            if others.count(label) > 1 + (label == name):
                msg = f"two rows would be called '{label}'"
                yield SettingError(msg, "labels", name, help_="give each row its label")
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

    def _procedure(self) -> Iterator[SettingError]:
        """Yield an error for each setting of `tune` and `sequential` that does not fit others."""
        tuned = [*self.rows.items(), *self.ladders.items()]
        for kind, (name, row) in zip(
            ["rows"] * len(self.rows) + ["ladders"] * len(self.ladders), tuned, strict=True
        ):
            if row.tune is not None and self.tune is None:
                msg = "the study does not tune its rows"
                yield SettingError(msg, kind, name, "tune", help_="add 'tune' to the study")
            elif row.tune:
                yield from wrong_values(row.tune, kind, name, "tune")
        for name, ladder in self.ladders.items():
            if ladder.rates == "tune" and self.tune is None:
                msg = "the study does not tune its rows"
                help_ = "add 'tune' to the study, or carry the rates by \"mup\""
                yield SettingError(msg, "ladders", name, "rates", help_=help_)
        if self.tune is not None and self.tune.seeds > len(self.seeds):
            msg = f"the study has {len(self.seeds)} seeds, not {self.tune.seeds}"
            yield SettingError(msg, "tune", "seeds", help_="lower it, or add seeds to the study")
        if self.sequential is None:
            return
        if self.sequential.most <= len(self.seeds):
            msg = f"the study has {len(self.seeds)} seeds already, so none is added"
            yield SettingError(msg, "sequential", "most", help_="raise it, or remove 'sequential'")
        if len(self.seeds) == 1:
            msg = "with one seed, the first comparison knows no spread over seeds"
            yield SettingError(msg, "seeds", help_="give two seeds or more to begin with")

    def looks(self) -> list[int]:
        """Return the numbers of seeds of a row after which the rows are compared."""
        first, added = len(self.seeds), self.sequential
        if added is None:
            return [first]
        return [*range(first, added.most, added.step), added.most]

    def all_seeds(self) -> tuple[int, ...]:
        """Return the seeds that a row may have, in their order."""
        others = (seed for seed in itertools.count(1) if seed not in self.seeds)
        return (*self.seeds, *itertools.islice(others, self.looks()[-1] - len(self.seeds)))

    def __repr__(self) -> str:
        """Return the name and the number of rows and seeds."""
        return f"<Study {self.name}: {len(self.rows) + 1} rows, {len(self.seeds)} seeds>"

    __str__ = __repr__


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a study."""

    name: str
    change: RowChange
    at: str
    """JSON Pointer to where the row is written; `""` for the base run."""
    ladder: str = ""
    """Ladder of which it is a size; `""` if it is none."""
    follows: str = ""
    """Row whose tuned values it has, as a size that muP carries them to; `""` if there is none."""
    tuned: Mapping[str, Any] = field(default_factory=dict)
    """Tuned settings of the run by dotted path."""
    tuned_at: str = ""
    """JSON Pointer to the values that they were chosen from."""


def rows_of(study: StudySettings, source: str) -> list[Row]:
    """Return all rows of a study, the base run first.

    Args:
        study: the study.
        source: its file, for findings.

    Raises:
        SpecError: two rows have one name, there are too many, or levels cannot be combined.
    """
    rows = [Row(BASELINE, RowChange(), "")]
    rows += [Row(name, change, pointer("rows", name)) for name, change in study.rows.items()]
    if study.grid is not None:
        levels = {name: dict(levels_of(factor)) for name, factor in study.grid.factors.items()}
        counts = [len(values) for values in levels.values()]
        total = _product(counts) if study.grid.cross else sum(counts)
        if total + len(rows) > _MOST_ROWS:
            raise SpecError([_too_many(total, source)])
        rows += _crossed(levels, source) if study.grid.cross else _alone(study.grid.factors)
    rows += [rung for name, ladder in study.ladders.items() for rung in rungs(name, ladder)]
    names = [row.name for row in rows]
    twice = [row for number, row in enumerate(rows) if row.name in names[:number]]
    if twice:
        raise SpecError(
            Finding(
                code="Y01",
                at=row.at,
                problem=f"two rows have the name '{row.name}'",
                help="rename the row, or the level of the grid",
                source=source,
            )
            for row in twice
        )
    for label in study.labels:
        if label not in names:
            raise SpecError(
                [
                    Finding(
                        code="Y01",
                        at=pointer("labels", label),
                        problem=f"there is no row '{label}'",
                        help=did_you_mean(label, names) or "name a row, or remove the label",
                        source=source,
                    )
                ]
            )
    if study.compare.baseline not in names:
        raise SpecError(
            [
                Finding(
                    code="Y01",
                    at="/compare/baseline",
                    problem=f"there is no row '{study.compare.baseline}'",
                    help=f"name one of {', '.join(names[:8])}",
                    source=source,
                )
            ]
        )
    return rows


def rungs(name: str, ladder: Ladder) -> Iterator[Row]:
    """Yield a row for each size of a ladder, from the first to the last."""
    at = pointer("ladders", name, "sizes")
    base = {param: values[0] for param, values in ladder.sizes.items()}
    written = {**ladder.set}
    if ladder.rates == "mup" and not any(_overlap(key, "parametrization") for key in written):
        written["parametrization"] = {"mup": {"base": base}}
    first, values = next(iter(ladder.sizes.items()))
    levels, first_size = levels_of(Factor(param=first, values=values)), ""
    for number, (level, _) in enumerate(levels):
        params = {param: listed[number] for param, listed in ladder.sizes.items()}
        tune = ladder.tune
        if ladder.rates == "same" or (ladder.rates == "mup" and number):
            tune = False
        change = RowChange(
            doc=ladder.doc,
            extends=ladder.extends,
            params={**ladder.params, **params},
            unset=ladder.unset,
            patch=ladder.patch,
            objective=ladder.objective,
            set=written,
            match=False,
            tune=tune,
        )
        row = Row(f"{name}={level}", change, at, name, first_size)
        first_size = first_size or (row.name if ladder.rates == "mup" else "")
        yield row


def _product(counts: Sequence[int]) -> int:
    product = 1
    for count in counts:
        product *= count
    return product


def _too_many(total: int, source: str) -> Finding:
    return Finding(
        code="Y01",
        at="/grid",
        problem=f"the grid has {total:,} rows, and a study at most {_MOST_ROWS:,}",
        help="remove levels, or set 'cross' to false",
        source=source,
    )


def levels_of(factor: Factor) -> Iterator[tuple[str, RowChange]]:
    """Yield the levels of a factor by name; equal names of values are numbered."""
    yield from factor.levels.items()
    counts = Counter[str]()
    for value in factor.values:
        name = value if isinstance(value, str) else json.dumps(value)
        safe = "".join(c if c.isalnum() or c in "_.=,+-" else "_" for c in name).strip("_") or "_"
        short = safe[:60]
        counts[short] += 1
        if counts[short] > 1:
            short = f"{short}-{counts[short]}"
        if factor.param is not None:
            yield short, RowChange(params={factor.param: value})
        else:
            yield short, RowChange(set={str(factor.set): value})


_Levels = Mapping[str, Mapping[str, RowChange]]


def _alone(factors: Mapping[str, Factor]) -> list[Row]:
    """Return a row for each level."""
    return [
        Row(f"{name}={level}", change, at + (pointer("levels", level) if factor.levels else ""))
        for name, factor in factors.items()
        for at in (pointer("grid", "factors", name),)
        for level, change in levels_of(factor)
    ]


def _crossed(factors: _Levels, source: str) -> list[Row]:
    """Return a row for each combination of levels, one of each factor.

    Raises:
        SpecError: two levels of a combination change the same thing.
    """
    rows = []
    for combination in itertools.product(*(levels.items() for levels in factors.values())):
        name = ",".join(
            f"{factor}={level}" for factor, (level, _) in zip(factors, combination, strict=True)
        )
        change = joined([change for _, change in combination], name, source)
        rows.append(Row(name, change, pointer("grid")))
    return rows


def _overlap(first: str, other: str) -> bool:
    """Return whether one of two dotted paths is, or contains, the other."""
    return f"{first}.".startswith(f"{other}.") or f"{other}.".startswith(f"{first}.")


def joined(changes: Sequence[RowChange], name: str, source: str, at: str = "/grid") -> RowChange:
    """Return the changes of several levels together.

    Raises:
        SpecError: two of them change the same thing.
    """
    merged: dict[str, Any] = {"params": {}, "set": {}, "patch": [], "unset": []}

    def refuse(what: str) -> SpecError:
        return SpecError(
            [
                Finding(
                    code="Y01",
                    at=at,
                    problem=f"two levels of the row '{name}' change '{what}'",
                    help="let only one factor change it",
                    source=source,
                )
            ]
        )

    for change in changes:
        for key in ("params", "set"):
            values = getattr(change, key)
            if repeated := [
                entry for entry in values if any(_overlap(entry, old) for old in merged[key])
            ]:
                raise refuse(min(repeated))
            merged[key].update(values)
        if repeated := [entry for entry in change.unset if entry in merged["unset"]]:
            raise refuse(min(repeated))
        merged["patch"] += change.patch
        merged["unset"] += change.unset
        for key in ("extends", "objective", "match"):
            value = getattr(change, key)
            if value is None:
                continue
            if merged.get(key, value) != value:
                raise refuse(key)
            merged[key] = value
    docs = [change.doc for change in changes if change.doc]
    return RowChange(**{**merged, "doc": " ".join(docs)})
