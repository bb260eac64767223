"""What can and what cannot be concluded from a study, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .record import Record, primary_table

SAME = "not distinguishable"
"""Verdict of a comparison whose difference may be chance."""
_NAMED = 8
"""Maximum number of names in a sentence."""


class Conclusions(NamedTuple):
    """What a study shows by its first metric, and what it leaves open."""

    can: list[str]
    """Differences that were found, the best row first."""
    cannot: list[str]
    """Differences that may be chance, and the limits of the study."""


def conclude(record: Record) -> Conclusions:
    """Return what can and what cannot be concluded from a record."""
    table = primary_table(record)
    if table is None:
        return Conclusions(["No run has finished, so there is nothing to conclude."], [])
    pairs = ranked(table)
    found = [pair for pair in pairs if pair["verdict"] != SAME]
    unclear = [pair for pair in pairs if pair["verdict"] == SAME]
    can = [_sentence(pair, table["metric"]) for pair in found]
    if not can:
        can = ["No difference was found." if pairs else "There is nothing to compare."]
    cannot = [
        f"{_sentence(pair, table['metric'])[:-1]}; a difference of {pair['detectable']:.2f} would"
        f" have been found with {record['power']:.0%} probability."
        for pair in unclear
    ]
    return Conclusions(can, [*cannot, *_limits(record, table)])


def ranked(table: Record) -> list[Record]:
    """Return the comparisons of a table, with the best row first."""
    sign = -1 if table["higher_is_better"] else 1
    return sorted(table["comparisons"], key=lambda pair: sign * pair["difference"])


def title_of(record: Record, pair: Record) -> str:
    """Return the name of a comparison: that of its row if all have the same baseline."""
    both = f"{pair['other']} against {pair['baseline']}"
    return pair["other"] if record["pairs"] == "baseline" else both


def _sentence(pair: Record, metric: str) -> str:
    """Return a comparison as a sentence."""
    size = f"{pair['difference']:+.2f} {metric}"
    if pair["low"] is not None:
        size += f" [{pair['low']:+.2f}, {pair['high']:+.2f}]"
    text = f"{pair['other']} against {pair['baseline']}: {size}, {pair['verdict']}"
    if pair["adjusted"] is not None:
        text += f" ({probability_text(pair['adjusted'])} after Holm's correction)"
    return text + "."


def _limits(record: Record, table: Record) -> Iterator[str]:
    """Yield the limits of a study."""
    if all(len(row["trained"]) <= 1 for row in record["rows"]):
        yield "With one seed, the tests compare these models, and not how they were trained."
    missing = {
        row["name"]: sum(one["state"] != "done" for one in row["seeds"].values())
        for row in record["rows"]
    }
    missing = {name: number for name, number in missing.items() if number}
    if missing:
        runs = sum(len(row["seeds"]) for row in record["rows"])
        yield f"{sum(missing.values())} of {runs} runs have no result: {_names([*missing])}."
    examples = f", {table['examples']:,} examples" if table["examples"] else ""
    updates = {row["costs"]["updates"] for row in record["rows"]}
    length = f" after {updates.pop():,} updates" if len(updates) == 1 else ""
    yield (
        f"The differences are those on one data set, {table['split']}{examples},{length} with the"
        " settings of the base run: other data, a longer training, or settings that are tuned for"
        " each row may order the rows differently."
    )


def _names(names: list[str]) -> str:
    """Return some names as text."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f", and {more} more rows" if more > 0 else "")


def probability(p: float) -> str:
    """Return a probability as text.

    >>> probability(0.0312), probability(1e-5)
    ('0.031', '< 0.001')
    """
    return "< 0.001" if p < 0.001 else f"{p:.3f}"  # noqa: PLR2004


def probability_text(p: float) -> str:
    """Return a probability with its name.

    >>> probability_text(0.0312), probability_text(1e-5)
    ('p = 0.031', 'p < 0.001')
    """
    text = probability(p)
    return f"p {text}" if text.startswith("<") else f"p = {text}"
