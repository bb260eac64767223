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

from ....plugin import METRICS, Metric, Statistics, SumMetric
from ....runtime.metrics.bootstrap import Value
from ..comparison import Comparison, System, all_pairs, compare, summaries
from ..document import StudySettings
from ..jobs import PLAN, RESULT, Job, events, open_plan, read_json
from ..loading import study_of
from ..procedure import Compare
from ..results import LENGTHS, JobResult, read_sums, sums_of
from .ladders import ladders_of
from .sequential import combined, open_pairs, shares_of, words_of
from .targets import targets_of
from .tuning import tunings_of

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
    study = _study(plan)
    settings = study.compare
    rows = [_row(row, out) for row in plan["rows"]]
    targets = targets_of(rows, study.target)
    curve = _draw_curves(rows)
    _name_copies(rows, settings)
    done = [row for row in rows if row["trained"] and not row["same_as"]]
    measured = _measured(done, out)
    tables = []
    for split in _splits(done):
        alike = _alike(split, done, settings.baseline, out)
        tables += [_table(split, metric, alike, measured, study) for metric in _metrics(done, out)]
    first = _first(tables)
    looks = max((table["looks"] for table in first[:1]), default=0)
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
        "tuning": tunings_of(rows, study, out),
        "target": targets,
        "ladders": ladders_of(rows, study),
        "sequential": words_of(study.looks(), looks, study.sequential) if study.sequential else "",
    }


def _study(plan: Record) -> StudySettings:
    """Return the settings of a study as it was run."""
    return study_of(plan["document"], PLAN)


def _first(tables: Sequence[Record]) -> list[Record]:
    """Return the tables of the test sets; those of the validation data if there are none."""
    return [table for table in tables if table["split"] != "valid"] or [*tables]


def open_rows(out: Path, look: int) -> list[str]:
    """Return the names of the rows whose comparisons need more seeds.

    Args:
        out: folder of the study, whose jobs of the seeds so far are done.
        look: number of seeds of these rows.

    Raises:
        InputError: there is no study, or a file of it is damaged.
    """
    plan = open_plan(out)
    study = _study(plan)
    rows = [_row(row, out) for row in plan["rows"]]
    _name_copies(rows, study.compare)
    done = [row for row in rows if row["trained"] and not row["same_as"]]
    splits = [split for split in _splits(done) if split != "valid"] or ["valid"]
    metrics = _metrics(done, out)
    if not done or not metrics or study.sequential is None:
        return []
    alike = _alike(splits[0], done, study.compare.baseline, out)
    table = _table(splits[0], metrics[0], alike, _measured(done, out), study)
    pairs = [Comparison(**comparison) for comparison in table["comparisons"]]
    still = open_pairs(pairs, study.sequential)
    names = {name for pair in still for name in (pair.baseline, pair.other)}
    return [row["name"] for row in rows if trainings_of(row) in names and len(row["jobs"]) == look]


def _row(row: Record, out: Path) -> Record:
    """Return a row of the plan with the outcome of its jobs."""
    seeds = {}
    for seed, key in row["jobs"].items():
        job = Job(out / "jobs" / key, row["name"], int(seed))
        state = job.state()
        seed_run: Record = {"state": state, "job": key}
        if state == "done":
            result = read_json(job.measured / RESULT, JobResult)
            seed_run |= {"splits": result["splits"], "training": result["training"]}
        elif state in ("failed", "lost"):
            seed_run["error"] = job.error()
        seed_run["valid"] = [event for event in events(job) if event.get("type") == "valid"]
        seeds[seed] = seed_run
    trained = [seed for seed, seed_run in seeds.items() if seed_run["state"] == "done"]
    written = {"label": row["name"], "ladder": "", "tuned": {}, "trials": []}
    return {**written, **row, "seeds": seeds, "trained": trained}


