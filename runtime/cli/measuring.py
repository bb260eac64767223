"""How `weft evaluate` measures the answers of a model on a test set."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...specs.files import write_beside
from ...specs.findings import InputError
from ..metrics.digits import aligned
from .common import terminal
from .common.command import wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..decode.predictors.text import Warn
    from ..metrics.metric import Measured, Metric
    from ..model.model import Model

    Answers = Callable[[list[dict[str, Any]], Callable[[int], None]], list[Any]]


def chosen_metrics(model: Model, names: Sequence[str]) -> Sequence[Metric]:
    """Return the metrics of a model: those that the user gave, or those of its run.

    Args:
        model: the model.
        names: values of `--metric`; none for the metrics of the run or, of an imported model, of
            translations.

    Raises:
        InputError: a metric does not exist or does not fit the run.
    """
    from ..metrics.registry import METRICS
    from ..metrics.text import TRANSLATION
    from ..train.checks.metrics import wrong_metrics

    chosen = [METRICS.parse(name, "--metric") for name in names]
    run = None if model.trained is None else model.answering.run
    if not chosen:
        return TRANSLATION if run is None else run.metrics()
    for metric in chosen:
        if metric.needs == "losses":
            raise wrong("--metric", f"'{metric.name}' is no metric of predictions")
        if run is None:
            if metric.column or "text" not in (metric.takes or ("text",)):
                problem = f"'{metric.name}' does not measure translations"
                raise InputError(problem, location="--metric", help="give bleu, chrf or ter")
        elif model.strategy is None:
            problem = f"'{metric.name}' needs predictions, and the run does not say how"
            raise InputError(problem, location="--metric", help="give --predictor")
        elif (metric.column or run.answers) is None:
            problem = f"'{metric.name}' has no column to compare with: the run has no 'answers'"
            raise InputError(problem, location="--metric", help=f"give {metric.type}:COLUMN")
    if run is not None:
        for finding in wrong_metrics(run, [(metric, "") for metric in chosen]):
            raise InputError(finding.problem, location="--metric", help=finding.help)
    return chosen


def evaluated(
    model: Model,
    name: str,
    rows: list[dict[str, Any]],
    metrics: Sequence[Metric],
    out: str | None,
    *,
    shown: bool,
    answered: Answers | None = None,
) -> dict[str, Any]:
    """Return the metrics of a model on a test set.

    Args:
        model: the model.
        name: name of the test set.
        rows: its rows.
        metrics: as `chosen_metrics` returns them.
        out: file for the answers: texts as lines, others as JSON lines.
        shown: whether to print the report.
        answered: returns the answers to rows, and calls a function with the number of further
            rows that are answered; default: this process answers.

    Raises:
        InputError: a row does not fit the model.
    """
    from ..model.answering import as_json

    terminal.notice(f"{name}: predicting {len(rows):,} rows")
    counter = terminal.LineCounter("rows predicted")
    answers = (answered or partial(answers_of, model))(rows, counter.more)
    counter.close()
    if model.trained is None:
        scores = _imported(model, rows, metrics, answers)
    else:
        from ..train.measuring import measured

        scores = measured(model, rows, metrics, answers)
    if out:
        texts = all(isinstance(answer, str) for answer in answers)
        lines = (
            answer if texts else json.dumps(as_json(answer), ensure_ascii=False)
            for answer in answers
        )
        write_beside(Path(out), "".join(f"{line}\n" for line in lines).encode(), "file")
    used = {} if model.strategy is None else model.strategy.model_dump(mode="json")
    report = _report(name, len(rows), scores, used)
    report["intervals"] = _intervals(model, rows, metrics, answers)
    if shown:
        print(report_text(report))
    return report


def answers_of(
    model: Model,
    rows: list[dict[str, Any]],
    progress: Callable[[int], None] = lambda _: None,
    warn: Warn = lambda row, problem: terminal.warn(row, problem, "row"),
) -> list[Any]:
    """Return the answers of a model to rows.

    Args:
        model: the model.
        rows: the rows.
        progress: called with the number of further rows that are answered.
        warn: called with the number of a row, from 1, and what is wrong with its answer.

    Raises:
        InputError: a row does not fit the model.
    """
    if model.trained is None:
        return model.translate([row["source"] for row in rows], warn=warn)
    from ..train.measuring import predicted

    return predicted(model, rows, progress=progress, warn=warn)


def _intervals(
    model: Model,
    rows: Sequence[Mapping[str, Any]],
    metrics: Sequence[Metric],
    answers: Sequence[Any],
) -> dict[str, tuple[float, float]]:
    """Return the 95 % bootstrap intervals of the metrics that are functions of sums over rows."""
    from ..metrics.bootstrap import bootstrap_interval
    from ..metrics.metric import SumMetric

    column = "target" if model.trained is None else str(model.answering.run.answers)
    intervals = {}
    for metric in metrics if answers else ():
        if isinstance(metric, SumMetric):
            sums = metric.statistics(answers, metric.references(rows, column))
            intervals[metric.name] = bootstrap_interval(sums, metric.value_of)
    return intervals


def _imported(
    model: Model,
    rows: list[dict[str, Any]],
    metrics: Sequence[Metric],
    answers: Sequence[Any],
) -> dict[str, Measured]:
    """Return metrics and perplexity of an imported translation model."""
    from ..metrics.metric import Measured as Value

    scores: dict[str, Measured] = {
        metric.name: metric.measure(answers, metric.references(rows, "target"))
        for metric in metrics
    }
    scored = model.score([(row["source"], row["target"]) for row in rows])
    tokens = sum(len(score.log_probabilities) for score in scored)
    total = sum(sum(score.log_probabilities) for score in scored)
    return {**scores, "perplexity": Value(math.exp(-total / max(tokens, 1)))}


def _report(
    name: str, rows: int, scores: dict[str, Measured], predictor: dict[str, Any]
) -> dict[str, Any]:
    """Return the report of a test set as plain data."""
    return {
        "test": name,
        "rows": rows,
        "scores": {key: score.value for key, score in scores.items()},
        "signatures": {key: score.signature for key, score in scores.items() if score.signature},
        "details": {key: dict(score.details) for key, score in scores.items() if score.details},
        "predictor": predictor,
    }


def report_text(report: dict[str, Any]) -> str:
    """Return the report of a test set as text."""
    width = max(map(len, report["scores"]), default=0)
    used = report["predictor"]
    search = [f"{key} {used[key]}" for key in ("beam", "alpha") if key in used]
    how = ", ".join(filter(None, (str(used.get("type", "")), *search)))
    lines = [f"{report['test']}: {report['rows']:,} rows" + (f", {how}" if how else "")]
    for name, value in report["scores"].items():
        signature, interval = report["signatures"].get(name, ""), report["intervals"].get(name)
        within = f"[{aligned(interval[0], 4)}, {aligned(interval[1], 4)}]" if interval else ""
        lines.append(
            f"  {name:{width}}  {aligned(value, 4):>10}  {within:22}  {signature}".rstrip()
        )
    if not report["scores"]:
        lines.append("  no scores: the run has no metric that a checkpoint can be measured with")
    if report["intervals"]:
        lines.append("  in brackets: 95 % intervals, by resampling the rows")
    return "\n".join(lines)
