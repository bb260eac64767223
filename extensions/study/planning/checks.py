"""Checks of a study that need all of its rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ....plugin import (
    Finding,
    InputError,
    chosen_predictor,
    deployed_graph,
    did_you_mean,
    losses_of_training,
    pointer,
    unknown_losses,
    wrong_metrics,
)
from ..document import Factor, StudySettings
from .base import Base, Run, held_model, sibling_of
from .planned import Planned

_OTHER_SIZE = 1.5
"""From which factor on the size of a row is most likely not meant."""
_WHOLE = 10
"""Number of seconds from which they are rounded to whole ones."""
_UNITS = {
    "parameters": "parameters",
    "flops": "FLOPs",
    "decode_state": "bytes of decoding state",
    "memory": "bytes of memory",
}
"""What each quantity of a requirement counts."""


def of_study(study: StudySettings, base: Base, rows: Sequence[Planned]) -> list[Finding]:
    """Return the findings about settings of the study without effect or without a meaning."""
    findings = [*_own_settings(study, base), *of_measuring(study, base, rows)]
    if len(study.seeds) == 1:
        findings.append(
            Finding(
                code="Y06",
                level="warning",
                at="/seeds",
                problem="with one seed, tests compare these trained models, not how they were made",
                help="give two seeds or more, so that the spread over seeds is measured",
                source=base.study,
            )
        )
    return findings


def _own_settings(study: StudySettings, base: Base) -> Iterator[Finding]:
    """Yield a finding for each setting of a run that the study itself determines."""
    owners = {"seed": "seeds", "name": "name"}
    owners |= {"data.root": "root"} if study.root is not None else {}
    owners |= {"updates": "budget"} if study.budget.counts else {}
    places = [("/set", study.set)]
    places += [(pointer("rows", n, "set"), row.set) for n, row in study.rows.items()]
    written: list[tuple[str, str, Any]] = []
    factors: list[tuple[str, tuple[str, Factor]]]
    factors = [
        ("search", entry) for entry in (study.search.factors.items() if study.search else ())
    ]
    factors += [("grid", entry) for entry in (study.grid.factors.items() if study.grid else ())]
    for kind, (name, factor) in factors:
        at = pointer(kind, "factors", name)
        if factor.set in owners:
            written.append((at + pointer("set"), factor.set, None))
        elif factor.set is not None:
            values = enumerate(factor.values)
            written += [(at + pointer("values", n), factor.set, value) for n, value in values]
        places += [
            (at + pointer("levels", n, "set"), change.set) for n, change in factor.levels.items()
        ]
    for at, settings in places:
        written += [(at + pointer(path), path, value) for path, value in settings.items()]
    for at, path, value in written:
        for owned in owners:
            if path == owned or _contains(value, path, owned):
                yield Finding(
                    code="Y07",
                    at=at,
                    problem=f"the study determines '{owned}' by its '{owners[owned]}'",
                    help="remove it",
                    source=base.study,
                )


def _contains(value: Any, path: str, inner: str) -> bool:
    """Return whether the value of a setting has the setting of a longer path."""
    if not inner.startswith(f"{path}."):
        return False
    for name in inner.removeprefix(f"{path}.").split("."):
        if not isinstance(value, dict) or name not in value:
            return False
        value = value[name]
    return True


def of_measuring(study: StudySettings, base: Base, rows: Sequence[Planned]) -> Iterator[Finding]:
    """Yield a finding for each setting of `measure` that a run cannot fulfill."""
    measure = study.measure

    def wrong(at: str, problem: str, help_: str) -> Finding:
        return Finding(
            code="Y07",
            at=f"/measure{at}",
            problem=problem,
            evidence=(f"in the row '{row.name}'",),
            help=help_,
            source=base.study,
        )

    for row in rows:
        tests = row.run.data.test
        for number, name in enumerate(measure.tests or ()):
            if name not in tests:
                help_ = did_you_mean(name, tests) or "add it to 'data.test' of the run"
                yield wrong(f"/tests/{number}", f"the run has no test set '{name}'", help_)
        metrics = measure.metrics or row.run.metrics()
        places = [(metric, f"/measure/metrics/{n}") for n, metric in enumerate(measure.metrics)]
        unfit = [*wrong_metrics(row.run, places), *unknown_losses(row.graph, places)]
        if not measure.metrics and all(metric.needs == "losses" for metric in metrics):
            places = [(metrics[0], "/measure/metrics")]
        unfit += losses_of_training(row.graph, places)
        yield from (replace(finding, source=base.study) for finding in unfit)
        predicted = [metric.name for metric in metrics if metric.needs == "predictions"]
        if predicted and (row.run.predict is None or row.run.answers is None):
            problem = f"'{predicted[0]}' needs predictions, and the run does not say how"
            yield wrong("/metrics", problem, "add 'predict' and 'answers' to the run")
        if measure.predict and row.run.predict is None:
            yield wrong("/predict", "the run does not predict", "remove it")
        elif measure.predict and row.run.predict is not None:
            try:
                chosen_predictor(row.run.predict, measure.predict, "measure.predict")
            except InputError as error:
                yield wrong("/predict", error.problem, error.help)
        checkpoint = row.run.checkpoint
        if measure.checkpoint == "averaged" and checkpoint.average == 0 and checkpoint.ema is None:
            help_ = "set it to 'best', or 'checkpoint.average' or 'checkpoint.ema' of the run"
            yield wrong("/checkpoint", "the run averages nothing", help_)


def copies(rows: Sequence[Planned], source: str) -> Iterator[Finding]:
    """Yield a finding for each row that trains the same as an earlier one.

    Args:
        rows: rows with the keys of their jobs.
        source: file of the study.
    """
    by_keys: dict[tuple[str, ...], Planned] = {}
    for row in rows:
        first = by_keys.setdefault(tuple(row.keys.values()), row)
        if first is row:
            continue
        same = f"the row '{row.name}' is the same graph with the same settings and data as"
        same += f" '{first.name}'"
        if first.run.data.test == row.run.data.test:
            yield Finding(
                code="Y02",
                level="warning",
                at=row.row.at,
                problem=f"{same}, so both are trained once",
                help="remove one of them, or check whether its change has an effect",
                source=source,
            )
        else:
            yield Finding(
                code="Y02",
                at=row.row.at,
                problem=f"{same}, except for its test sets, on which it would not be measured",
                help="remove the row, and add its test sets to 'data.test' of the run with names of"
                " their own",
                source=source,
            )


def of_rows(
    study: StudySettings,
    base: Base,
    rows: Sequence[Planned],
    baseline: Planned,
    flops_per_second: Callable[[Run], float] | None,
) -> list[Finding]:
    """Return the findings about rows that are too long or too large."""
    findings = list[Finding]()
    for row in rows:
        limit = study.budget.seconds
        if limit is not None and flops_per_second is not None:
            seconds = row.costs.seconds(flops_per_second(row.run))
            if seconds > limit:
                time = _rounded(seconds)
                findings.append(
                    Finding(
                        code="Y03",
                        at=row.row.at or "/budget/seconds",
                        problem=f"a run of the row '{row.name}' takes about {time} s, more"
                        f" than {_rounded(limit)}",
                        help="lower 'updates', or raise 'seconds' of the budget",
                        source=base.study,
                    )
                )
        findings += _required(study, base, row, baseline)
        findings += _other_size(base, row, baseline)
    return findings


def _other_size(base: Base, row: Planned, baseline: Planned) -> Iterator[Finding]:
    """Yield a warning if `extends` makes a row larger or smaller than the baseline by its params.

    A row that does not keep the params of the base run's spec has those of the other spec, except
    those that the base run sets.  What another architecture adds is not reported unless it is much.
    """
    parameters, other = row.costs.parameters, baseline.costs.parameters
    if row.row.change.extends is None or row.solution is not None or not parameters or not other:
        return
    times = max(parameters, other) / min(parameters, other)
    before, after = (deployed_graph(planned.graph).params for planned in (baseline, row))
    params = {name: before[name] for name in after if before.get(name, after[name]) != after[name]}
    written = deployed_graph(baseline.graph).spec.params  # others follow from these
    numbers = {
        name: value
        for name, value in params.items()
        if isinstance(value, int | float) and isinstance(written.get(name), int | float)
    }
    keeps = sibling_of(held_model(baseline.value, base, row.row)[1], base, row.row)
    if times < _OTHER_SIZE and (keeps or not numbers or parameters == other):
        return
    help_ = "'match' makes it as large as the baseline"
    if numbers:
        help_ = f'add "params": {json.dumps(numbers)} for those of the baseline, or {help_}'
    at, size = row.row.at, "large" if parameters > other else "small"
    yield Finding(
        code="Y09",
        level="warning",
        at=f"{at}/extends" if at.startswith("/rows/") or "/levels/" in at else at,
        problem=f"the row '{row.name}' has {parameters:,} parameters, and the baseline {other:,}:"
        f" '{row.row.change.parents[0]}' is {times:.3g} times as {size}",
        help=help_,
        source=base.study,
    )


def _rounded(seconds: float) -> str:
    """Return seconds as text.

    >>> _rounded(12345.6), _rounded(0.0123)
    ('12,346', '0.012')
    """
    return f"{seconds:,.0f}" if seconds >= _WHOLE else f"{seconds:.2g}"


def _required(
    study: StudySettings, base: Base, row: Planned, baseline: Planned
) -> Iterator[Finding]:
    for number, requirement in enumerate(study.require):
        value = getattr(row.costs, requirement.quantity)
        expected = getattr(baseline.costs, requirement.quantity)
        off = abs(value - expected) / expected if expected else float(value > 0)
        problems = []
        if requirement.most is not None and value > requirement.most:
            problems.append(f"more than {requirement.most:,.0f}")
        if requirement.within is not None and off > requirement.within:
            problems.append(f"{value - expected:+,} from the baseline's {expected:,}")
        for problem in problems:
            yield Finding(
                code="Y05",
                at=row.row.at or pointer("require", number),
                problem=f"the row '{row.name}' has {value:,} {_UNITS[requirement.quantity]},"
                f" {problem}",
                help="change the row, add 'match', or change the requirement",
                source=base.study,
            )
