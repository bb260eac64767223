"""The record of a study as CSV and as Markdown, and words and cells that its forms share."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ....specs.escaping import csv_cell, markdown, markdown_block
from .commands import commands
from .conclusions import conclude, conclusion_of, probability, size_of
from .procedures import extra_tables
from .record import (
    Record,
    comparison_of,
    decimals_for,
    decimals_of,
    primary_table,
    row_of,
    trainings_of,
)
from .targets import spent, title_of_target
from .tuning import chosen_text

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
    parts = [
        *(["means"] if intervals and any(row["low"] is not None for row in rows) else []),
        *(["differences"] if tests and any(pair["low"] is not None for pair in pairs) else []),
    ]
    if parts:
        over = f"{'seeds and ' if most > 1 else ''}test examples"
        have = f"{' and '.join(parts)} have {record['level']:.0%} intervals over {over}."
        words += f" {have[0].upper()}{have[1:]}"
    if tests and any(pair["p"] is not None for pair in pairs):
        words += " Differences are tested with Holm's correction for all comparisons of a table."
    return f"{words} {record['sequential']}".rstrip()


def sentence(text: str) -> str:
    """Return text that ends as a sentence.

    >>> sentence("Which is better?"), sentence("Learning curves")
    ('Which is better?', 'Learning curves.')
    """
    return text if text.endswith((".", "!", "?")) else f"{text}."


def cells(record: Record) -> tuple[list[str], list[list[str]]]:
    """Return the header and the lines of the main table, as text."""
    table = primary_table(record)
    others = [other for other in record["tables"] if other is not table]
    metric = f"{table['split']} {table['metric']}" if table else "metric"
    head = ["row", "parameters", metric, "difference", "p", CONCLUSION]
    target = record["target"]
    head += [f"updates to {title_of_target(target)}"] if target else []
    head += [f"{other['split']} {other['metric']}" for other in others]
    lines = []
    for row in record["rows"]:
        name = trainings_of(row)
        pair = comparison_of(record, table, name)
        line = [row["name"], f"{row['costs']['parameters']:,}", mean_of(table, name)]
        line += [*_difference(pair, decimals_of(table)), conclusion_of(row, table, pair)]
        line += [spent(target, row["name"], "updates")] if target else []
        lines.append([*line, *(mean_of(other, name) for other in others)])
    return head, lines


def failures(record: Record) -> list[str]:
    """Return a line for each training that failed, with its job and the reason."""
    errors: dict[str, str] = {}
    for row in record["rows"]:
        for seed, seed_run in row["seeds"].items():
            if seed_run.get("error"):  # equal rows share jobs
                where = f"{row['name']}, seed {seed}, jobs/{seed_run['job']}"
                errors.setdefault(seed_run["job"], f"{where}: {seed_run['error']}")
    return list(errors.values())


def selected_of(record: Record) -> str:
    """Return the metric and the mean of the row that the validation data selects, as text."""
    selected = record["selected"]
    return f"{selected['metric']} {selected['mean']:.{decimals_for([selected['mean']])}f}"


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
        for seed, seed_run in row["seeds"].items():
            end = [costs["parameters"], costs["updates"]]
            if seed_run["state"] != "done":
                state = [row["name"], seed, seed_run["state"], "", "", ""]
                write.writerow(map(csv_cell, [*state, *end]))
            for split, result in seed_run.get("splits", {}).items():
                for metric, value in result["scores"].items():
                    line = [row["name"], seed, "done", split, metric, repr(value)]
                    write.writerow(map(csv_cell, [*line, *end]))
    return out.getvalue()


def line(parts: Sequence[object]) -> str:
    """Return a line of a table; its cells are plain text."""
    return f"| {' | '.join(markdown(str(part)) for part in parts)} |"


def rule(columns: int, words: Sequence[int] = (0,)) -> str:
    """Return the line below the head of a table.

    Args:
        columns: number of columns.
        words: places of those that have words and not numbers.
    """
    return f"| {' | '.join('---' if column in words else '---:' for column in range(columns))} |"


def report_markdown(record: Record, pictures: Mapping[str, str] | None = None) -> str:
    """Return the report as Markdown.

    Args:
        record: record of the study with its labels.
        pictures: names of the files of figures beside it, by the name of the figure.
    """
    return "\n".join(_markdown(record, pictures or {})) + "\n"


def _markdown(record: Record, pictures: Mapping[str, str]) -> Iterator[str]:
    yield from (f"# {markdown(record['study'])}", "")
    if record["doc"]:
        yield from (markdown(record["doc"]), "")
    if "effects" in pictures:
        title = markdown(f"differences{against(record)}")
        yield from (f"![{title}]({pictures['effects']})", "")
    for title, sentences in zip((CAN, CANNOT), conclude(record), strict=True):
        if sentences:
            yield from (
                f"## {title}",
                "",
                *(f"- {markdown(sentence)}" for sentence in sentences),
                "",
            )
    yield from ("## Results", "")
    head, lines = cells(record)
    yield line(head)
    yield rule(len(head), (0, head.index(CONCLUSION)))
    yield from map(line, lines)
    yield from ("", markdown(method(record)), "")
    if failed := failures(record):
        yield from ("## Failures", "", *(f"- {markdown(failure)}" for failure in failed), "")
    if record["selected"]:
        name = markdown(record["selected"]["row"])
        yield f"The validation data selects **{name}** ({markdown(selected_of(record))})."
        yield ""
    shown = set[str]()
    for table in extra_tables(record):
        yield from (f"## {markdown(table.title)}", "")
        if table.figure in pictures and table.figure not in shown:
            shown.add(table.figure)
            yield from (f"![{markdown(table.title)}]({pictures[table.figure]})", "")
        yield from (line(table.head), rule(len(table.head)), *map(line, table.lines), "")
        yield from (markdown(" ".join(table.notes)), "")
    if record["lengths"]:
        yield from _lengths(record["lengths"])
    yield from ("## Rows", "")
    for row in record["rows"]:
        tuned = f"Tuned: {chosen_text(row)}." if row["tuned"] else ""
        doc = " ".join(part for part in (row["doc"], row["solved"], tuned) if part)
        yield f"**{markdown(row['name'])}**{': ' + markdown(doc) if doc else ''}"
        yield from ("", markdown_block(row["changes"] or ["the baseline"], "text"), "")
    yield from ("## Commands", "", markdown_block(commands(record), "sh"))


def _lengths(lengths: Record) -> Iterator[str]:
    title = f"{lengths['metric']} on {lengths['split']} by words of the reference"
    yield f"## {markdown(title)}"
    yield ""
    names = [f"{w} (n={n})" for w, n in zip(lengths["words"], lengths["examples"], strict=True)]
    yield line(["row", *names])
    yield rule(1 + len(names))
    decimals = decimals_for(itertools.chain(*lengths["rows"].values()))
    for name, values in lengths["rows"].items():
        yield line([name, *(f"{value:.{decimals}f}" for value in values)])
    yield ""
