"""The tuning of rows: the values that each tries, what is wrong with them, and the best ones."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ....plugin import Finding, Metric, did_you_mean, losses_of_training, pointer
from ..document import Row, StudySettings
from ..procedure import Tried
from .base import Base, Run
from .planned import Planned

_OWNERS = {"seed": "seeds", "updates": "tune"}
"""Setting of a run that a study determines, and the study's key for it."""


def tried_by(study: StudySettings, row: Row) -> tuple[Tried, str]:
    """Return the values that a row tries and where they are written; none if it is not tuned."""
    if study.tune is None or row.change.tune is False:
        return {}, ""
    if row.change.tune is None:
        return study.tune.values, pointer("tune", "values")
    at = pointer("ladders", row.ladder) if row.ladder else row.at
    return row.change.tune, f"{at}/tune"


def trial_rows(study: StudySettings, row: Row) -> Iterator[Row]:
    """Yield a row with each combination of values that it tries; equal lists give equal ones.

    Source of drawing combinations at random: Bergstra & Bengio 2012.
    """
    values, at = tried_by(study, row)
    if study.tune is None or not values:
        return
    combinations = [
        dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())
    ]
    if study.tune.trials is not None and study.tune.trials < len(combinations):
        drawn = random.Random(0).sample(range(len(combinations)), study.tune.trials)
        combinations = [combinations[number] for number in sorted(drawn)]
    for combination in combinations:
        yield replace(row, tuned=combination, tuned_at=at)


def tuned_row(study: StudySettings, row: Row, values: Mapping[str, Any]) -> Row:
    """Return a row with its chosen values, or with those of the row that it follows."""
    return replace(row, tuned=dict(values), tuned_at=tried_by(study, row)[1] or "/tune/values")


def wrong_tuning(study: StudySettings, base: Base, rows: Sequence[Planned]) -> Iterator[Finding]:
    """Yield a finding for each setting of `tune`, `target` and `sequential` that cannot be."""
    yield from _unmeasured(study, base, rows)
    if study.tune is None:
        return
    counts = dict[str, int]()
    for row in (planned.row for planned in rows):
        if tried_by(study, row)[0]:
            counts[row.name] = sum(1 for _ in trial_rows(study, row))
            yield from _set_twice(study, base, row)
    if len(set(counts.values())) > 1:
        least, most = (pick(counts, key=lambda name: counts[name]) for pick in (min, max))
        yield Finding(
            code="Y11",
            level="warning",
            at="/tune",
            problem=f"the row '{most}' tries {counts[most]} combinations of values, and '{least}'"
            f" {counts[least]}: the row that tries more has the better chance",
            help="list equally many values in all rows, or limit 'trials'",
            source=base.study,
        )


def _set_twice(study: StudySettings, base: Base, row: Row) -> Iterator[Finding]:
    """Yield a finding for each setting that a row tries and that is set, or that a study sets."""
    values, at = tried_by(study, row)
    row_at = row.at + pointer("set") if row.at else ""
    written = [(row_at, path) for path in row.change.set] + [("/set", path) for path in study.set]
    for name, (set_at, path) in itertools.product(values, written):
        if f"{path}.".startswith(f"{name}.") or f"{name}.".startswith(f"{path}."):
            yield Finding(
                code="Y10",
                at=set_at + pointer(path) if set_at else at,
                problem=f"'{path}' is set, and '{name}' is tuned",
                evidence=(f"in the row '{row.name}'",),
                help='remove one of them, or set "tune": false in the row',
                source=base.study,
            )
    for name in filter(_OWNERS.get, values):
        yield Finding(
            code="Y10",
            at=at + pointer(name),
            problem=f"the study determines '{name}' by its '{_OWNERS[name]}'",
            help="tune another setting",
            source=base.study,
        )


def _unmeasured(study: StudySettings, base: Base, rows: Sequence[Planned]) -> Iterator[Finding]:
    """Yield a finding for each metric that the validations of a row do not measure."""
    places = {"/tune/metric": study.tune.metric} if study.tune is not None else {}
    if study.target is not None:
        places["/target/metric"] = study.target.metric
    for planned in rows:
        run = planned.run
        names = [metric.name for metric in run.metrics()]
        for at, name in places.items():
            code = "Y10" if at.startswith("/tune") else "Y12"
            if name is not None and name not in names:
                yield Finding(
                    code=code,
                    at=at,
                    problem=f"validations do not measure '{name}'",
                    evidence=(f"in the row '{planned.name}'",),
                    help=did_you_mean(name, names) or "add it to 'evaluate.metrics' of the run",
                    source=base.study,
                )
                continue
            if code == "Y10":  # a tuning measures checkpoints
                findings = losses_of_training(planned.graph, [(chosen_metric(run, name), at)])
                yield from (replace(finding, source=base.study) for finding in findings)


def chosen_metric(run: Run, name: str | None) -> Metric:
    """Return a metric of the validations of a run by its name; None is the one of `best`.

    Raises:
        ValueError: there is no such metric.
    """
    name = run.best if name is None else name
    for metric in run.metrics():
        if metric.name == name:
            return metric
    raise ValueError(name)


def best_of(values: Sequence[float | None], *, higher_is_better: bool) -> int | None:
    """Return the number of the best value, the first of equal ones; None if there is none.

    Args:
        values: the value of each trial; None or NaN if it failed.
        higher_is_better: whether the metric is maximized.
    """
    finite = [
        (value if higher_is_better else -value, -number)
        for number, value in enumerate(values)
        if value is not None and math.isfinite(value)
    ]
    return -max(finite)[1] if finite else None


def edges_of(tried: Sequence[Mapping[str, Any]], chosen: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each chosen number that is the least or the largest of those tried.

    Zero as the least is no edge: it often turns something off.

    >>> edges_of([{"rate": 1}, {"rate": 2}], {"rate": 2})
    ["'rate' = 2 is the largest value that was tried"]
    """
    sentences = []
    for name, value in chosen.items():
        listed = [point[name] for point in tried]
        if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in listed):
            continue
        for extreme, word in ((min(listed), "least"), (max(listed), "largest")):
            if value == extreme and not (word == "least" and value == 0):
                sentences.append(f"'{name}' = {value:g} is the {word} value that was tried")
    return sentences
