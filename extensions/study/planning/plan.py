"""The plan of a study: every row checked, costed and compared with the baseline."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ....graphs.diff.changes import Change
from ....graphs.diff.diff import GraphDiff, diff
from ....graphs.diff.text import rows as lines_of
from ....plugin import (
    Finding,
    Graph,
    InputError,
    Objective,
    SpecError,
    deployed_graph,
    plan_value,
    pointer,
)
from ....runtime.train.costs import project
from ..document import Row, StudySettings, rows_of
from ..procedure import Match
from .base import Base, Run, base_of, held_model, placed, read_run, row_value
from .checks import copies, of_measuring, of_rows, of_study
from .costs import costs_of, quantity
from .identity import DataDigests, digest_of, job_key, signature
from .ladders import wrong_ladders
from .match import Solution, solve
from .planned import Planned
from .space import axes_of, probes_of, without_effect, wrong_settings
from .tune import trial_rows, tuned_row, wrong_tuning

_IN_ROW = re.compile("in the row '[^']*'")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """A study with all its rows, and what is wrong with it."""

    study: StudySettings
    source: str
    base: Base | None
    rows: tuple[Planned, ...]
    findings: tuple[Finding, ...]

    @property
    def required_base(self) -> Base:
        """The base run.

        Raises:
            ValueError: it could not be read.
        """
        if self.base is None:
            raise ValueError(self.source)
        return self.base

    @property
    def errors(self) -> list[Finding]:
        """Findings because of which nothing is trained."""
        return [finding for finding in self.findings if finding.level == "error"]

    @property
    def baseline(self) -> Planned:
        """The row that the others are compared with."""
        return next(row for row in self.rows if row.name == self.study.compare.baseline)

    def changes(self, planned: Planned) -> list[str]:
        """Return the differences of a row from the baseline, one line each."""
        lines = [str(line) for line in lines_of(difference(self.baseline, planned)[2].changes)]
        return [*lines, *_settings(self.baseline.value, planned.value)]


def difference(old: Planned, new: Planned) -> tuple[Graph, Graph, GraphDiff]:
    """Return the two graphs of which the difference of two rows is shown, and the difference.

    They are the deployed models, or the objectives if these differ elsewhere too.  Specs that
    compute the same, of which only names or docs differ, have no changes.
    """
    full_diff = diff(old.graph, new.graph)
    if any(_is_of_objective(change, old.graph) for change in full_diff.changes):
        return old.graph, new.graph, full_diff
    models = deployed_graph(old.graph), deployed_graph(new.graph)
    model_diff = diff(*models)
    return *models, replace(model_diff, changes=()) if model_diff.equal else model_diff


def _is_of_objective(change: Change, objective: Graph) -> bool:
    """Return whether a change is outside the deployed model, or is one of its wires."""
    inside = f"{objective.deploy}."
    if change.kind == "tie":
        groups = [*change.before, *change.after]
        return not all(weight.startswith(inside) for group in groups for weight in group)
    if change.path == objective.deploy:
        return change.kind != "template"
    return change.kind != "spec" and not change.path.startswith(inside)


def plan_study(
    study: StudySettings, source: str, flops_per_second: Callable[[Run], float] | None = None
) -> JobPlan:
    """Check all rows of a study and return them with their costs.

    Nothing is trained and no data is prepared; the files of the data are read for their digest.

    Args:
        study: the study.
        source: its file.
        flops_per_second: speed with which a run trains, for the limit on its duration; None
            checks no duration.
    """

    def failed(findings: list[Finding]) -> JobPlan:
        all_findings = tuple(findings)
        return JobPlan(study=study, source=source, base=None, rows=(), findings=all_findings)

    rows, base, wrong = None, None, list[Finding]()
    try:
        rows = rows_of(study, source)
    except InputError as error:
        wrong += _findings(error, source)
    try:
        base = base_of(study, source)
    except InputError as error:
        wrong += _findings(error, source)
    if rows is None or base is None:
        return failed(wrong)
    first = next(row for row in rows if row.name == study.compare.baseline)
    baseline = planned_row(study, base, first, None, wrong)
    if baseline is None:
        return failed([*wrong, *_of_other_rows(study, base, rows, first, wrong)])
    rows_planned = []
    for row in rows:
        planned = baseline if row is first else planned_row(study, base, row, baseline, wrong)
        rows_planned += [planned] if planned is not None else []
    wrong += of_study(study, base, rows_planned)
    wrong += wrong_tuning(study, base, rows_planned)
    wrong += wrong_ladders(study, base, rows_planned)
    rows_planned = [with_trials(study, base, row, baseline, wrong) for row in rows_planned]
    wrong += of_rows(study, base, rows_planned, baseline, flops_per_second)
    digests = DataDigests()
    wrong += _of_space(study, base, baseline, digests)
    if not [finding for finding in wrong if finding.level == "error"]:
        rows_planned = [with_keys(study, planned, digests) for planned in rows_planned]
        wrong += copies(rows_planned, base.study)
    return JobPlan(
        study=study, source=source, base=base, rows=tuple(rows_planned), findings=_once(wrong)
    )


def _of_other_rows(
    study: StudySettings, base: Base, rows: Iterable[Row], first: Row, findings: Iterable[Finding]
) -> list[Finding]:
    """Return what is wrong with the rows besides the mistakes of the baseline.

    Args:
        study: the study.
        base: its base run.
        rows: all rows.
        first: the baseline, which is wrong.
        findings: its findings.
    """
    wrong: list[Finding] = []
    for row in rows:
        if row is not first:
            planned_row(study, base, row, None, wrong)
    reported = {(finding.code, finding.problem) for finding in findings}
    return [finding for finding in _once(wrong) if (finding.code, finding.problem) not in reported]


def _once(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings of which only the rows differ once, as of the levels of a factor."""
    unique: dict[Finding, Finding] = {}
    for finding in findings:
        evidence = tuple(_IN_ROW.sub("", line) for line in finding.evidence)
        unique.setdefault(replace(finding, evidence=evidence), finding)
    return tuple(unique.values())


