"""The record of a study: all figures of its report, as plain data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ....plugin import METRICS, Metric, SumMetric
from ....runtime.metrics.bootstrap import Value
from ....runtime.metrics.metric import Statistics
from ..comparing.compare import all_pairs, compare, summaries
from ..comparing.pooling import System
from ..document.settings import BASELINE, Compare
from ..running.jobs import RESULT, Job, events, open_plan, read_json
from ..running.measuring import LENGTHS, read_sums, sums_of

BUCKETS = 4
"""Number of groups of examples by the length of their references."""
MARGIN = 1e-9
_DECIMALS, _MOST_DECIMALS = 2, 6

Record = dict[str, Any]


def study_record(out: Path) -> Record:
    """Return the record of the study in a folder, from the jobs that are done.

    Raises:
        InputError: there is no study, or a file of it is damaged.
    """
    plan = open_plan(out)
    document = plan["document"]
    settings = Compare(**document.get("compare", {}))
    rows = [_row(row, out) for row in plan["rows"]]
    curve = _draw_curves(rows)
    _name_copies(rows, settings)
    done = [row for row in rows if row["trained"] and not row["same_as"]]
    measured = _measured(done, out)
    tables = []
    for split in _splits(done):
        alike = _alike(split, done, settings.baseline, out)
        tables += [_table(split, one, alike, measured, settings) for one in _metrics(done, out)]
    tests = [table for table in tables if table["split"] != "valid"]
    first = tests or tables
    return {
        "study": plan["study"],
        "doc": document.get("doc", ""),
        "weft": version("weft"),
        "source": plan["source"],
        "folder": plan["folder"],
        "overrides": plan["overrides"],
        "baseline": settings.baseline,
        "level": settings.level,
        "power": settings.power,
        "seeds": max((len(row["seeds"]) for row in rows), default=0),
        "curve": curve,
        "pairs": settings.pairs,
        "rows": rows,
        "tables": tables,
        "primary": {key: first[0][key] for key in ("split", "metric")} if first else None,
        "selected": _selected(tables),
        "lengths": _lengths(done, measured, first, out),
        "document": document,
    }


def _row(row: Record, out: Path) -> Record:
    """Return a row of the plan with the outcome of its jobs."""
    seeds = {}
    for seed, key in row["jobs"].items():
        job = Job(out / "jobs" / key, row["name"], int(seed))
        state = job.state()
        found: Record = {"state": state, "job": key}
        if state == "done":
            result = read_json(job.measured / RESULT)
            found |= {"splits": result["splits"], "training": result["training"]}
        elif state == "failed":
            found["error"] = job.error()
        found["valid"] = [event for event in events(job) if event.get("type") == "valid"]
        seeds[seed] = found
    trained = [seed for seed, one in seeds.items() if one["state"] == "done"]
    return {**row, "seeds": seeds, "trained": trained}


def _name_copies(rows: Sequence[Record], settings: Compare) -> None:
    """Set `same_as` of each row: the row whose trainings it shares; `""` if it has its own.

    The baseline of the comparisons has its own.  Copies would count as further evidence about the
    variance over seeds, and as further comparisons.
    """
    first: dict[frozenset[str], str] = {}
    own = [row for row in rows if settings.pairs == "baseline" and row["name"] == settings.baseline]
    for row in [*own, *rows]:
        name = first.setdefault(frozenset(row["jobs"].values()), row["name"])
        row["same_as"] = "" if name == row["name"] else name


def _draw_curves(rows: Sequence[Record]) -> str:
    """Replace the validations of each seed by a curve; return the value that it shows.

    It is the negative log-likelihood if all rows have it, because losses of different objectives
    cannot be compared.
    """
    seeds = [one for row in rows for one in row["seeds"].values()]
    name = "nll" if all("nll" in event for one in seeds for event in one["valid"]) else "loss"
    for one in seeds:
        events_ = one.pop("valid")
        one["curve"] = [[event["update"], event[name]] for event in events_ if name in event]
    return name


def _splits(rows: Sequence[Record]) -> list[str]:
    found: dict[str, None] = {}
    for row in rows:
        for seed in row["trained"]:
            found |= dict.fromkeys(row["seeds"][seed]["splits"])
    return [*found]


def _metrics(rows: Sequence[Record], out: Path) -> list[Metric]:
    """Return the metrics of the study, in its order."""
    found: dict[str, Metric] = {}
    for row in rows:
        key = row["seeds"][row["trained"][0]]["job"]
        task = Job(out / "jobs" / key, row["name"], 0).task
        for one in task["metrics"]:
            metric = METRICS.parse(one, "metrics")
            found.setdefault(metric.name, metric)
    return [*found.values()]


def _examples(row: Record, split: str, out: Path) -> tuple[Any, Any]:
    """Return what identifies the examples of a row on a split: digest of the files, and number."""
    seed = row["trained"][0]
    one = row["seeds"][seed]
    task = Job(out / "jobs" / one["job"], row["name"], int(seed)).task
    return task.get("examples", {}).get(split), one["splits"][split]["rows"]


_Alike = tuple[list[Record], list[Record]]
"""Rows that are measured on the examples of the baseline, and rows with examples of their own."""


def _alike(split: str, rows: Sequence[Record], baseline: str, out: Path) -> _Alike:
    """Divide the rows that are measured on a split by their examples."""
    measured = [row for row in rows if split in row["seeds"][row["trained"][0]]["splits"]]
    first = next((row for row in measured if row["name"] == baseline), measured[0])
    examples = {row["name"]: _examples(row, split, out) for row in measured}
    wanted = examples[first["name"]]
    same = [row for row in measured if examples[row["name"]] == wanted]
    return same, [row for row in measured if examples[row["name"]] != wanted]


_Sums = dict[tuple[str, str, str], dict[str, Statistics]]
"""Row, seed and split to the sums of each example by metric."""


def _measured(rows: Sequence[Record], out: Path) -> _Sums:
    found: _Sums = {}
    for row in rows:
        for seed in row["trained"]:
            one = row["seeds"][seed]
            job = Job(out / "jobs" / one["job"], row["name"], int(seed))
            for split in one["splits"]:
                found[row["name"], seed, split] = read_sums(job.measured, split)
    return found


def _systems(
    split: str, metric: Metric, rows: Sequence[Record], measured: _Sums
) -> tuple[list[System], Value | None]:
    """Return the rows that have a metric as systems, and the value of sums if all have sums."""
    found = []
    for row in rows:
        scores = {
            seed: row["seeds"][seed]["splits"].get(split, {}).get("scores", {}).get(metric.name)
            for seed in row["trained"]
        }
        given = {seed: value for seed, value in scores.items() if value is not None}
        sums = [sums_of(measured[row["name"], seed, split], metric.name) for seed in given]
        kept = tuple(one for one in sums if one is not None)
        if given:
            values = tuple(given.values())
            own = kept if len(kept) == len(values) else ()
            found.append(System(name=row["name"], values=values, sums=own))
    has_sums = isinstance(metric, SumMetric) and all(one.sums for one in found)
    return found, metric.value_of if has_sums and isinstance(metric, SumMetric) else None


def _table(split: str, metric: Metric, alike: _Alike, measured: _Sums, settings: Compare) -> Record:
    """Return means, intervals and comparisons of a metric on a split."""
    rows, apart = alike
    systems, value_of = _systems(split, metric, rows, measured)
    names = [one.name for one in systems]
    base = settings.baseline
    pairs = [(base, name) for name in names if name != base] if base in names else []
    if settings.pairs == "all":
        pairs = all_pairs(names)
    found = compare(
        systems,
        pairs,
        value_of,
        higher_is_better=metric.higher_is_better,
        level=settings.level,
        power=settings.power,
        samples=settings.samples,
    )
    means = summaries(systems, value_of, level=settings.level, samples=settings.samples)
    for row in apart:
        alone = _systems(split, metric, [row], measured)
        means += summaries(*alone, level=settings.level, samples=settings.samples)
    signatures = {
        one["splits"][split].get("signatures", {}).get(metric.name)
        for row in (*rows, *apart)
        for one in row["seeds"].values()
        if one["state"] == "done" and split in one["splits"]
    }
    examples = [len(system.sums[0]) for system in systems if system.sums]
    return {
        "split": split,
        "metric": metric.name,
        "higher_is_better": metric.higher_is_better,
        "signature": " ".join(sorted(one for one in signatures if one)),
        "examples": examples[0] if examples else None,
        "apart": [row["name"] for row in apart],
        "rows": [asdict(one) for one in means],
        "comparisons": [one.as_json() for one in found],
    }


def _selected(tables: Sequence[Record]) -> Record | None:
    """Return the row that the validation data of the baseline selects by the first metric."""
    own = next((one for one in tables if one["split"] == "valid" and one["rows"]), None)
    if own is None:
        return None
    rows = [row for row in own["rows"] if row["name"] not in own["apart"]]
    best = sorted(rows, key=lambda row: row["mean"], reverse=own["higher_is_better"])[0]
    return {"metric": own["metric"], "row": best["name"], "mean": best["mean"]}


def _lengths(
    rows: Sequence[Record], measured: _Sums, tables: Sequence[Record], out: Path
) -> Record | None:
    """Return the first metric by the length of the references; None if it cannot be divided."""
    if not tables or not rows:
        return None
    split, name = tables[0]["split"], tables[0]["metric"]
    metric = next((one for one in _metrics(rows, out) if one.name == name), None)
    if not isinstance(metric, SumMetric):
        return None
    named = {one["name"] for one in tables[0]["rows"]} - {*tables[0]["apart"]}
    rows = [row for row in rows if row["name"] in named]
    if not rows:
        return None
    first = measured[rows[0]["name"], rows[0]["trained"][0], split]
    systems, value_of = _systems(split, metric, rows, measured)
    if LENGTHS not in first or value_of is None:
        return None
    lengths = first[LENGTHS][:, 0]
    inner = np.quantile(lengths, np.linspace(0, 1, BUCKETS + 1)[1:-1])
    edges = [0.0, *sorted({float(np.floor(one)) for one in inner}), float(lengths.max())]
    groups = []
    for low, high in itertools.pairwise(edges):
        inside = (lengths > low + MARGIN) & (lengths <= high + MARGIN)
        if inside.any():
            least, most = int(lengths[inside].min()), int(lengths[inside].max())
            title = f"{least}" if least == most else f"{least} to {most}"
            groups.append((title, inside))
    values = {
        one.name: [
            float(np.mean([value_of(sums[inside].sum(0)) for sums in one.sums]))
            for _, inside in groups
        ]
        for one in systems
    }
    return {
        "split": split,
        "metric": name,
        "words": [title for title, _ in groups],
        "examples": [int(inside.sum()) for _, inside in groups],
        "rows": values,
    }


def primary_table(record: Record) -> Record | None:
    """Return the table of the first metric on the first test set."""
    wanted = record["primary"]
    return next(
        (one for one in record["tables"] if wanted and all(one[k] == v for k, v in wanted.items())),
        None,
    )


def decimals_of(table: Record | None) -> int:
    """Return the number of decimals with which the figures of a table are shown."""
    return decimals_for(row["mean"] for row in table["rows"]) if table else _DECIMALS


def decimals_for(values: Iterable[float]) -> int:
    """Return the number of decimals with which values are shown: the largest has four digits.

    There are at least two, as is usual for percentages, and at most six.

    >>> decimals_for([31.8, 0.1]), decimals_for([3.42, 3.38]), decimals_for([0.87, -0.9])
    (2, 3, 4)
    """
    largest = max((abs(one) for one in values if math.isfinite(one)), default=0.0)
    if not largest:
        return _DECIMALS
    return min(_MOST_DECIMALS, max(_DECIMALS, 3 - math.floor(math.log10(largest))))


def row_of(table: Record | None, name: str) -> Record | None:
    """Return the mean and spread of a row in a table."""
    return next((one for one in table["rows"] if one["name"] == name), None) if table else None


def comparison_of(record: Record, table: Record | None, name: str) -> Record | None:
    """Return the comparison of a row with the baseline in a table."""
    pairs = table["comparisons"] if table else []
    own = (record["baseline"], name) if record["pairs"] == "baseline" else (BASELINE, name)
    return next((one for one in pairs if (one["baseline"], one["other"]) == own), None)


def trainings_of(row: Record) -> str:
    """Return the name of the row whose trainings a row has: its own, or that of an equal row."""
    return str(row["same_as"] or row["name"])


def note_of(row: Record, table: Record | None) -> str:
    """Return what keeps a row from being compared as the others are; `""` if nothing does.

    That is a row that is equal to another, a missing seed, or other examples.
    """
    missing = [one["state"] for one in row["seeds"].values() if one["state"] != "done"]
    notes = [f"same as {row['same_as']}"] if row["same_as"] else []
    notes += [f"{missing[0]}: {len(missing)} of {len(row['seeds'])} seeds"] if missing else []
    notes += ["other examples"] if table and trainings_of(row) in table["apart"] else []
    return ", ".join(notes)