def _name_copies(rows: Sequence[Record], settings: Compare) -> None:
    """Set `same_as` of each row: the row whose trainings it shares; `""` if it has its own.

    The baseline of the comparisons has its own.  Copies would count as further evidence about the
    variance over seeds, and as further comparisons.
    """
    first: dict[frozenset[str], str] = {}
    baseline_rows = [
        row for row in rows if settings.pairs == "baseline" and row["name"] == settings.baseline
    ]
    for row in [*baseline_rows, *rows]:
        keys = frozenset(row["jobs"].values()) or frozenset([row["name"]])  # not tuned yet
        name = first.setdefault(keys, row["name"])
        row["same_as"] = "" if name == row["name"] else name


def _draw_curves(rows: Sequence[Record]) -> str:
    """Replace the validations of each seed by a curve; return the value that it shows.

    It is the negative log-likelihood if all rows have it, because losses of different objectives
    cannot be compared.
    """
    seeds = [seed_run for row in rows for seed_run in row["seeds"].values()]
    name = (
        "nll"
        if all("nll" in event for seed_run in seeds for event in seed_run["valid"])
        else "loss"
    )
    for seed_run in seeds:
        events_ = seed_run.pop("valid")
        seed_run["curve"] = [[event["update"], event[name]] for event in events_ if name in event]
    return name


def _splits(rows: Sequence[Record]) -> list[str]:
    splits: dict[str, None] = {}
    for row in rows:
        for seed in row["trained"]:
            splits |= dict.fromkeys(row["seeds"][seed]["splits"])
    return [*splits]


def _metrics(rows: Sequence[Record], out: Path) -> list[Metric]:
    """Return the metrics of the study, in its order."""
    metrics: dict[str, Metric] = {}
    for row in rows:
        key = row["seeds"][row["trained"][0]]["job"]
        task = Job(out / "jobs" / key, row["name"], 0).task
        for entry in task["metrics"]:
            metric = METRICS.parse(entry, "metrics")
            metrics.setdefault(metric.name, metric)
    return [*metrics.values()]


def _examples(row: Record, split: str, out: Path) -> tuple[Any, Any]:
    """Return what identifies the examples of a row on a split: digest of the files, and number."""
    seed = row["trained"][0]
    seed_run = row["seeds"][seed]
    task = Job(out / "jobs" / seed_run["job"], row["name"], int(seed)).task
    return task.get("examples", {}).get(split), seed_run["splits"][split]["rows"]


_Alike = tuple[list[Record], list[Record]]
"""Rows that are measured on the examples of the baseline, and rows with examples of their own."""


def _alike(split: str, rows: Sequence[Record], baseline: str, out: Path) -> _Alike:
    """Divide the rows that are measured on a split by their examples."""
    measured = [row for row in rows if split in row["seeds"][row["trained"][0]]["splits"]]
    first = next((row for row in measured if row["name"] == baseline), measured[0])
    examples = {row["name"]: _examples(row, split, out) for row in measured}
    expected = examples[first["name"]]
    same = [row for row in measured if examples[row["name"]] == expected]
    return same, [row for row in measured if examples[row["name"]] != expected]


_Sums = dict[tuple[str, str, str], dict[str, Statistics]]
"""Row, seed and split to the sums of each example by metric."""


def _measured(rows: Sequence[Record], out: Path) -> _Sums:
    sums: _Sums = {}
    for row in rows:
        for seed in row["trained"]:
            seed_run = row["seeds"][seed]
            job = Job(out / "jobs" / seed_run["job"], row["name"], int(seed))
            for split in seed_run["splits"]:
                sums[row["name"], seed, split] = read_sums(job.measured, split)
    return sums


