"""The plan of a study as one HTML page: costs, warnings, and the drawn difference of each row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..planning.plan import Plan
from ..planning.planned import Planned
from ..planning.table import (
    Speed,
    copied,
    duration,
    percent,
    search_cost,
    seconds_of_row,
    size,
    solved,
)
from .markup import cell, drawn_row, escaped, filled, head, wide

PAGE = ("html",)
"""Suffixes of the page."""
_HEAD = ("row", "parameters", "FLOPs", "decoding", "memory", "updates", "one run", "all runs")


def plan_page(plan: Plan, flops_per_second: Speed, drawn: Mapping[str, str]) -> str:
    """Return the page.

    Args:
        plan: a plan without errors.
        flops_per_second: FLOP/s with which a run trains.
        drawn: name of a row to the picture of its difference from the baseline, as SVG.
    """
    body = "\n".join(_body(plan, flops_per_second, drawn))
    return filled(f"{plan.study.name}, before it runs", plan.study.doc, body)


def _body(plan: Plan, speed: Speed, drawn: Mapping[str, str]) -> Iterator[str]:
    yield "<h2>Costs</h2>"
    yield wide(f"<table>{''.join(_table(plan, speed))}</table>", "costs")
    words = escaped(_method(plan, speed))
    yield f"<p class='note'>{words} The heading of a column sorts by it.</p>"
    yield "<h2>Findings</h2>"
    if plan.findings:
        yield from (f"<pre>{escaped(finding.render())}</pre>" for finding in plan.findings)
    else:
        yield "<p class='note'>All rows pass all checks.</p>"
    yield "<h2>What each row changes</h2>"
    for number, row in enumerate(plan.rows):
        if row is not plan.baseline:
            yield f"<div id='row-{number}'>"
            yield from _row(plan, row, drawn.get(row.name, ""))
            yield "</div>"


def _method(plan: Plan, speed: Speed) -> str:
    """Return how the figures were estimated."""
    seeds, gigaflops = len(plan.study.seeds), speed(plan.baseline.run) / 1e9
    search = search_cost(plan, speed)
    trials = f" Search: {search}." if search else ""
    return (
        "Parameters, FLOPs of one forward pass and decoding state are those of the deployed model"
        " for one sequence of 32 tokens; memory is an estimate for training: weights, gradients,"
        f" moments, and outputs of all blocks. One run: training at {gigaflops:,.1f} GFLOP/s,"
        f" without validations. All runs: {seeds} seed{'s' * (seeds > 1)}, one run at a time."
        f"{trials}"
    )


def _table(plan: Plan, speed: Speed) -> Iterator[str]:
    yield head(_HEAD)
    yield "<tbody>"
    for number, row in enumerate(plan.rows):
        look = " class='baseline'" if row is plan.baseline else ""
        yield f"<tr{look}>" + "".join(_cells(plan, row, speed, number)) + "</tr>"
    yield "</tbody>"
    times = [seconds_of_row(plan, row, speed) for row in plan.rows]
    total = duration(sum(time for time in times if time is not None))
    empty = cell("") * (len(_HEAD) - 2)
    yield f"<tfoot><tr>{cell('all')}{empty}{cell(total)}</tr></tfoot>"


def _cells(plan: Plan, row: Planned, speed: Speed, number: int) -> Iterator[str]:
    costs, base, name = row.costs, plan.baseline.costs, escaped(row.name)
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
        yield cell(f"same as {escaped(copied(plan, row))}", 0.0)
    else:
        yield cell(duration(total), total)


def _row(plan: Plan, row: Planned, picture: str) -> Iterator[str]:
    """Yield the changes of a row, in words and as a picture."""
    solution = solved(plan, row)
    doc = f"{row.row.change.doc} {solution}{'.' * bool(solution)}".strip()
    note = f"same runs as {copied(plan, row)}" if copied(plan, row) else ""
    changes = plan.changes(row) or ["no difference"]
    yield from drawn_row(row.name, doc, changes, picture, note, opened=True)
