"""The report of a study as one HTML page that needs no network."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..planning.table import duration, size
from .commands import commands
from .conclusions import FOUND, conclude, conclusion_of, parts_of, probability
from .markup import cell, drawn_row, escaped, filled, head, wide
from .pictures import picture_of
from .plots import curves
from .record import (
    Record,
    comparison_of,
    decimals_for,
    decimals_of,
    primary_table,
    row_of,
    trainings_of,
)
from .text import CAN, CANNOT, CONCLUSION, failures, mean_of, method, selected_of


def page(record: Record, out: Path, picture: str) -> str:
    """Return the page.

    Args:
        record: record of the study.
        out: folder of the study, which contains the pictures of the rows.
        picture: the picture of the differences.
    """
    body = [wide(picture, "differences") if picture else "", *_body(record, out)]
    return filled(record["study"], record["doc"], "\n".join(body))


def _body(record: Record, out: Path) -> Iterator[str]:
    for title, lines in zip((CAN, CANNOT), conclude(record), strict=True):
        if lines:
            yield f"<h2>{title}</h2><ul class='conclusions'>"
            yield from (f"<li>{escaped(line)}</li>" for line in lines)
            yield "</ul>"
    if record["selected"]:
        yield (
            f"<p class='note'>The validation data selects <b>{escaped(record['selected']['row'])}"
            f"</b> ({escaped(selected_of(record))}); the test sets choose nothing.</p>"
        )
    yield "<h2>Rows</h2>"
    yield wide(f"<table>{''.join(_main(record))}</table>", "rows")
    words = method(record, intervals=True)
    brackets = f" In brackets: {record['level']:.0%} intervals." if "intervals" in words else ""
    yield f"<p class='note'>{escaped(words)}{brackets} The heading of a column sorts by it.</p>"
    if failed := failures(record):
        yield "<h2>Failures</h2><ul class='failed'>"
        yield from (f"<li>{escaped(line)}</li>" for line in failed)
        yield "</ul>"
    yield from _others(record)
    if drawn := curves(record):
        yield f"<h2>Validation {record['curve']} by update</h2>"
        yield wide(drawn, "curves")
    if record["lengths"]:
        yield from _lengths(record["lengths"])
    yield "<h2>What each row changes</h2>"
    for row in record["rows"]:
        yield from _row(row, out)
    yield "<h2>Measurements</h2><ul class='note'>"
    for table in record["tables"]:
        tests = sorted(
            {comparison["test"].partition(", ")[0] for comparison in table["comparisons"]}
        )
        count = f", {table['examples']:,} examples" if table["examples"] else ""
        words = "; ".join([table["signature"], *tests] if table["signature"] else tests)
        what = f"{table['metric']} on {table['split']}{count}: {words}"
        yield f"<li>{escaped(what)}</li>"
    yield "</ul>"
    yield f"<h2>Commands</h2><pre>{escaped(chr(10).join(commands(record)))}</pre>"
    yield f"<p class='note'>weft {escaped(record['weft'])}</p>"


def _main(record: Record) -> Iterator[str]:
    """Yield the main table."""
    table = primary_table(record)
    title = f"{table['split']} {table['metric']}" if table else "result"
    heads = ["row", escaped(title), "difference", "p (Holm)", CONCLUSION]
    yield head([*heads, "parameters", "FLOPs", "memory", "time"], CONCLUSION)
    yield "<tbody>"
    for row in record["rows"]:
        look = " class='baseline'" if row["name"] == record["baseline"] else ""
        yield f"<tr{look}>" + "".join(_cells(record, row, table)) + "</tr>"
    yield "</tbody>"


def _others(record: Record) -> Iterator[str]:
    """Yield a table of the other metrics and splits, each with its verdicts."""
    others = [table for table in record["tables"] if table is not primary_table(record)]
    if not others:
        return
    yield "<h2>Other measurements</h2>"
    heads = head(["row", *(escaped(f"{table['split']} {table['metric']}") for table in others)])
    lines = ("".join(_means(record, row, others)) for row in record["rows"])
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    yield wide(f"<table>{heads}<tbody>{body}</tbody></table>", "other measurements")
    if any(pair["verdict"] in FOUND for table in others for pair in table["comparisons"]):
        yield f"<p class='note'>Better, worse: than {escaped(record['baseline'])}, as above.</p>"


def _means(record: Record, row: Record, tables: Sequence[Record]) -> Iterator[str]:
    """Yield the name of a row, and its means in some tables with their verdicts."""
    yield cell(escaped(row["name"]))
    for table in tables:
        pair = comparison_of(record, table, trainings_of(row))
        yield _mean(table, trainings_of(row), pair["verdict"] if pair else "")


def _cells(record: Record, row: Record, table: Record | None) -> Iterator[str]:
    costs = row["costs"]
    yield cell(escaped(row["name"]))
    yield _mean(table, trainings_of(row))
    yield from _compared(record, row, table)
    yield cell(f"{costs['parameters']:,}", costs["parameters"])
    yield cell(f"{costs['flops']:,}", costs["flops"])
    yield cell(size(costs["memory"]), costs["memory"])
    times = [
        seed_run["training"]["seconds"]
        for seed_run in row["seeds"].values()
        if "training" in seed_run
    ]
    mean = sum(times) / len(times) if times else None
    yield cell("" if mean is None else duration(mean), mean)


def _compared(record: Record, row: Record, table: Record | None) -> Iterator[str]:
    """Yield the difference of a row from the baseline, its probability and the conclusion."""
    pair = comparison_of(record, table, trainings_of(row))
    words = conclusion_of(row, table, pair)
    if pair is None:
        yield cell("") + cell("") + cell(escaped(words), kind="words failed")
        return
    text, ends = parts_of(pair, decimals_of(table))
    yield cell(f"{text} <small>{ends}</small>" if ends else text, pair["difference"])
    p = pair["adjusted"]
    yield cell("" if p is None else escaped(probability(p)), p)
    kind = pair["verdict"] if pair["verdict"] in FOUND else "same"
    yield cell(escaped(words), kind=f"words {kind}")


def _mean(table: Record | None, name: str, verdict: str = "") -> str:
    """Return the cell of a row's mean, with its spread, its interval and what was found."""
    row, decimals = row_of(table, name), decimals_of(table)
    if row is None:
        return cell("")
    text = mean_of(table, name)
    if row["low"] is not None:
        text += f" <small>[{row['low']:.{decimals}f}, {row['high']:.{decimals}f}]</small>"
    significant = verdict in FOUND
    return cell(
        f"{text} {verdict}" if significant else text, row["mean"], verdict if significant else ""
    )