def _systems(
    split: str, metric: Metric, rows: Sequence[Record], measured: _Sums, seeds: int | None = None
) -> tuple[list[System], Value | None]:
    """Return the rows that have a metric as systems, and the value of sums if all have sums.

    Args:
        split: the split.
        metric: the metric.
        rows: the rows.
        measured: sums of each example.
        seeds: number of the first seeds of each row that count; None: all of them.
    """
    systems = []
    for row in rows:
        scores = {
            seed: row["seeds"][seed]["splits"].get(split, {}).get("scores", {}).get(metric.name)
            for seed in [*row["seeds"]][:seeds]
            if seed in row["trained"]
        }
        defined = {seed: value for seed, value in scores.items() if value is not None}
        sums = [sums_of(measured[row["name"], seed, split], metric.name) for seed in defined]
        complete = tuple(array for array in sums if array is not None)
        if defined:
            values = tuple(defined.values())
            system_sums = complete if len(complete) == len(values) else ()
            systems.append(System(name=row["name"], values=values, sums=system_sums))
    has_sums = isinstance(metric, SumMetric) and all(system.sums for system in systems)
    return systems, metric.value_of if has_sums and isinstance(metric, SumMetric) else None


def _compared(
    split: str, metric: Metric, rows: Sequence[Record], measured: _Sums, study: StudySettings
) -> tuple[list[Comparison], int, float]:
    """Return the comparisons of a metric on a split, the looks so far, and the level of the last.

    A look takes place when all runs of its seeds have ended; the first one shows what is done.
    """
    settings, looks = study.compare, study.looks()
    shares = [1.0]
    if study.sequential is not None:
        shares = shares_of(looks, 1 - settings.level, study.sequential.spending)
    done, level = list[list[Comparison]](), settings.level
    for look, share in zip(looks, shares, strict=True):
        seeds = look if study.sequential is not None else None
        some = [row for row in rows if seeds is None or len(row["seeds"]) >= look]
        if done and any(
            seed_run["state"] not in ("done", "failed")
            for row in some
            for seed_run in [*row["seeds"].values()][:look]
        ):
            break
        systems, value_of = _systems(split, metric, rows, measured, seeds)
        pairs = _pairs([system.name for system in systems], some, settings)
        if done and not pairs:
            break
        level = 1 - (1 - settings.level) * share
        done.append(
            compare(
                systems,
                pairs,
                value_of,
                higher_is_better=metric.higher_is_better,
                level=level,
                power=settings.power,
                samples=settings.samples,
            )
        )
    up = metric.higher_is_better
    return combined(done, shares, level=settings.level, higher_is_better=up), len(done), level


def _pairs(
    measured: Sequence[str], rows: Sequence[Record], settings: Compare
) -> list[tuple[str, str]]:
    """Return the pairs of measured rows that are compared; sizes of a ladder are not."""
    names = [row["name"] for row in rows if row["name"] in measured and not row["ladder"]]
    if settings.pairs == "all":
        return all_pairs(names)
    base = settings.baseline
    with_base = base in measured and any(row["name"] == base for row in rows)
    return [(base, name) for name in names if name != base] if with_base else []


def _table(
    split: str, metric: Metric, alike: _Alike, measured: _Sums, study: StudySettings
) -> Record:
    """Return means, intervals and comparisons of a metric on a split."""
    rows, apart = alike
    systems, value_of = _systems(split, metric, rows, measured)
    comparisons, looks, level = _compared(split, metric, rows, measured, study)
    samples = study.compare.samples
    means = summaries(systems, value_of, level=level, samples=samples)
    for row in apart:
        means += summaries(*_systems(split, metric, [row], measured), level=level, samples=samples)
    signatures = {
        seed_run["splits"][split].get("signatures", {}).get(metric.name)
        for row in (*rows, *apart)
        for seed_run in row["seeds"].values()
        if seed_run["state"] == "done" and split in seed_run["splits"]
    }
    examples = [len(system.sums[0]) for system in systems if system.sums]
    return {
        "split": split,
        "metric": metric.name,
        "label": metric.label,
        "looks": looks,
        "higher_is_better": metric.higher_is_better,
        "signature": " ".join(sorted(signature for signature in signatures if signature)),
        "examples": examples[0] if examples else None,
        "apart": [row["name"] for row in apart],
        "rows": [asdict(mean) for mean in means],
        "comparisons": [comparison.as_json() for comparison in comparisons],
    }


