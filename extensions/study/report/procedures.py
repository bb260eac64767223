"""Tables of a report about tuning, time to target and ladders, as text for each of its forms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..jobs import values_text
from .ladders import fit_text
from .targets import QUANTITIES, spent, title_of_target
from .tuning import edge_sentences

Record = dict[str, Any]
CHOSEN = "*"
"""Mark of the combination that was chosen."""


@dataclass(frozen=True, slots=True)
class ExtraTable:
    """A table beside those of metrics."""

    title: str
    head: list[str]
    lines: list[list[str]]
    notes: list[str]
    """Sentences about it."""
    figure: str = ""
    """Name of the figure that shows it; `""` if there is none."""


def extra_tables(record: Record) -> Iterator[ExtraTable]:
    """Yield the tables of what a labelled record has besides its metrics."""
    if record["tuning"] is not None:
        yield _tuning(record["tuning"])
    if record["target"] is not None:
        yield _target(record["target"])
    for name, ladder in record["ladders"].items():
        yield _ladder(name, ladder)


def _tuning(tuning: Record) -> ExtraTable:
    tried = [point["values"] for row in tuning["rows"].values() for point in row["points"]]
    if all(isinstance(value, int | float) for values in tried for value in values.values()):
        tried.sort(key=lambda values: [*values.items()])
    columns = dict.fromkeys(map(values_text, tried))
    lines = []
    for name, row in tuning["rows"].items():
        cells = dict.fromkeys(columns, "")
        for point in row["points"]:
            mark = CHOSEN if point["values"] == row["chosen"] else ""
            text = values_text(point["values"])
            cells[text] = _value(point) + mark
        lines.append([name, *cells.values()])
    seeds, updates = tuning["seeds"], tuning["updates"]
    length = f", {updates:,} updates" if updates is not None else ""
    how = (
        f"{tuning['metric'] or 'No metric yet'} on the validation data, {seeds}"
        f" seed{'s' * (seeds > 1)}{length}; {CHOSEN}: chosen for the seeds of the row."
    )
    notes = [how, *edge_sentences(tuning)]
    return ExtraTable("Tuning", ["row", *columns], lines, notes, "tuning")


def _value(point: Record) -> str:
    """Return the value of a combination, or how far it is."""
    if point["value"] is not None:
        return f"{point['value']:.4g}"
    return next((state for state in point["states"] if state != "done"), "")


def _target(target: Record) -> ExtraTable:
    lines = [
        [name, *(spent(target, name, quantity) for quantity in QUANTITIES)]
        for name in target["rows"]
    ]
    note = (
        "Until the first validation of a run that reached it; tokens are those of all texts, by"
        " estimate. Means over seeds, if all have reached it."
    )
    note += " Runs stopped there." if target["stop"] else ""
    return ExtraTable(f"Time to {title_of_target(target)}", ["row", *QUANTITIES], lines, [note])


def _ladder(name: str, ladder: Record) -> ExtraTable:
    head = ["row", ladder["against"].replace("_", " ").replace("flops", "FLOPs"), ladder["metric"]]
    lines = [
        [
            point["row"],
            f"{point['size']:,.0f}"
            if ladder["against"] == "parameters"
            else f"{point['size']:.4g}",
            f"{point['mean']:.4g}"
            + ("" if point["spread"] is None else f" ± {point['spread']:.2g}"),
        ]
        for point in ladder["points"]
    ]
    rates = {
        "mup": "Rates of the first size, carried by muP.",
        "tune": "Rates tuned for each size.",
        "same": "The same rates for all sizes.",
    }[ladder["rates"]]
    title = f"Sizes of {name}"
    return ExtraTable(title, head, lines, [fit_text(ladder), rates], "ladders")