def _of_space(
    study: StudySettings, base: Base, baseline: Planned, digests: DataDigests
) -> list[Finding]:
    """Return the findings about the space of a search: each value of each factor is tried alone."""
    axes = axes_of(study)
    wrong = [*wrong_settings(study, axes, baseline, base.study)]
    for axis in axes:
        probes = [planned_row(study, base, row, baseline, wrong) for row in probes_of(axis)]
        planned_probes = [with_keys(study, probe, digests) for probe in probes if probe is not None]
        wrong += of_measuring(study, base, planned_probes)
        wrong += without_effect(axis, planned_probes, base.study)
    return wrong


def with_trials(
    study: StudySettings, base: Base, planned: Planned, baseline: Planned, wrong: list[Finding]
) -> Planned:
    """Return a row with what it is tuned over.

    Args:
        study: the study.
        base: its base run.
        planned: the row.
        baseline: as of `planned_row`.
        wrong: receives the findings of values that are wrong.
    """
    trials = [
        planned_row(study, base, row, baseline, wrong, trial=True)
        for row in trial_rows(study, planned.row)
    ]
    return replace(planned, trials=tuple(trial for trial in trials if trial is not None))


def with_choice(
    plan: JobPlan, planned: Planned, values: Mapping[str, Any], digests: DataDigests
) -> Planned:
    """Return a row with its tuned values.

    Args:
        plan: a plan without errors.
        planned: the row before it was tuned.
        values: the chosen values by setting.
        digests: digests of the data.

    Raises:
        SpecError: the row is wrong, as when its data has changed since.
    """
    wrong: list[Finding] = []
    row = tuned_row(plan.study, planned.row, values)
    chosen = planned_row(plan.study, plan.required_base, row, plan.baseline, wrong)
    if chosen is None:
        raise SpecError(wrong)
    return with_keys(plan.study, replace(chosen, trials=planned.trials), digests)


def with_keys(
    study: StudySettings, planned: Planned, digests: DataDigests, seeds: Iterable[int] = ()
) -> Planned:
    """Return a row with the keys of its jobs, which need the digests of its data.

    Args:
        study: the study.
        planned: the row.
        digests: digests of the data.
        seeds: seeds of the jobs; by default those that the study begins with.
    """
    data = digests.of(planned.run)
    if others := digests.others(planned.run):
        data = digest_of([data, *others])

    def keys(row: Planned, of: Iterable[int]) -> dict[int, str]:
        return {seed: job_key(row.signature, seed, data) for seed in of}

    tuning = study.seeds[: study.tune.seeds] if study.tune is not None else ()
    trials = tuple(replace(trial, keys=keys(trial, tuning)) for trial in planned.trials)
    return replace(planned, keys=keys(planned, tuple(seeds) or study.seeds), trials=trials)


def _findings(error: InputError, source: str) -> list[Finding]:
    if isinstance(error, SpecError):
        return list(error.findings)
    location, _, at = error.location.partition("#")
    file = source if location in ("", source) else location  # with its text, to show the line
    return [Finding(code="Y01", at=at, problem=error.problem, help=error.help, source=file)]


def planned_row(
    study: StudySettings,
    base: Base,
    row: Row,
    baseline: Planned | None,
    wrong: list[Finding],
    *,
    trial: bool = False,
) -> Planned | None:
    """Return a row with its costs.

    Args:
        study: the study.
        base: its base run.
        row: the row.
        baseline: the row that `match` makes it as large as; None solves nothing.
        wrong: receives the findings of a row that is wrong.
        trial: whether the row tries values, with the updates of the tuning and without a target.

    Returns:
        The row; None if it is wrong.
    """
    try:
        value, solution = row_value(base, row), None
        if baseline is not None:
            value, solution = _matched(study, base, row, value, baseline)
        value = _budgeted(study, base, value)
        value = _for_trial(study, value) if trial else _until(study, value)
        run, objective = _finished(study, base, value)
        costs = costs_of(run, objective.graph)
    except InputError as error:
        wrong += placed(tuple(_findings(error, base.source)), base, row)
        return None
    return Planned(
        row=row,
        value=value,
        run=run,
        graph=objective.graph,
        costs=costs,
        signature=signature(run, objective.graph),
        solution=solution,
    )