def _selected(tables: Sequence[Record]) -> Record | None:
    """Return the row that the validation data of the baseline selects by the first metric."""
    valid_table = next(
        (table for table in tables if table["split"] == "valid" and table["rows"]), None
    )
    if valid_table is None:
        return None
    rows = [row for row in valid_table["rows"] if row["name"] not in valid_table["apart"]]
    best = sorted(rows, key=lambda row: row["mean"], reverse=valid_table["higher_is_better"])[0]
    return {
        "metric": valid_table["metric"],
        "label": valid_table["label"],
        "row": best["name"],
        "mean": best["mean"],
    }


def _lengths(
    rows: Sequence[Record], measured: _Sums, tables: Sequence[Record], out: Path
) -> Record | None:
    """Return the first metric by the length of the references; None if it cannot be divided."""
    if not tables or not rows:
        return None
    split, name = tables[0]["split"], tables[0]["metric"]
    metric = next((candidate for candidate in _metrics(rows, out) if candidate.name == name), None)
    if not isinstance(metric, SumMetric):
        return None
    row_names = {row["name"] for row in tables[0]["rows"]} - {*tables[0]["apart"]}
    rows = [row for row in rows if row["name"] in row_names]
    if not rows:
        return None
    first = measured[rows[0]["name"], rows[0]["trained"][0], split]
    systems, value_of = _systems(split, metric, rows, measured)
    if LENGTHS not in first or value_of is None:
        return None
    lengths = first[LENGTHS][:, 0]
    inner = np.quantile(lengths, np.linspace(0, 1, BUCKETS + 1)[1:-1])
    edges = [0.0, *sorted({float(np.floor(length)) for length in inner}), float(lengths.max())]
    groups = []
    for low, high in itertools.pairwise(edges):
        inside = (lengths > low + MARGIN) & (lengths <= high + MARGIN)
        if inside.any():
            least, most = int(lengths[inside].min()), int(lengths[inside].max())
            title = f"{least}" if least == most else f"{least} to {most}"
            groups.append((title, inside))
    values = {
        system.name: [
            float(np.mean([value_of(sums[inside].sum(0)) for sums in system.sums]))
            for _, inside in groups
        ]
        for system in systems
    }
    return {
        "split": split,
        "metric": name,
        "label": metric.label,
        "words": [title for title, _ in groups],
        "examples": [int(inside.sum()) for _, inside in groups],
        "rows": values,
    }


def primary_table(record: Record) -> Record | None:
    """Return the table of the first metric on the first test set."""
    primary = record["primary"]
    return next(
        (
            table
            for table in record["tables"]
            if primary and all(table[k] == v for k, v in primary.items())
        ),
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
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if not largest:
        return _DECIMALS
    return min(_MOST_DECIMALS, max(_DECIMALS, 3 - math.floor(math.log10(largest))))


def row_of(table: Record | None, name: str) -> Record | None:
    """Return the mean and spread of a row in a table."""
    return next((row for row in table["rows"] if row["name"] == name), None) if table else None


def comparison_of(record: Record, table: Record | None, name: str) -> Record | None:
    """Return the comparison of a row with the baseline in a table."""
    pairs = table["comparisons"] if table else []
    first = record["baseline"] if record["pairs"] == "baseline" else record["rows"][0]["name"]
    pair = (first, name)
    return next(
        (
            comparison
            for comparison in pairs
            if (comparison["baseline"], comparison["other"]) == pair
        ),
        None,
    )


def trainings_of(row: Record) -> str:
    """Return the name of the row whose trainings a row has: its own, or that of an equal row."""
    return str(row["same_as"] or row["name"])


def note_of(row: Record, table: Record | None) -> str:
    """Return what keeps a row from being compared as the others are; `""` if nothing does.

    That is a row that is equal to another, a missing seed, or other examples.
    """
    missing = [
        seed_run["state"] for seed_run in row["seeds"].values() if seed_run["state"] != "done"
    ]
    notes = [f"same as {row['same_as']}"] if row["same_as"] else []
    notes += [f"{missing[0]}: {len(missing)} of {len(row['seeds'])} seeds"] if missing else []
    notes += ["other examples"] if table and trainings_of(row) in table["apart"] else []
    return ", ".join(notes)
