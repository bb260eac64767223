"""Forms of the files of a study: its plan, and the tasks of its jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from .costs import Costs

DIGITS: int = 16
KEY: str = rf"[0-9a-f]{{{DIGITS}}}"
"""Pattern of the key of a job, and of a folder of measurements."""


@dataclass(frozen=True, slots=True)
class StoredTask:
    """What is read of the task of a job, as `task.json` and `search.json` have it."""

    measured: Annotated[str, Field(pattern=f"^{KEY}$")]
    splits: list[str]
    metrics: list[dict[str, Any]]


_Jobs = dict[
    Annotated[str, Field(pattern=r"^\d{1,9}$")],
    Annotated[str, Field(pattern=f"^{KEY}$")],
]
"""Seed to the key of a run."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """Values that a row is tuned over."""

    values: dict[str, Any]
    costs: Costs
    jobs: _Jobs


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a plan."""

    name: str
    doc: str
    costs: Costs
    seconds: float
    changes: list[str]
    solved: str
    jobs: _Jobs
    label: str = ""
    ladder: str = ""
    tuned: dict[str, Any] = field(default_factory=dict)
    trials: list[_Trial] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """The plan of a study without the places of a machine, as `plan.json` has it."""

    study: str
    findings: list[dict[str, Any]]
    rows: Annotated[list[_Row], Field(min_length=1)]
    document: dict[str, Any]
    overrides: list[str]

    def __post_init__(self) -> None:
        """Check that all rows that have runs have the same seeds, or the first of them."""
        longest = max((tuple(row.jobs) for row in self.rows), key=len)
        least = 0 if self.document.get("sequential") else len(longest)
        begun = [tuple(row.jobs) for row in self.rows if row.jobs]
        if any(seeds != longest[: max(least, len(seeds))] for seeds in begun):
            raise ValueError("the rows have different seeds")


@dataclass(frozen=True, slots=True)
class LocalPlan(StoredPlan):
    """The plan in the folder of a study."""

    folder: str
    source: str
