"""Units of work and their states as people read them: a table, and a line below it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from ...metrics.digits import duration

if TYPE_CHECKING:
    from rich.table import Table

    from ...system.executors.units import WorkUnit, WorkUnits

STYLES = {"done": "green", "running": "cyan", "failed": "red", "lost": "red", "stopped": "yellow"}
"""State to its color."""
LONGEST = 80
"""Maximum number of letters of an error."""
MOST = 12
"""Maximum number of units in the table of a command; the line below it counts them all."""


def state_table(
    title: str, columns: Sequence[str], rows: Iterable[tuple[Sequence[str], str]], caption: str
) -> Table:
    """Return a table with a line for each part of some work.

    Args:
        title: what is above it.
        columns: the first one is a name; `state` has a color.
        rows: the cells of each line, and what is wrong, which is shown below it.
        caption: what is below it.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title,
        title_justify="left",
        caption=caption,
        caption_justify="left",
        caption_style="",
    )
    for name in columns:
        table.add_column(name, justify="left" if name in (columns[0], "state") else "right")
    state = columns.index("state")
    for cells, problem in rows:
        texts = [Text(cell) for cell in cells]
        texts[state].stylize(STYLES.get(cells[state], ""))
        table.add_row(*texts)
        if problem:
            error = Text(shorten(problem, LONGEST, placeholder="…"), style="red")
            table.add_row(*[""] * state, error)
    return table


def states_text(states: Mapping[Any, int], total: int | None = None) -> str:
    """Return how many parts are done, and in other states, on one line.

    >>> states_text({"done": 3, "running": 2}, 6)
    '3 of 6 done, 2 running'
    """
    count = f"{states['done']:,}" if total is None else f"{states['done']} of {total}"
    others = ("running", "lost", "failed") if total is not None else STATES
    return ", ".join(
        [f"{count} done", *(f"{states[name]:,} {name}" for name in others if states.get(name))]
    )


STATES = ("running", "queued", "lost", "failed")
"""States of the units of a command that are not done, as the line below the table has them."""


def unit_table(units: WorkUnits[Any]) -> Table:
    """Return a table of the units of a command that are not done."""
    states = units.states
    order = [*units.wrong, *sorted(units.pending, key=lambda unit: unit.state != "running")]
    return state_table("", ("unit", "state", "time"), map(_row, order[:MOST]), states_text(states))


def _row(unit: WorkUnit[Any]) -> tuple[tuple[str, str, str], str]:
    """Return the cells of a unit, and what is wrong with it."""
    running = unit.state == "running"
    seconds = duration(time.monotonic() - unit.since) if running else ""
    return (unit.name, unit.state, seconds), unit.problem
