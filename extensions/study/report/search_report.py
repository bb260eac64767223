"""The report of a search: its best rows, and how much each factor matters."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ....plugin import write_beside
from ....specs.escaping import markdown
from ..jobs import json_text
from ..planning.space import row_at
from ..sampling import LEAST, importances
from ..search import Searching
from ..trials import StudyTrial
from .text import line, rule

FOLDER = "report"


def best_trials(search: Searching) -> list[StudyTrial]:
    """Return the best trials that are done, the best first, as many as the search asks for."""
    done = [trial for trial in search.trials if trial.value is not None]
    up = search.metric.higher_is_better
    order = sorted(done, key=lambda trial: trial.value or 0.0, reverse=up)
    return order[: search.search.best]


def search_record(search: Searching, study: str, command: str) -> dict[str, Any]:
    """Return the report of a search as plain data.

    Args:
        search: the search.
        study: name of the study.
        command: the command that repeats it.
    """
    up, axes = search.metric.higher_is_better, search.axes
    best = []
    for trial in best_trials(search):
        row = row_at(axes, trial.values, f"trial-{trial.number}", study)
        best.append(
            {
                "trial": trial.number,
                "value": trial.value,
                "values": trial.values,
                "parameters": trial.parameters,
                "seconds": trial.seconds,
                "jobs": trial.jobs,
                "row": row.change.model_dump(mode="json", exclude_defaults=True),
            }
        )
    return {
        "study": study,
        "metric": search.metric.name,
        "higher_is_better": up,
        "sampler": search.search.sampler,
        "pruner": search.search.pruner,
        "seeds": search.search.seeds,
        "trials": dict(Counter(trial.state for trial in search.trials)),
        "of_other_factors": search.others,
        "seconds": sum(trial.seconds for trial in search.trials),
        "importances": importances(axes, search.trials, higher_is_better=up),
        "best": best,
        "command": command,
        "failures": {
            str(trial.number): trial.why
            for trial in search.trials
            if trial.state in ("failed", "refused")
        },
    }


def write_search_report(search: Searching, study: str, command: str, out: Path) -> list[Path]:
    """Write the report of a search as JSON and Markdown.

    Args:
        search: the search.
        study: name of the study.
        command: the command that repeats it.
        out: folder of the study.

    Returns:
        The files.

    Raises:
        InputError: a file cannot be written.
    """
    record = search_record(search, study, command)
    forms = {
        "json": json_text(record),
        "md": "\n".join(_report(record)) + "\n",
    }
    paths = []
    for suffix, text in forms.items():
        path = out / FOLDER / f"{study}-search.{suffix}"
        write_beside(path, text.encode(), "report")
        paths.append(path)
    return paths


def _report(record: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the report in Markdown."""
    yield from (f"# Search of {record['study']}", "")
    states = ", ".join(f"{count} {state}" for state, count in record["trials"].items())
    yield (
        f"{sum(record['trials'].values())} trials ({states}) in {record['seconds']:,.0f} seconds of"
        f" training; sampler {record['sampler']}, pruner {record['pruner']}, seeds per trial:"
        f" {record['seeds']}. Trials are compared by {record['metric']} on the validation data; no"
        " test set was measured. The best of many trials is better on the validation data than on"
        " others: train the rows below with several seeds, as rows of the study."
    )
    yield ""
    names = [*record["best"][0]["values"]] if record["best"] else []
    if names:
        yield line(["trial", record["metric"], *names, "parameters"])
        yield rule(len(names) + 3, range(len(names) + 3))
        for trial in record["best"]:
            values = [_text(trial["values"][name]) for name in names]
            yield line(
                [trial["trial"], f"{trial['value']:.4g}", *values, f"{trial['parameters']:,}"]
            )
        yield ""
    yield from ("## Importance of the factors", "")
    if record["importances"]:
        yield from (line(["factor", "importance"]), rule(2))
        yield from (line([name, f"{value:.2f}"]) for name, value in record["importances"].items())
        yield from ("", "PED-ANOVA (Watanabe et al. 2023); the sum is 1.", "")
    else:
        yield from (f"It is computed from {LEAST} complete trials on.", "")
    rows = {f"trial-{trial['trial']}": trial["row"] for trial in record["best"] if trial["row"]}
    if rows:
        text = json.dumps({"rows": rows}, indent=2, ensure_ascii=False)
        yield from ("## The best rows, for the study", "", "```json", text, "```", "")
    if record["failures"]:
        yield from ("## Failures", "")
        yield from (
            f"- trial {number}: {markdown(why)}" for number, why in record["failures"].items()
        )
        yield ""
    yield from ("## Command", "", "```sh", record["command"], "```")


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
