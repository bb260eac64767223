"""The record of a study as people read it: rows by their labels, metrics as in publications."""

from __future__ import annotations

from typing import Any

from .record import Record


def labelled(record: Record) -> Record:
    """Return a record in which rows and metrics have their labels in place of their names.

    Forms for people are made of it; JSON and CSV have the names.  The folder of a row's picture
    follows from its name, which is `key`.
    """
    labels = {row["name"]: row.get("label", row["name"]) for row in record["rows"]}

    def rows_by(name: str) -> dict[str, Any]:
        part = record[name]
        if part is None:
            return {name: None}
        return {name: {**_written(part), "rows": _renamed(part["rows"], labels)}}

    tables = [_table(table, labels) for table in record["tables"]]
    shown = {**record, "tables": tables, "baseline": labels.get(record["baseline"], "")}
    shown["rows"] = [
        {
            **row,
            "key": row["name"],
            "name": labels[row["name"]],
            "same_as": labels.get(row["same_as"], ""),
        }
        for row in record["rows"]
    ]
    for name in ("lengths", "tuning", "target"):
        shown |= rows_by(name)
    names = {table["metric"]: table["label"] for table in record["tables"]}
    if record["primary"] is not None:
        metric = names[record["primary"]["metric"]]
        shown["primary"] = {**record["primary"], "metric": metric}
    if record["selected"] is not None:
        row = labels[record["selected"]["row"]]
        shown["selected"] = {**_written(record["selected"]), "row": row}
    shown["ladders"] = {
        name: {
            **_written(ladder),
            "points": [{**point, "row": labels[point["row"]]} for point in ladder["points"]],
        }
        for name, ladder in record["ladders"].items()
    }
    return shown


def _written(part: Record) -> Record:
    """Return a part of a record with the label of its metric."""
    return {**part, "metric": part["label"]}


def _renamed(rows: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
    return {labels[name]: value for name, value in rows.items()}


def _table(table: Record, labels: dict[str, str]) -> Record:
    """Return the table of a metric with labels."""
    return {
        **_written(table),
        "apart": [labels[name] for name in table["apart"]],
        "rows": [{**row, "name": labels[row["name"]]} for row in table["rows"]],
        "comparisons": [
            {**pair, "baseline": labels[pair["baseline"]], "other": labels[pair["other"]]}
            for pair in table["comparisons"]
        ],
    }
