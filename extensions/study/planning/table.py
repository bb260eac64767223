"""The plan of a study as text: costs of each row, differences, and the total."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....plugin import duration
from .base import Run
from .plan import JobPlan
from .planned import Planned

Speed = Callable[[Run], float]
"""FLOP/s with which a run trains."""


def size(count: float) -> str:
    """Return a number of bytes with a unit.

    >>> size(2048), size(5 << 20)
    ('2.0 KiB', '5.0 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":  # noqa: PLR2004
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def cost_rows(plan: JobPlan, flops_per_second: Speed) -> list[tuple[str, ...]]:
    """Return a table of the costs of the rows, with a header and a total."""
    head = ("row", "parameters", "", "FLOPs", "decoding", "memory", "updates", "one run", "all")
    rows: list[tuple[str, ...]] = [head]
    base, total = plan.baseline.costs, 0.0
    for row in plan.rows:
        costs = row.costs
        once = costs.seconds(flops_per_second(row.run))
        seconds = seconds_of_row(plan, row, flops_per_second)
        total += seconds or 0.0
        rows.append(
            (
                row.name,
                f"{costs.parameters:,}",
                percent(costs.parameters, base.parameters),
                percent(costs.flops, base.flops) or f"{costs.flops:,}",
                size(costs.decode_state) if costs.decode_state else "",
                size(costs.memory),
                f"{costs.updates:,}",
                duration(once),
                "" if seconds is None else duration(seconds),
            )
        )
    rows.append(("all", "", "", "", "", "", "", "", duration(total)))
    return rows


def percent(value: int, base: int) -> str:
    """Return by how much a value is larger than that of the baseline; `""` if it is equal.

    >>> percent(303, 300), percent(7, 7)
    ('+1.00%', '')
    """
    if value == base or not base:
        return ""
    return f"{value / base - 1:+.2%}"


def copied(plan: JobPlan, row: Planned) -> str:
    """Return the name of the first row that trains the same as a row; `""` if it is the first."""
    first = next(
        other for other in plan.rows if other is row or (row.keys and other.keys == row.keys)
    )
    return "" if first is row else first.name


def seconds_of_row(plan: JobPlan, row: Planned, flops_per_second: Speed) -> float | None:
    """Return the time of all runs of a row, one at a time; None if another row trains the same."""
    if copied(plan, row):
        return None
    seconds = row.costs.seconds(flops_per_second(row.run)) * len(row.keys or plan.study.seeds)
    return seconds + seconds_of_tuning(plan, row, flops_per_second)


def seconds_of_tuning(plan: JobPlan, row: Planned, flops_per_second: Speed) -> float:
    """Return the time of all trainings that tune a row, one at a time."""
    seeds = plan.study.tune.seeds if plan.study.tune is not None else 0
    once = sum(trial.costs.seconds(flops_per_second(trial.run)) for trial in row.trials)
    return once * seeds


def procedure(plan: JobPlan, flops_per_second: Speed) -> list[str]:
    """Return how a study goes on from its results: tuning, more seeds, a target; one line each."""
    study, lines = plan.study, []
    if study.tune is not None:
        counts = sorted({len(row.trials) for row in plan.rows if row.trials}) or [0]
        several = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        seconds = sum(seconds_of_tuning(plan, row, flops_per_second) for row in plan.rows)
        tuned = sum(bool(row.trials) for row in plan.rows)
        lines.append(
            f"tuning   {tuned} rows, {several} combinations of values each, {duration(seconds)} of"
            " the time of all"
        )
    if study.sequential is not None:
        looks = ", ".join(map(str, study.looks()))
        extra = study.looks()[-1] - len(study.seeds)
        lines.append(
            f"seeds    compared after {looks} seeds, so that at most {extra} more of a row train"
        )
    if study.target is not None:
        ends = ", where a run stops" if study.target.stop else ""
        lines.append(f"target   {study.target.metric} {study.target.value:g}{ends}")
    return lines


def search_cost(plan: JobPlan, flops_per_second: Speed) -> str:
    """Return the cost of the search of a study in words; `""` if it has none."""
    search = plan.study.search
    if search is None:
        return ""
    once = plan.baseline.costs.seconds(flops_per_second(plan.baseline.run))
    trial = once * len(plan.study.seeds[: search.seeds])
    seconds = trial * search.trials
    if search.seconds is not None:  # a trial that has begun goes on
        seconds = min(seconds, search.seconds + trial)
    pruned = "" if search.pruner == "none" else ", less with pruning"
    return f"{search.trials} trials, at most {duration(seconds)} at the baseline's speed{pruned}"


def solved(plan: JobPlan, row: Planned) -> str:
    """Return the value of the matched param of a row in words; `""` if there is none."""
    match = row.row.change.match or plan.study.match
    if row.solution is None or not match:
        return ""
    solution = row.solution
    difference = f"{solution.difference:+.2%} {match.quantity}"
    return f"{match.param} = {solution.value:,} by 'match', {difference}"


def plan_record(plan: JobPlan, flops_per_second: Speed) -> dict[str, Any]:
    """Return a plan as plain data."""
    return {
        "study": plan.study.name,
        "findings": [finding.as_json() for finding in plan.findings],
        "rows": [
            {
                "name": row.name,
                "doc": row.row.change.doc,
                "costs": row.costs.as_json(),
                "seconds": row.costs.seconds(flops_per_second(row.run)),
                "changes": plan.changes(row),
                "solved": solved(plan, row),
                "jobs": {str(seed): key for seed, key in row.keys.items()},
                "label": plan.study.labels.get(row.name, row.name),
                "ladder": row.row.ladder,
                "tuned": dict(row.row.tuned),
                "trials": [
                    {
                        "values": dict(trial.row.tuned),
                        "costs": trial.costs.as_json(),
                        "jobs": {str(seed): key for seed, key in trial.keys.items()},
                    }
                    for trial in row.trials
                ],
            }
            for row in plan.rows
        ],
    }
