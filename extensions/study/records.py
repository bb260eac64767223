"""What the methods of `Study` return, as plain records."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ... import Findings
from ...plugin import SpecError, check_suffix, write_beside
from .comparison import Comparison
from .jobs import Job, State, status_of
from .planning.base import Run
from .planning.plan import JobPlan
from .planning.table import Speed, cost_rows, plan_record, procedure, search_cost, solved
from .report.conclusions import conclude
from .report.labels import labelled
from .report.page import PAGE, pictures, plan_page
from .report.record import Record, primary_table
from .trials import StudyTrial


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRow:
    """A row of a study before it trains."""

    name: str
    doc: str
    parameters: int
    """Parameters of the deployed model."""
    flops: int
    """FLOPs of one forward pass of that model, for one sequence of 32 tokens."""
    decode_state: int
    """Bytes of its decoding state after 32 tokens."""
    memory: int
    """Bytes of training, by estimate."""
    updates: int
    seconds: float
    """Duration of one training, by estimate."""
    solved: str
    """The param that `match` has solved, in words; `""` if there is none."""
    changes: tuple[str, ...]
    """Differences from the baseline, one line each."""
    jobs: dict[int, str]
    """Seed to the key of its job; rows that train the same have the same keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPlan:
    """The rows of a study with their costs, and what is wrong with the study."""

    name: str
    findings: Findings
    rows: tuple[StudyRow, ...]
    """Empty if there are errors."""
    table: tuple[tuple[str, ...], ...]
    """Costs as text: a header, a line for each row, and the total."""
    search: str
    """Number and duration of the trials of its search, in words; `""` if it has none."""
    procedure: tuple[str, ...]
    """How the study goes on from its results: tuning, more seeds, a target; one line each."""
    plan: JobPlan = field(repr=False)
    speed: Speed = field(repr=False)

    @property
    def gigaflops(self) -> float:
        """Speed in GFLOP/s at which the baseline is estimated to train."""
        return self.speed(self.plan.baseline.run) / 1e9

    def as_json(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        if self.findings.errors:
            return {
                "study": self.name,
                "findings": [finding.as_json() for finding in self.findings],
            }
        return plan_record(self.plan, self.speed)

    def draw(self, out: str | Path) -> list[str]:
        """Write a page with the costs, the warnings, and the drawn difference of each row.

        It needs no network.

        Args:
            out: the file to write; its suffix is .html.

        Returns:
            Why rows that have a difference have no picture: one line for each problem, such as
            that graphviz is not installed.

        Raises:
            SpecError: the study has errors.
            InputError: the suffix is another one, or the file cannot be written.
        """
        check_suffix(Path(out), PAGE)
        if self.findings.errors:
            raise SpecError(self.findings.errors)
        drawn, problems = pictures(self.plan)
        write_beside(Path(out), plan_page(self.plan, self.speed, drawn).encode(), "page")
        return problems


def plan_of(plan: JobPlan, speed: Speed) -> StudyPlan:
    """Return a plan as records.

    Args:
        plan: the checked study.
        speed: FLOP/s with which a run trains.
    """
    rows = (
        () if plan.errors else tuple(_row(plan, speed, number) for number in range(len(plan.rows)))
    )
    return StudyPlan(
        name=plan.study.name,
        findings=Findings(plan.findings),
        rows=rows,
        table=() if plan.errors else tuple(cost_rows(plan, speed)),
        search="" if plan.errors else search_cost(plan, speed),
        procedure=() if plan.errors else tuple(procedure(plan, speed)),
        plan=plan,
        speed=speed,
    )


def _row(plan: JobPlan, speed: Speed, number: int) -> StudyRow:
    row = plan.rows[number]
    run: Run = row.run
    return StudyRow(
        name=row.name,
        doc=row.row.change.doc,
        parameters=row.costs.parameters,
        flops=row.costs.flops,
        decode_state=row.costs.decode_state,
        memory=row.costs.memory,
        updates=row.costs.updates,
        seconds=row.costs.seconds(speed(run)),
        solved=solved(plan, row),
        changes=() if row.name == plan.study.compare.baseline else tuple(plan.changes(row)),
        jobs=dict(row.keys),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyJob:
    """How far one training of a study is."""

    row: str
    seed: int
    job: str
    """Key of the job: the name of its folder in `jobs`."""
    state: State
    update: int
    """Updates that are done."""
    loss: float | None = None
    """Newest training loss."""
    valid: float | None = None
    """Newest validation loss."""
    seconds: float | None = None
    """Time of its training."""
    error: str = ""
    """Why the last attempt failed."""
    trial: str = ""
    """Values that it tries, in words; `""` if it is a training of the row itself."""


def status_of_jobs(jobs: Sequence[Job]) -> list[StudyJob]:
    """Return how far jobs are."""
    return [
        StudyJob(row=job.row, seed=job.seed, job=job.key, trial=job.trial, **status_of(job))
        for job in jobs
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyScore:
    """The value of a metric for one training."""

    row: str
    seed: int
    split: str
    """`valid`, or the name of a test set."""
    metric: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyReport:
    """The report of a study: what is done, and what follows from it."""

    record: Record = field(repr=False)
    """All figures as plain data, as in the JSON file of the report."""
    conclusions: tuple[str, ...]
    """What can be concluded by the first metric on the first test set, in sentences."""
    unclear: tuple[str, ...]
    """What cannot be concluded: differences that may be chance, and the limits of the study."""
    comparisons: tuple[Comparison, ...]
    """The comparisons behind them."""
    failed: dict[str, str]
    """Key of a job to why it failed."""
    paths: tuple[Path, ...]
    """The files that were written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySearch:
    """What a search has found."""

    trials: tuple[StudyTrial, ...]
    best: tuple[StudyTrial, ...]
    """The best trials that are done, the best first."""
    importances: dict[str, float]
    """Importance of each factor, between 0 and 1; empty if too few trials are done."""
    stopped_by: signal.Signals | None
    """The signal that stopped it, such as SIGINT; the next call continues."""
    paths: tuple[Path, ...]
    """The files of its report: JSON and Markdown."""


def report_of(record: Record, paths: Sequence[Path]) -> StudyReport:
    """Return the record of a report with its conclusions."""
    table = primary_table(record)
    seeds = [seed_run for row in record["rows"] for seed_run in row["seeds"].values()]
    can, cannot = conclude(labelled(record))
    return StudyReport(
        record=record,
        conclusions=tuple(can),
        unclear=tuple(cannot),
        comparisons=tuple(
            Comparison(**comparison) for comparison in (table["comparisons"] if table else ())
        ),
        failed={
            seed_run["job"]: seed_run["error"]
            for seed_run in seeds
            if seed_run["state"] in ("failed", "lost")
        },
        paths=tuple(paths),
    )


def scores_of(record: Record) -> list[StudyScore]:
    """Return the value of each metric, for each row, seed and split that is done."""
    return [
        StudyScore(row=row["name"], seed=int(seed), split=split, metric=metric, value=value)
        for row in record["rows"]
        for seed, seed_run in row["seeds"].items()
        for split, split_scores in seed_run.get("splits", {}).items()
        for metric, value in split_scores["scores"].items()
    ]