def _lengths(lengths: Record) -> Iterator[str]:
    title = f"{lengths['metric']} on {lengths['split']} by length of the reference"
    yield f"<h2>{escaped(title)}</h2>"
    groups = zip(lengths["words"], lengths["examples"], strict=True)
    heads = [f"{escaped(words)} words <small>n = {count:,}</small>" for words, count in groups]
    body = ""
    decimals = decimals_for(itertools.chain(*lengths["rows"].values()))
    for name, values in lengths["rows"].items():
        cells = "".join(cell(f"{value:.{decimals}f}", value) for value in values)
        body += f"<tr>{cell(escaped(name))}{cells}</tr>"
    table = f"<table>{head(['row', *heads])}<tbody>{body}</tbody></table>"
    yield wide(table, "scores by length")


def _row(row: Record, out: Path) -> Iterator[str]:
    """Yield the changes of a row, in words and as a picture."""
    solved = f" {row['solved']}." if row["solved"] else ""
    jobs = ", ".join(f"seed {seed}: {seed_run['job']}" for seed, seed_run in row["seeds"].items())
    changes = row["changes"] or ["the baseline"]
    picture = picture_of(out, row["name"])
    yield from drawn_row(row["name"], row["doc"] + solved, changes, picture, f"jobs: {jobs}")
