"""The space of a search: its factors, the row of a point, and factors that name nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ....plugin import Finding, SpecError, did_you_mean, losses_of_training, pointer
from ..document import Dimension, Row, RowChange, StudySettings, joined, levels_of
from .planned import Planned

Value = str | int | float
"""Name of a level, or a number of a range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One factor of a search."""

    name: str
    at: str
    """JSON Pointer to the factor."""
    factor: Dimension | None = None
    """The range; None if there are levels."""
    levels: Mapping[str, RowChange] = field(default_factory=dict)
    has_names: bool = False
    """Whether the file names the levels, and does not list values."""

    @property
    def integral(self) -> bool:
        """Whether the range has whole numbers alone."""
        ends = (self.factor.low, self.factor.high) if self.factor is not None else ()
        return all(isinstance(end, int) for end in ends)

    def has(self, value: object) -> bool:
        """Return whether a value is one of the factor."""
        if self.factor is None:
            return value in self.levels
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
        low, high = self.factor.low or 0, self.factor.high or 0
        return low <= value <= high and not (self.integral and isinstance(value, float))

    def change(self, value: Value) -> RowChange:
        """Return what a value of the factor changes."""
        if self.factor is None:
            return self.levels[str(value)]
        if self.factor.param is not None:
            return RowChange(params={self.factor.param: value})
        return RowChange(set={str(self.factor.set): value})

    def probes(self) -> list[Value]:
        """Return all levels, or both ends of the range."""
        if self.factor is None:
            return [*self.levels]
        return [end for end in (self.factor.low, self.factor.high) if end is not None]


def axes_of(study: StudySettings) -> list[Axis]:
    """Return the factors of a study's search; those of its grid if the search has none."""
    if study.search is None:
        return []
    axes = []
    for name, factor in study.search.factors.items():
        at = pointer("search", "factors", name)
        if factor.low is not None:
            axes.append(Axis(name=name, at=at, factor=factor))
        else:
            levels, is_named = dict(levels_of(factor)), bool(factor.levels)
            axes.append(Axis(name=name, at=at, levels=levels, has_names=is_named))
    if not axes and study.grid is not None:
        for name, grid_factor in study.grid.factors.items():
            at = pointer("grid", "factors", name)
            levels, is_named = dict(levels_of(grid_factor)), bool(grid_factor.levels)
            axes.append(Axis(name=name, at=at, levels=levels, has_names=is_named))
    return axes


def row_at(axes: Sequence[Axis], values: Mapping[str, Value], name: str, source: str) -> Row:
    """Return the row of a point.

    Args:
        axes: the factors.
        values: value of each factor.
        name: name of the row.
        source: file of the study, for findings.

    Raises:
        SpecError: two factors change the same thing.
    """
    changes = [axis.change(values[axis.name]) for axis in axes]
    return Row(name, joined(changes, name, source, "/search"), "/search")


def probes_of(axis: Axis) -> Iterator[Row]:
    """Yield a row for each level of a factor, or for both ends of its range."""
    for value in axis.probes():
        at = axis.at + pointer("levels", str(value)) if axis.has_names else axis.at
        yield Row(f"{axis.name}={value}", axis.change(value), at)


def without_effect(axis: Axis, probes: Sequence[Planned], source: str) -> Iterator[Finding]:
    """Yield a finding if all values of a factor train the same.

    Args:
        axis: the factor.
        probes: its planned rows, with the keys of their jobs.
        source: file of the study.
    """
    if (
        len(probes) == len(axis.probes())
        and len({(*probe.keys.values(),) for probe in probes}) == 1
    ):
        yield Finding(
            code="Y08",
            at=axis.at,
            problem=f"the factor '{axis.name}' has no effect: all of its values train the same",
            help="give values that change the graph or the run, or remove it",
            source=source,
        )


def wrong_settings(
    study: StudySettings, axes: Sequence[Axis], baseline: Planned, source: str
) -> Iterator[Finding]:
    """Yield a finding for each setting of a search that names nothing, or contradicts another."""
    run = baseline.run
    search = study.search
    if search is None:
        return
    names = [metric.name for metric in run.metrics()]
    if search.metric is not None and search.metric not in names:
        yield Finding(
            code="Y08",
            at="/search/metric",
            problem=f"validations do not measure '{search.metric}'",
            help=did_you_mean(search.metric, names) or "add it to 'evaluate.metrics' of the run",
            source=source,
        )
    else:
        metric = next(
            candidate
            for candidate in run.metrics()
            if candidate.name == (search.metric or run.best)
        )
        findings = losses_of_training(baseline.graph, [(metric, "/search/metric")])
        yield from (replace(finding, source=source) for finding in findings)
    if search.seeds > len(study.seeds):
        yield Finding(
            code="Y08",
            at="/search/seeds",
            problem=f"the study has {len(study.seeds)} seeds, not {search.seeds}",
            help="lower it, or add seeds to the study",
            source=source,
        )
    try:
        row_at(axes, {axis.name: axis.probes()[0] for axis in axes}, "of the first levels", source)
    except SpecError as error:
        yield from error.findings
