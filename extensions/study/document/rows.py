"""Rows of a study: those that are written, and those of its grid."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....specs.findings import Finding, SpecError, pointer
from .change import Change, Factor
from .settings import BASELINE, MOST_ROWS, StudySettings


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a study."""

    name: str
    change: Change
    at: str
    """JSON Pointer to where the row is written; `""` for the base run."""


def rows_of(study: StudySettings, source: str) -> list[Row]:
    """Return all rows of a study, the base run first.

    Args:
        study: the study.
        source: its file, for findings.

    Raises:
        SpecError: two rows have one name, there are too many, or levels cannot be combined.
    """
    rows = [Row(BASELINE, Change(), "")]
    rows += [Row(name, change, pointer("rows", name)) for name, change in study.rows.items()]
    if study.grid is not None:
        levels = {name: dict(levels_of(factor)) for name, factor in study.grid.factors.items()}
        counts = [len(values) for values in levels.values()]
        total = _product(counts) if study.grid.cross else sum(counts)
        if total + len(rows) > MOST_ROWS:
            raise SpecError([_too_many(total, source)])
        rows += _crossed(levels, source) if study.grid.cross else _alone(study.grid.factors)
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


def _product(counts: Sequence[int]) -> int:
    product = 1
    for count in counts:
        product *= count
    return product


def _too_many(total: int, source: str) -> Finding:
    return Finding(
        code="Y01",
        at="/grid",
        problem=f"the grid has {total:,} rows, and a study at most {MOST_ROWS:,}",
        help="remove levels, or set 'cross' to false",
        source=source,
    )


def levels_of(factor: Factor) -> Iterator[tuple[str, Change]]:
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
            yield short, Change(params={factor.param: value})
        else:
            yield short, Change(set={str(factor.set): value})


_Levels = Mapping[str, Mapping[str, Change]]


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


def joined(changes: Sequence[Change], name: str, source: str, at: str = "/grid") -> Change:
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
    return Change(**{**merged, "doc": " ".join(docs)})
