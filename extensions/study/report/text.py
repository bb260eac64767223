"""The record of a study as CSV, and words and cells that its forms share."""

from __future__ import annotations

import csv
import io
from typing import Any

from .conclusions import conclusion_of, probability, size_of
from .record import (
    Record,
    comparison_of,
    decimals_for,
    decimals_of,
    primary_table,
    row_of,
    trainings_of,
)

CAN, CANNOT = "What can be concluded", "What cannot be concluded"
CONCLUSION = "conclusion"
"""Head of the column of words in the main table."""


def against(record: Record) -> str:
    """Return the words that name the baseline of all differences; `""` if they have several."""
    return "" if record["pairs"] == "all" else f" from {record['baseline']}"


def method(record: Record, *, intervals: bool = False, tests: bool = True) -> str:
    """Return how the figures of a table were computed.

    Args:
        record: record of the study.
        intervals: whether the table shows intervals of means, and not of differences alone.
        tests: whether it shows differences.
    """
    counts = sorted({len(row["trained"]) for row in record["rows"] if row["trained"]}) or [0]
    fewest, most = counts[0], counts[-1]
    several = f"{most} seeds" if fewest == most else f"{fewest} to {most} seeds"
    words = f"Means over {several}" if most > 1 else "Scores of one seed"
    words += "; ± is the standard deviation over seeds." if most > 1 else "."
    rows = [row for table in record["tables"] for row in table["rows"]]
    pairs = [pair for table in record["tables"] for pair in table["comparisons"]]
    known = [
        *(["means"] if intervals and any(row["low"] is not None for row in rows) else []),
        *(["differences"] if tests and any(pair["low"] is not None for pair in pairs) else []),
    ]
    if known:
        over = f"{'seeds and ' if most > 1 else ''}test examples"
        have = f"{' and '.join(known)} have {record['level']:.0%} intervals over {over}."
        words += f" {have[0].upper()}{have[1:]}"
    if tests and any(pair["p"] is not None for pair in pairs):
        words += " Differences are tested with Holm's correction for all comparisons of a table."
    return words


def sentence(text: str) -> str:
    """Return text that ends as a sentence.

    >>> sentence("Which is better?"), sentence("Learning curves")
    ('Which is better?', 'Learning curves.')
    """
    return text if text.endswith((".", "!", "?")) else f"{text}."


def cells(record: Record) -> tuple[list[str], list[list[str]]]:
    """Return the header and the lines of the main table, as text."""
    table = primary_table(record)
    others = [one for one in record["tables"] if one is not table]
    metric = f"{table['split']} {table['metric']}" if table else "metric"
    head = ["row", "parameters", metric, "difference", "p", CONCLUSION]
    head += [f"{one['split']} {one['metric']}" for one in others]
    lines = []
    for row in record["rows"]:
        name = trainings_of(row)
        pair = comparison_of(record, table, name)
        line = [row["name"], f"{row['costs']['parameters']:,}", mean_of(table, name)]
        line += [*_difference(pair, decimals_of(table)), conclusion_of(row, table, pair)]
        lines.append([*line, *(mean_of(one, name) for one in others)])
    return head, lines


def failures(record: Record) -> list[str]:
    """Return a line for each training that failed, with its job and the reason."""
    found: dict[str, str] = {}
    for row in record["rows"]:
        for seed, one in row["seeds"].items():
            if one.get("error"):  # equal rows share jobs
                where = f"{row['name']}, seed {seed}, jobs/{one['job']}"
                found.setdefault(one["job"], f"{where}: {one['error']}")
    return list(found.values())


def selected_of(record: Record) -> str:
    """Return the metric and the mean of the row that the validation data selects, as text."""
    one = record["selected"]
    return f"{one['metric']} {one['mean']:.{decimals_for([one['mean']])}f}"


def mean_of(table: Record | None, name: str) -> str:
    """Return the mean of a row in a table with its standard deviation, as text."""
    row, decimals = row_of(table, name), decimals_of(table)
    if row is None:
        return ""
    spread = "" if row["spread"] is None else f" ± {row['spread']:.{decimals}f}"
    return f"{row['mean']:.{decimals}f}{spread}"


def _difference(pair: Record | None, decimals: int) -> tuple[str, str]:
    """Return a difference with its interval, and its corrected probability, as text."""
    if pair is None:
        return "", ""
    p = pair["adjusted"]
    return size_of(pair, decimals), "" if p is None else probability(p)


def table_csv(record: Record) -> str:
    """Return a line for each row, seed, split and metric."""
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n")
    write.writerow(["row", "seed", "state", "split", "metric", "value", "parameters", "updates"])
    for row in record["rows"]:
        costs: dict[str, Any] = row["costs"]
        for seed, one in row["seeds"].items():
            end = [costs["parameters"], costs["updates"]]
            if one["state"] != "done":
                write.writerow([row["name"], seed, one["state"], "", "", "", *end])
            for split, found in one.get("splits", {}).items():
                for metric, value in found["scores"].items():
                    line = [row["name"], seed, "done", split, metric, repr(value)]
                    write.writerow([*line, *end])
    return out.getvalue()
