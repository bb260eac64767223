"""How far the jobs of a study are, as a table that follows them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..planning.table import duration
from .jobs import Job, jobs_of
from .pool import Work

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

EVERY = 1.0
"""Seconds between two pictures of the table."""
_STYLES = {"done": "green", "running": "cyan", "failed": "red", "stopped": "yellow"}


def status_of(job: Job) -> dict[str, Any]:
    """Return the state of a job, its newest losses and why it failed, as plain data."""
    progress, state = job.progress(), job.state()
    train, valid = progress.get("train", {}), progress.get("valid", {})
    found: dict[str, Any] = {"state": state, "update": train.get("update", 0)}
    for name, event in (("loss", train), ("valid", valid)):
        if "loss" in event:
            found[name] = event["loss"]
    if "seconds" in train:
        found["seconds"] = train["seconds"]
    if state == "failed":
        found["error"] = job.error()
    return found


def status_table(record: dict[str, Any], out: Path, work: Work | None = None) -> Table:
    """Return a table with a line for each job.

    Args:
        record: plan of the study.
        out: folder of the study.
        work: the pool that runs the jobs, if there is one.
    """
    from rich.table import Table  # noqa: PLC0415 - slow to load, and needed only for people

    table = Table(title=record["study"], title_justify="left")
    for name in ("row", "seed", "state", "update", "loss", "valid loss", "time"):
        table.add_column(name, justify="left" if name in ("row", "state") else "right")
    updates = {key: r["costs"]["updates"] for r in record["rows"] for key in r["jobs"].values()}
    for job in jobs_of(record, out):
        found, total = status_of(job), updates[job.key]
        state = "running" if work is not None and job.key in work.running else found["state"]
        if work is not None and job.key in work.failed:
            state, found["error"] = "failed", work.failed[job.key]
        style = _STYLES.get(state, "")
        table.add_row(
            job.row,
            str(job.seed),
            f"[{style}]{state}[/]" if style else state,
            f"{found['update']:,}/{total:,}",
            f"{found['loss']:.3f}" if "loss" in found else "",
            f"{found['valid']:.3f}" if "valid" in found else "",
            duration(found["seconds"]) if "seconds" in found else "",
        )
        if found.get("error"):
            table.add_row("", "", f"[red]{found['error'][:80]}[/]")
    return table


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
    known: set[str] = set()
    names = {job.key: f"{job.row}, seed {job.seed}" for job in jobs}

    def look(work: Work) -> None:
        ended = {job.key: f"{names[job.key]}: done" for job in work.done}
        ended |= {key: f"{names[key]}: failed, {why}" for key, why in work.failed.items()}
        for key in ended.keys() - known:
            seconds = time.monotonic() - began
            console.print(f"{duration(seconds):>9}  {ended[key]}", markup=False)
        known.update(ended)

    return look
