"""The tuning of the rows of a study: the value of each combination, and the one that was chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ....plugin import METRICS
from ..document import StudySettings
from ..jobs import SEARCH_TASK, Job, values_text
from ..planning.tune import edges_of
from ..results import score_of

Record = dict[str, Any]


def tunings_of(rows: Sequence[Record], study: StudySettings, out: Path) -> Record | None:
    """Return what each row tried, the values on the validation data, and the choice.

    Args:
        rows: rows of the plan.
        study: the study.
        out: its folder.

    Returns:
        The tuning; None if nothing is tuned, or nothing has been written yet.
    """
    tuned = [row for row in rows if row["trials"]]
    if study.tune is None or not tuned:
        return None
    metric, by_row = None, {}
    for row in tuned:
        points = []
        for trial in row["trials"]:
            jobs = [
                Job(out / "jobs" / key, row["name"], int(seed), SEARCH_TASK)
                for seed, key in trial["jobs"].items()
            ]
            states = [job.state() for job in jobs]
            scores = []
            for job, state in zip(jobs, states, strict=True):
                if state == "done":
                    metric = METRICS.parse(job.task["metrics"][0], "metrics")
                    scores.append(score_of(job, metric.name))
            complete = len(scores) == len(jobs)
            points.append(
                {
                    "values": trial["values"],
                    "jobs": trial["jobs"],
                    "scores": scores,
                    "value": sum(scores) / len(scores) if complete else None,
                    "states": states,
                }
            )
        tried = [point["values"] for point in points]
        edges = edges_of(tried, row["tuned"]) if row["tuned"] else []
        by_row[row["name"]] = {"chosen": row["tuned"], "points": points, "edges": edges}
    return {
        "metric": None if metric is None else metric.name,
        "label": "" if metric is None else metric.label,
        "higher_is_better": metric is not None and metric.higher_is_better,
        "updates": study.tune.updates,
        "seeds": study.tune.seeds,
        "rows": by_row,
    }


def edge_sentences(tuning: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield a warning for each row whose best value is at an edge of its list."""
    for name, row in tuning["rows"].items() if tuning else ():
        for edge in row["edges"]:
            yield f"{name}: {edge}, so a better one may be beyond it."


def chosen_text(row: Mapping[str, Any]) -> str:
    """Return the chosen values of a row as text; `""` if there are none."""
    return values_text(row["tuned"]) if row["tuned"] else ""
