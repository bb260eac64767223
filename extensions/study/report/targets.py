"""Time to target: updates, tokens and seconds until a validation reaches a value, for each row."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ....plugin import METRICS, duration
from ..procedure import Target

Record = dict[str, Any]
QUANTITIES = ("updates", "tokens", "seconds")
"""What is spent until the target is reached; tokens are those of all texts, by estimate."""


def targets_of(rows: Sequence[Record], target: Target | None) -> Record | None:
    """Return when each seed of each row reached the target, by its validations.

    Args:
        rows: rows with the events of the validations of each seed, as `valid`.
        target: the target; None if the study has none.
    """
    if target is None:
        return None
    metric = METRICS.parse(target.metric, "target.metric")
    reached = {}
    for row in rows:
        per_update = row["costs"]["tokens"] / row["costs"]["updates"]
        seeds: dict[str, Record | None] = {}
        for seed, seed_run in row["seeds"].items():
            first = next(
                (
                    event
                    for event in seed_run["valid"]
                    if target.metric in event and metric.reaches(event[target.metric], target.value)
                ),
                None,
            )
            if first is not None:
                seeds[seed] = {
                    "updates": first["update"],
                    "tokens": first["update"] * per_update,
                    "seconds": first["seconds"],
                }
            elif seed_run["state"] == "done":
                seeds[seed] = None
        reached[row["name"]] = seeds
    return {
        "metric": target.metric,
        "label": metric.label,
        "value": target.value,
        "stop": target.stop,
        "rows": reached,
    }


def title_of_target(target: Mapping[str, Any]) -> str:
    """Return the target in words, such as `BLEU 30`."""
    return f"{target['label']} {target['value']:g}"


def spent(target: Mapping[str, Any], name: str, quantity: str) -> str:
    """Return the mean over seeds of what a row has spent until the target, as text.

    A mean of the seeds that reached it would favor rows of which few did, so there is none unless
    all have.

    Args:
        target: the target, as of `targets_of`.
        name: name of the row.
        quantity: one of `QUANTITIES`.
    """
    seeds = target["rows"].get(name, {})
    values = [seed[quantity] for seed in seeds.values() if seed is not None]
    if not seeds:
        return ""
    if len(values) < len(seeds):
        return f"{len(values)} of {len(seeds)} seeds" if values else "not reached"
    mean = statistics.fmean(values)
    if quantity == "seconds":
        return duration(mean)
    spread = f" ± {statistics.stdev(values):,.0f}" if len(values) > 1 else ""
    return f"{mean:,.0f}{spread}"
