"""The report of a study as one HTML page that needs no network."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from ..planning.table import duration, size
from .commands import commands
from .conclusions import FOUND, conclude, conclusion_of, probability
from .pictures import curves, picture_of
from .record import Record, comparison_of, primary_table, row_of, trainings_of
from .text import CAN, CANNOT, CONCLUSION, method


def page(record: Record, out: Path, picture: str) -> str:
    """Return the page.

    Args:
        record: record of the study.
        out: folder of the study, which contains the pictures of the rows.
        picture: the picture of the differences.
    """
    template = Template((files(__package__) / "page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=_text(record["study"]),
        doc=_text(record["doc"]),
        body="\n".join([_wide(picture, "differences") if picture else "", *_body(record, out)]),
    )


def _text(value: object) -> str:
    return html.escape(str(value))


def _body(record: Record, out: Path) -> Iterator[str]:
    for title, lines in zip((CAN, CANNOT), conclude(record), strict=True):
        if lines:
            yield f"<h2>{title}</h2><ul class='conclusions'>"
            yield from (f"<li>{_text(line)}</li>" for line in lines)
            yield "</ul>"
    if record["selected"]:
        one = record["selected"]
        yield (
            f"<p class='note'>The validation data selects <b>{_text(one['row'])}</b>"
            f" ({_text(one['metric'])} {one['mean']:.2f}); the test sets choose nothing.</p>"
        )
    yield "<h2>Rows</h2>"
    yield _wide(f"<table>{''.join(_main(record))}</table>", "rows")
    words = method(record, intervals=True)
    brackets = f" In brackets: {record['level']:.0%} intervals." if "intervals" in words else ""
    yield f"<p class='note'>{_text(words)}{brackets} The heading of a column sorts by it.</p>"
    failed = [
        f"{row['name']}, seed {seed}: {one['error']}"
        for row in record["rows"]
        for seed, one in row["seeds"].items()
        if one.get("error")
    ]
    if failed:
        yield "<h2>Failures</h2><ul class='failed'>"
        yield from (f"<li>{_text(line)}</li>" for line in failed)
        yield "</ul>"
    yield from _others(record)
    if drawn := curves(record):
        yield f"<h2>Validation {record['curve']} by update</h2>"
        yield _wide(drawn, "curves")
    if record["lengths"]:
        yield from _lengths(record["lengths"])
    yield "<h2>What each row changes</h2>"
    for row in record["rows"]:
        yield from _row(row, out)
    yield "<h2>Measurements</h2><ul class='note'>"
    for table in record["tables"]:
        tests = sorted({one["test"].partition(", ")[0] for one in table["comparisons"]})
        count = f", {table['examples']:,} examples" if table["examples"] else ""
        words = "; ".join([table["signature"], *tests] if table["signature"] else tests)
        yield f"<li>{_text(table['metric'])} on {_text(table['split'])}{count}: {_text(words)}</li>"
    yield "</ul>"
    yield f"<h2>Commands</h2><pre>{_text(chr(10).join(commands(record)))}</pre>"
    yield f"<p class='note'>weft {_text(record['weft'])}</p>"


def _wide(content: str, name: str) -> str:
    """Return what scrolls where the page is narrow, also by keyboard."""
    return f'<div class="wide" role="region" aria-label="{name}" tabindex="0">{content}</div>'


def _heads(names: Sequence[str]) -> str:
    """Return the head of a table, of which the first column has the names of rows."""
    cells = (f"<th scope='col'{' class=words' * (one == CONCLUSION)}>{one}</th>" for one in names)
    return f"<thead><tr>{''.join(cells)}</tr></thead>"


def _cell(text: str, value: float | None = None, kind: str = "") -> str:
    """Return a cell, with the number by which it is sorted."""
    data = "" if value is None else f' data-value="{json.dumps(value)}"'
    look = f' class="{kind}"' if kind else ""
    return f"<td{data}{look}>{text}</td>"


def _main(record: Record) -> Iterator[str]:
    """Yield the main table."""
    table = primary_table(record)
    title = f"{table['split']} {table['metric']}" if table else "result"
    heads = ["row", _text(title), "difference", "p (Holm)", CONCLUSION]
    yield _heads([*heads, "parameters", "FLOPs", "memory", "time"])
    yield "<tbody>"
    for row in record["rows"]:
        look = " class='baseline'" if row["name"] == record["baseline"] else ""
        yield f"<tr{look}>" + "".join(_cells(record, row, table)) + "</tr>"
    yield "</tbody>"


def _others(record: Record) -> Iterator[str]:
    """Yield a table of the other metrics and splits, each with its verdicts."""
    others = [one for one in record["tables"] if one is not primary_table(record)]
    if not others:
        return
    yield "<h2>Other measurements</h2>"
    heads = _heads(["row", *(_text(f"{one['split']} {one['metric']}") for one in others)])
    lines = ("".join(_means(record, row, others)) for row in record["rows"])
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    yield _wide(f"<table>{heads}<tbody>{body}</tbody></table>", "other measurements")
    if any(pair["verdict"] in FOUND for one in others for pair in one["comparisons"]):
        yield f"<p class='note'>Better, worse: than {_text(record['baseline'])}, as above.</p>"


def _means(record: Record, row: Record, tables: Sequence[Record]) -> Iterator[str]:
    """Yield the name of a row, and its means in some tables with their verdicts."""
    yield _cell(_text(row["name"]))
    for one in tables:
        pair = comparison_of(record, one, trainings_of(row))
        yield _mean(row_of(one, trainings_of(row)), pair["verdict"] if pair else "")


def _cells(record: Record, row: Record, table: Record | None) -> Iterator[str]:
    costs = row["costs"]
    yield _cell(_text(row["name"]))
    yield _mean(row_of(table, trainings_of(row)))
    yield from _compared(record, row, table)
    yield _cell(f"{costs['parameters']:,}", costs["parameters"])
    yield _cell(f"{costs['flops']:,}", costs["flops"])
    yield _cell(size(costs["memory"]), costs["memory"])
    times = [one["training"]["seconds"] for one in row["seeds"].values() if "training" in one]
    mean = sum(times) / len(times) if times else None
    yield _cell("" if mean is None else duration(mean), mean)


def _compared(record: Record, row: Record, table: Record | None) -> Iterator[str]:
    """Yield the difference of a row from the baseline, its probability and the conclusion."""
    pair = comparison_of(record, table, trainings_of(row))
    words = conclusion_of(row, table, pair)
    if pair is None:
        yield _cell("") + _cell("") + _cell(_text(words), kind="words failed")
        return
    text = f"{pair['difference']:+.2f}"
    if pair["low"] is not None:
        text += f" <small>[{pair['low']:+.2f}, {pair['high']:+.2f}]</small>"
    yield _cell(text, pair["difference"])
    p = pair["adjusted"]
    yield _cell("" if p is None else _text(probability(p)), p)
    kind = pair["verdict"] if pair["verdict"] in FOUND else "same"
    yield _cell(_text(words), kind=f"words {kind}")


def _mean(row: Record | None, verdict: str = "") -> str:
    """Return the cell of a mean, with its spread, its interval and what was found."""
    if row is None:
        return _cell("")
    text = f"{row['mean']:.2f}"
    if row["spread"] is not None:
        text += f" ± {row['spread']:.2f}"
    if row["low"] is not None:
        text += f" <small>[{row['low']:.2f}, {row['high']:.2f}]</small>"
    found = verdict in FOUND
    return _cell(f"{text} {verdict}" if found else text, row["mean"], verdict if found else "")


def _lengths(lengths: Record) -> Iterator[str]:
    title = f"{lengths['metric']} on {lengths['split']} by length of the reference"
    yield f"<h2>{_text(title)}</h2>"
    groups = zip(lengths["words"], lengths["examples"], strict=True)
    heads = [f"{_text(words)} words <small>n = {count:,}</small>" for words, count in groups]
    body = ""
    for name, values in lengths["rows"].items():
        cells = "".join(_cell(f"{value:.2f}", value) for value in values)
        body += f"<tr>{_cell(_text(name))}{cells}</tr>"
    table = f"<table>{_heads(['row', *heads])}<tbody>{body}</tbody></table>"
    yield _wide(table, "scores by length")


def _row(row: Record, out: Path) -> Iterator[str]:
    """Yield the changes of a row, in words and as a picture."""
    solved = f" {row['solved']}." if row["solved"] else ""
    doc = f" <span>{_text(row['doc'] + solved)}</span>" if row["doc"] + solved else ""
    yield f"<details><summary>{_text(row['name'])}{doc}</summary>"
    yield f"<pre>{_text(chr(10).join(row['changes'] or ['the baseline']))}</pre>"
    if picture := picture_of(out, row["name"]):
        yield f"<div class='picture'>{picture}</div>"
    jobs = ", ".join(f"seed {seed}: {one['job']}" for seed, one in row["seeds"].items())
    yield f"<p class='note'>jobs: {_text(jobs)}</p></details>"