def _finished(study: StudySettings, base: Base, value: dict[str, Any]) -> tuple[Run, Objective]:
    """Return a run and its objective.

    Raises:
        InputError: a file of the run does not exist.
        SpecError: the run has mistakes, as `weft check RUN` reports them; those of its schedule
            name the updates of the budget.
    """
    try:
        return plan_value(value, base.source, objectives=base.objectives).required()
    except SpecError as error:
        if not study.budget.counts:
            raise
        by = f"the budget of the study gives the run {value['updates']:,} updates"
        findings = [
            replace(finding, evidence=(*finding.evidence, by))
            if finding.at.startswith("/schedule")
            else finding
            for finding in error.findings
        ]
        raise SpecError(findings) from error


def _matched(
    study: StudySettings, base: Base, row: Row, value: dict[str, Any], baseline: Planned
) -> tuple[dict[str, Any], Solution | None]:
    """Return the run of a row with its matched param.

    Raises:
        InputError: no value of the param makes the row as large as the baseline.
    """
    row_match = row.change.match
    match = study.match if row_match is None else row_match
    if not match:
        return value, None
    target = quantity(deployed_graph(baseline.graph), match.quantity)
    if _size(value, base, match) == target:
        return value, None
    if match.param in row.change.params:
        raise _y04(base, row, f"the row sets '{match.param}', which is also matched")
    name, model = held_model(value, base, row)

    def with_param(number: int) -> dict[str, Any]:
        params = {**model.get("params", {}), match.param: number}
        return {**value, "params": {**value.get("params", {}), name: {**model, "params": params}}}

    try:
        solution = solve(match, target, lambda number: _size(with_param(number), base, match))
    except SpecError as error:
        at = ("" if row_match is None else row.at) + pointer("match", "param")
        raise SpecError(_of_match(error.findings, match, at, base)) from error
    except InputError as error:
        raise _y04(base, row, error.problem, error.help) from error
    return with_param(solution.value), solution


def _y04(base: Base, row: Row, problem: str, help_: str = "") -> SpecError:
    help_ = help_ or 'leave the param out, or set "match": false in the row'
    return SpecError(
        [Finding(code="Y04", at=row.at, problem=problem, help=help_, source=base.study)]
    )


def _of_match(findings: Iterable[Finding], match: Match, at: str, base: Base) -> Iterator[Finding]:
    """Yield the findings about a value that `match` has tried, at the place of its param."""
    for finding in findings:
        evidence = (*finding.evidence, f"'match' solves for '{match.param}', a whole number")
        yield replace(finding, at=at, source=base.study, evidence=evidence, fix=None, placed=True)


def _size(value: dict[str, Any], base: Base, match: Match) -> int:
    objective = base.objectives.of(read_run(value, base.source), base.source)
    return quantity(deployed_graph(objective.graph), match.quantity)


def _budgeted(study: StudySettings, base: Base, value: dict[str, Any]) -> dict[str, Any]:
    """Return a run with the number of updates that the budget gives it."""
    budget, updates = study.budget, study.budget.updates
    if budget.tokens is not None or budget.flops is not None:
        run = read_run(value, base.source)
        work = project(run, base.objectives.of(run, base.source).graph)
        tokens = budget.tokens or float(budget.flops or 0) / work.flops_per_token
        updates = max(1, int(tokens / work.tokens_per_update))
    if updates is None:
        return value
    return {**value, "updates": updates}


def _for_trial(study: StudySettings, value: dict[str, Any]) -> dict[str, Any]:
    """Return a run with the number of updates that the tuning gives it."""
    updates = study.tune.updates if study.tune is not None else None
    return value if updates is None else {**value, "updates": updates}


def _until(study: StudySettings, value: dict[str, Any]) -> dict[str, Any]:
    """Return a run that stops at the target of the study, if it has one that stops."""
    if study.target is None or not study.target.stop:
        return value
    until = {study.target.metric: study.target.value}
    return {**value, "evaluate": {**value.get("evaluate", {}), "until": until}}


def _settings(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield the settings in which two runs differ, without the params of their objectives."""
    for key in sorted(old.keys() | new.keys()):
        if not path and key in ("params", "name", "doc"):
            continue
        before, right = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(right, dict):
            yield from _settings(before, right, f"{path}{key}.")
        elif before != right:
            yield f"~ run {path}{key}  {before} -> {right}"
