"""How far the jobs of a study are, as a table that follows them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from ....runtime.metrics.digits import significant
from ..planning.table import duration
from .jobs import Job, jobs_of
from .pool import Work

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

EVERY = 1.0
"""Seconds between two pictures of the table."""
LONGEST = 80
"""Maximum number of letters of an error."""
_STYLES = {"done": "green", "running": "cyan", "failed": "red", "stopped": "yellow"}


def status_of(job: Job) -> dict[str, Any]:
    """Return the state of a job, its newest losses and why it failed, as plain data."""
    progress, state = job.progress(), job.state()
    train, valid = progress.get("train", {}), progress.get("valid", {})
    status: dict[str, Any] = {"state": state, "update": train.get("update", 0)}
    for name, event in (("loss", train), ("valid", valid)):
        if "loss" in event:
            status[name] = event["loss"]
    if "seconds" in train:
        status["seconds"] = train["seconds"]
    if state == "failed":
        status["error"] = job.error()
    return status


def status_table(record: dict[str, Any], out: Path, work: Work | None = None) -> Table:
    """Return a table with a line for each job.

    Args:
        record: plan of the study.
        out: folder of the study.
        work: the pool that runs the jobs, if there is one.
    """
    from rich.table import Table  # noqa: PLC0415 - slow to load, and needed only for people
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table(
        title=record["study"], title_justify="left", caption_justify="left", caption_style=""
    )
    for name in ("row", "seed", "state", "update", "loss", "valid loss", "time"):
        table.add_column(name, justify="left" if name in ("row", "state") else "right")
    costs = {key: row["costs"] for row in record["rows"] for key in row["jobs"].values()}
    rows: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for job in jobs_of(record, out):
        status, cost = status_of(job), costs[job.key]
        if work is not None and job.key in work.running:
            status["state"] = "running"
        if work is not None and job.key in work.failed:
            status |= {"state": "failed", "error": work.failed[job.key]}
        rows.append((status, cost))
        state, style = status["state"], _STYLES.get(status["state"], "")
        table.add_row(
            job.row,
            str(job.seed),
            f"[{style}]{state}[/]" if style else state,
            f"{status['update']:,}/{cost['updates']:,}",
            significant(status["loss"]) if "loss" in status else "",
            significant(status["valid"]) if "valid" in status else "",
            duration(status["seconds"]) if "seconds" in status else "",
        )
        if status.get("error"):
            error = shorten(status["error"], LONGEST, placeholder="…")
            table.add_row("", "", Text(error, style="red"))
    table.caption = summary(rows)
    return table


def summary(rows: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> str:
    """Return how many jobs are done and how long the others will take, on one line.

    The time is that of the updates that are left, at the speed of those that were trained.

    Args:
        rows: the status and the costs of each job, as of `status_of` and of a plan.
    """
    states = Counter(status["state"] for status, _ in rows)
    parts = [f"{states['done']} of {len(rows)} done"]
    parts += [f"{states[name]} {name}" for name in ("running", "failed") if states[name]]
    trained = remaining = seconds = 0.0
    for status, cost in rows:
        work = cost["training_flops"] * status["update"] / cost["updates"]
        if "seconds" in status:
            trained, seconds = trained + work, seconds + status["seconds"]
        if status["state"] != "done":
            remaining += cost["training_flops"] - work
    line = ", ".join(parts)
    if not remaining or not trained:
        return line
    estimate = remaining / trained * seconds
    running = states["running"]
    return (
        f"{line}; about {duration(estimate / running)} left"
        if running
        else (f"{line}; about {duration(estimate)} of training left")
    )


@contextmanager
def watched(
    record: dict[str, Any], out: Path, console: Console, *, live: bool
) -> Iterator[Callable[[Work], None]]:
    """Show the table inside this context, or a line for each job that ends.

    Yields:
        A function that a pool calls again and again.
    """
    began = time.monotonic()
    if not live:
        yield _lines(console, began, jobs_of(record, out))
        return
    from rich.live import Live  # noqa: PLC0415 - as above

    shown = 0.0
    with Live(console=console, auto_refresh=False) as view:

        def look(work: Work) -> None:
            nonlocal shown
            ended = not work.running and not work.waiting
            if ended or time.monotonic() - shown >= EVERY:
                shown = time.monotonic()
                view.update(status_table(record, out, work), refresh=True)

        yield look


def _lines(console: Console, began: float, jobs: Sequence[Job]) -> Callable[[Work], None]:
    """Return a function that prints a line for each job that has ended."""
    reported: set[str] = set()
    names = {job.key: f"{job.row}, seed {job.seed}" for job in jobs}

    def look(work: Work) -> None:
        ended = {job.key: f"{names[job.key]}: done" for job in work.done}
        ended |= {key: f"{names[key]}: failed, {why}" for key, why in work.failed.items()}
        for key in ended.keys() - reported:
            seconds = time.monotonic() - began
            console.print(f"{duration(seconds):>9}  {ended[key]}", markup=False)
        reported.update(ended)

    return look
