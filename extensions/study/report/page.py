"""The report of a study, and its plan, as one HTML page that needs no network."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from string import Template

from graphviz import Digraph

from ....graphs.draw.diff import diff_picture
from ....plugin import InputError, duration, svg_of, write_beside
from ....runtime.system.strangers import has_file, read_in
from ....specs.escaping import html_text
from ..planning.identity import digest_of
from ..planning.plan import JobPlan, difference
from ..planning.planned import Planned
from ..planning.table import (
    Speed,
    copied,
    percent,
    procedure,
    search_cost,
    seconds_of_row,
    size,
    solved,
)
from .commands import commands
from .conclusions import FOUND, conclude, conclusion_of, parts_of, probability
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
from .text import CAN, CANNOT, CONCLUSION, failures, mean_of, method, selected_of
from .tuning import chosen_text


def _filled(title: str, doc: str, body: str) -> str:
    """Return a page that needs no network.

    Args:
        title: its title, as text.
        doc: what is below the title, as text.
        body: the rest of the page, as HTML.
    """
    template = Template((files(__package__) / "page.html").read_text(encoding="utf-8"))
    return template.substitute(title=html_text(title), doc=html_text(doc), body=body)


def cell(words: str, value: float | None = None, kind: str = "") -> str:
    """Return a cell of a table.

    Args:
        words: what it shows, as HTML.
        value: the number by which the column is sorted; None sorts it by what it shows.
        kind: its class in the style of the page.
    """
    data = "" if value is None else f' data-value="{json.dumps(value)}"'
    look = f' class="{kind}"' if kind else ""
    return f"<td{data}{look}>{words}</td>"


def _head(titles: Sequence[str], words: str = "") -> str:
    """Return the head of a table, of which the first column has the names of rows.

    Args:
        titles: titles of the columns, as HTML.
        words: title of a column of text, which is aligned on the left.
    """
    cells = (f"<th scope='col'{' class=words' * (title == words)}>{title}</th>" for title in titles)
    return f"<thead><tr>{''.join(cells)}</tr></thead>"


def _wide(content: str, name: str) -> str:
    """Return what scrolls where the page is narrow, also by keyboard.

    Args:
        content: HTML.
        name: what it is, for screen readers.
    """
    return f'<div class="wide" role="region" aria-label="{name}" tabindex="0">{content}</div>'


def drawn_row(
    name: str, doc: str, changes: Sequence[str], picture: str, note: str, *, opened: bool = False
) -> Iterator[str]:
    """Yield what a row changes, in words and as a picture.

    Args:
        name: name of the row.
        doc: its description.
        changes: its differences from the baseline, one line each.
        picture: the picture of the differences as SVG; `""` if there is none.
        note: the line below it; `""` if there is none.
        opened: whether it is shown before the reader clicks on it.
    """
    about = f" <span>{html_text(doc)}</span>" if doc else ""
    yield f"<details{' open' * opened}><summary>{html_text(name)}{about}</summary>"
    yield f"<pre>{html_text(chr(10).join(changes))}</pre>"
    if picture:
        # As a picture of its own, the file of a stranger's study runs no script in this page.
        data = base64.b64encode(picture.encode()).decode()
        yield f"<div class='picture'><img alt='' src='data:image/svg+xml;base64,{data}'></div>"
    yield f"<p class='note'>{html_text(note)}</p></details>" if note else "</details>"


def write_pictures(plan: JobPlan, out: Path) -> list[str]:
    """Draw the difference of each row from the baseline into the folder of the study.

    A picture that exists already is not drawn again.  That of a row whose graph is no longer
    another one is removed.

    Returns:
        Why rows that have a difference have no picture.
    """
    failed = dict[str, list[str]]()
    for row in plan.rows:
        path, picture = _path(out, row.name), _difference(plan, row)
        if picture is None:
            path.unlink(missing_ok=True)
            continue
        digest = digest_of(picture.source, 16)
        if digest in picture_of(out, row.name)[:60]:
            continue
        if drawn := _drawn(picture, row.name, failed):
            write_beside(path, f"<!-- {digest} -->{drawn}".encode(), "picture")
    return _reasons(failed)


def pictures(plan: JobPlan) -> tuple[dict[str, str], list[str]]:
    """Draw the difference of each row from the baseline.

    Returns:
        The name of each row whose graph is another one to its picture as SVG; and why rows that
        have a difference have no picture.
    """
    drawings, failed = dict[str, str](), dict[str, list[str]]()
    for row in plan.rows:
        picture = _difference(plan, row)
        if picture is not None and (drawn := _drawn(picture, row.name, failed)):
            drawings[row.name] = drawn
    return drawings, _reasons(failed)


def _difference(plan: JobPlan, row: Planned) -> Digraph | None:
    """Return the diagram of what a row changes in the graph; None if that is nothing."""
    old, new, graph_diff = difference(plan.baseline, row)
    if not graph_diff.changes:
        return None
    return diff_picture(old, new, replace(graph_diff, names=(plan.baseline.name, row.name)))


def _drawn(picture: Digraph, name: str, failed: dict[str, list[str]]) -> str:
    """Return a diagram as SVG; `""` if this fails, and add the row to those that have failed."""
    try:
        return svg_of(picture)
    except InputError as error:
        failed.setdefault(error.problem, []).append(name)
        return ""


def _reasons(failed: Mapping[str, Sequence[str]]) -> list[str]:
    """Return why rows have no picture, from problem to rows, one line for each problem."""
    reasons = []
    for problem, names in failed.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        reasons.append(f"no picture of the row '{names[0]}'{more}: {problem}")
    return reasons


def _path(out: Path, name: str) -> Path:
    """Return the file of the picture of a row in the folder of a study."""
    return out / "pictures" / f"{digest_of(name, 16)}.svg"


def picture_of(out: Path, name: str) -> str:
    """Return the picture of a row as SVG; `""` if there is none."""
    path = _path(out, name)
    if not has_file(path.parent, path.name):
        return ""
    return read_in(path.parent, path.name).decode("utf-8", errors="replace")


def page(record: Record, out: Path, drawn: Mapping[str, str]) -> str:
    """Return the page.

    Args:
        record: record of the study.
        out: folder of the study, which contains the pictures of the rows.
        drawn: figures as SVG by name.
    """
    effects = _wide(drawn["effects"], "differences") if "effects" in drawn else ""
    body = [effects, *_body(record, out, drawn)]
    return _filled(record["study"], record["doc"], "\n".join(body))


def _body(record: Record, out: Path, drawn: Mapping[str, str]) -> Iterator[str]:
    for title, lines in zip((CAN, CANNOT), conclude(record), strict=True):
        if lines:
            yield f"<h2>{title}</h2><ul class='conclusions'>"
            yield from (f"<li>{html_text(line)}</li>" for line in lines)
            yield "</ul>"
    if record["selected"]:
        yield (
            f"<p class='note'>The validation data selects <b>{html_text(record['selected']['row'])}"
            f"</b> ({html_text(selected_of(record))}); the test sets choose nothing.</p>"
        )
    yield "<h2>Rows</h2>"
    yield _wide(f"<table>{''.join(_main(record))}</table>", "rows")
    words = method(record, intervals=True)
    brackets = f" In brackets: {record['level']:.0%} intervals." if "intervals" in words else ""
    yield f"<p class='note'>{html_text(words)}{brackets} The heading of a column sorts by it.</p>"
    if failed := failures(record):
        yield "<h2>Failures</h2><ul class='failed'>"
        yield from (f"<li>{html_text(line)}</li>" for line in failed)
        yield "</ul>"
    yield from _others(record)
    yield from _extra(record, drawn)
    if "curves" in drawn:
        yield f"<h2>Validation {record['curve']} by update</h2>"
        yield _wide(drawn["curves"], "curves")
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
        yield f"<li>{html_text(what)}</li>"
    yield "</ul>"
    yield f"<h2>Commands</h2><pre>{html_text(chr(10).join(commands(record)))}</pre>"
    yield f"<p class='note'>weft {html_text(record['weft'])}</p>"


def _extra(record: Record, drawn: Mapping[str, str]) -> Iterator[str]:
    """Yield the tables about tuning, time to target and ladders, with their figures."""
    shown = set[str]()
    for table in extra_tables(record):
        yield f"<h2>{html_text(table.title)}</h2>"
        if table.figure in drawn and table.figure not in shown:
            shown.add(table.figure)
            yield _wide(drawn[table.figure], table.figure)
        lines = (
            f"<tr>{''.join(cell(html_text(text)) for text in line)}</tr>" for line in table.lines
        )
        head = _head([html_text(title) for title in table.head])
        content = f"<table>{head}<tbody>{''.join(lines)}</tbody></table>"
        yield _wide(content, html_text(table.title))
        yield f"<p class='note'>{html_text(' '.join(table.notes))}</p>"


def _main(record: Record) -> Iterator[str]:
    """Yield the main table."""
    table = primary_table(record)
    title = f"{table['split']} {table['metric']}" if table else "result"
    heads = ["row", html_text(title), "difference", "p (Holm)", CONCLUSION]
    yield _head([*heads, "parameters", "FLOPs", "memory", "time"], CONCLUSION)
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
    heads = _head(["row", *(html_text(f"{table['split']} {table['metric']}") for table in others)])
    lines = ("".join(_means(record, row, others)) for row in record["rows"])
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    yield _wide(f"<table>{heads}<tbody>{body}</tbody></table>", "other measurements")
    if any(pair["verdict"] in FOUND for table in others for pair in table["comparisons"]):
        yield f"<p class='note'>Better, worse: than {html_text(record['baseline'])}, as above.</p>"


def _means(record: Record, row: Record, tables: Sequence[Record]) -> Iterator[str]:
    """Yield the name of a row, and its means in some tables with their verdicts."""
    yield cell(html_text(row["name"]))
    for table in tables:
        pair = comparison_of(record, table, trainings_of(row))
        yield _mean(table, trainings_of(row), pair["verdict"] if pair else "")


def _cells(record: Record, row: Record, table: Record | None) -> Iterator[str]:
    costs = row["costs"]
    yield cell(html_text(row["name"]))
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
        yield cell("") + cell("") + cell(html_text(words), kind="words failed")
        return
    text, ends = parts_of(pair, decimals_of(table))
    yield cell(f"{text} <small>{ends}</small>" if ends else text, pair["difference"])
    p = pair["adjusted"]
    yield cell("" if p is None else html_text(probability(p)), p)
    kind = pair["verdict"] if pair["verdict"] in FOUND else "same"
    yield cell(html_text(words), kind=f"words {kind}")


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
    yield f"<h2>{html_text(title)}</h2>"
    groups = zip(lengths["words"], lengths["examples"], strict=True)
    heads = [f"{html_text(words)} words <small>n = {count:,}</small>" for words, count in groups]
    body = ""
    decimals = decimals_for(itertools.chain(*lengths["rows"].values()))
    for name, values in lengths["rows"].items():
        cells = "".join(cell(f"{value:.{decimals}f}", value) for value in values)
        body += f"<tr>{cell(html_text(name))}{cells}</tr>"
    table = f"<table>{_head(['row', *heads])}<tbody>{body}</tbody></table>"
    yield _wide(table, "scores by length")


def _row(row: Record, out: Path) -> Iterator[str]:
    """Yield the changes of a row, in words and as a picture."""
    solved = f" {row['solved']}." if row["solved"] else ""
    jobs = ", ".join(f"seed {seed}: {seed_run['job']}" for seed, seed_run in row["seeds"].items())
    changes = row["changes"] or ["the baseline"]
    picture = picture_of(out, row["key"])
    tuned = f" Tuned: {chosen_text(row)}." if row["tuned"] else ""
    yield from drawn_row(
        row["name"], row["doc"] + solved + tuned, changes, picture, f"jobs: {jobs}"
    )


PAGE = ("html",)
"""Suffixes of the page."""
_HEAD = ("row", "parameters", "FLOPs", "decoding", "memory", "updates", "one run", "all runs")


def plan_page(plan: JobPlan, flops_per_second: Speed, drawn: Mapping[str, str]) -> str:
    """Return the page.

    Args:
        plan: a plan without errors.
        flops_per_second: FLOP/s with which a run trains.
        drawn: name of a row to the picture of its difference from the baseline, as SVG.
    """
    body = "\n".join(_plan_body(plan, flops_per_second, drawn))
    return _filled(f"{plan.study.name}, before it runs", plan.study.doc, body)


def _plan_body(plan: JobPlan, speed: Speed, drawn: Mapping[str, str]) -> Iterator[str]:
    yield "<h2>Costs</h2>"
    yield _wide(f"<table>{''.join(_table(plan, speed))}</table>", "costs")
    words = html_text(_method(plan, speed))
    yield f"<p class='note'>{words} The heading of a column sorts by it.</p>"
    yield "<h2>Findings</h2>"
    if plan.findings:
        yield from (f"<pre>{html_text(finding.render())}</pre>" for finding in plan.findings)
    else:
        yield "<p class='note'>All rows pass all checks.</p>"
    yield "<h2>What each row changes</h2>"
    for number, row in enumerate(plan.rows):
        if row is not plan.baseline:
            yield f"<div id='row-{number}'>"
            yield from _plan_row(plan, row, drawn.get(row.name, ""))
            yield "</div>"


def _method(plan: JobPlan, speed: Speed) -> str:
    """Return how the figures were estimated."""
    seeds, gigaflops = len(plan.study.seeds), speed(plan.baseline.run) / 1e9
    search = search_cost(plan, speed)
    trials = "".join(f" {' '.join(line.split()).capitalize()}." for line in procedure(plan, speed))
    trials += f" Search: {search}." if search else ""
    return (
        "Parameters, FLOPs of one forward pass and decoding state are those of the deployed model"
        " for one sequence of 32 tokens; memory is an estimate for training: weights, gradients,"
        f" moments, and outputs of all blocks. One run: training at {gigaflops:,.1f} GFLOP/s,"
        f" without validations. All runs: {seeds} seed{'s' * (seeds > 1)}, one run at a time."
        f"{trials}"
    )


def _table(plan: JobPlan, speed: Speed) -> Iterator[str]:
    yield _head(_HEAD)
    yield "<tbody>"
    for number, row in enumerate(plan.rows):
        look = " class='baseline'" if row is plan.baseline else ""
        yield f"<tr{look}>" + "".join(_plan_cells(plan, row, speed, number)) + "</tr>"
    yield "</tbody>"
    times = [seconds_of_row(plan, row, speed) for row in plan.rows]
    total = duration(sum(time for time in times if time is not None))
    empty = cell("") * (len(_HEAD) - 2)
    yield f"<tfoot><tr>{cell('all')}{empty}{cell(total)}</tr></tfoot>"


def _plan_cells(plan: JobPlan, row: Planned, speed: Speed, number: int) -> Iterator[str]:
    costs, base, name = row.costs, plan.baseline.costs, html_text(row.name)
    yield cell(name if row is plan.baseline else f"<a href='#row-{number}'>{name}</a>")
    for value, usual in ((costs.parameters, base.parameters), (costs.flops, base.flops)):
        more = percent(value, usual)
        yield cell(f"{f'<small>{more}</small> ' if more else ''}{value:,}", value)
    state = costs.decode_state
    yield cell(size(state) if state else "", state)
    yield cell(size(costs.memory), costs.memory)
    yield cell(f"{costs.updates:,}", costs.updates)
    once, total = costs.seconds(speed(row.run)), seconds_of_row(plan, row, speed)
    yield cell(duration(once), once)
    if total is None:
        yield cell(f"same as {html_text(copied(plan, row))}", 0.0)
    else:
        yield cell(duration(total), total)


def _plan_row(plan: JobPlan, row: Planned, picture: str) -> Iterator[str]:
    """Yield the changes of a row, in words and as a picture."""
    solution = solved(plan, row)
    doc = f"{row.row.change.doc} {solution}{'.' * bool(solution)}".strip()
    note = f"same runs as {copied(plan, row)}" if copied(plan, row) else ""
    changes = plan.changes(row) or ["no difference"]
    yield from drawn_row(row.name, doc, changes, picture, note, opened=True)
