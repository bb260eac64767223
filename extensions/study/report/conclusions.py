"""What can and what cannot be concluded from a study, in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from .record import Record, decimals_of, note_of, primary_table
from .tuning import edge_sentences

FOUND = ("better", "worse")
"""Verdicts of comparisons that found a difference."""
_NAMED = 8
"""Maximum number of names in a sentence."""


class Conclusions(NamedTuple):
    """What a study shows by its first metric, and what it leaves open."""

    can: list[str]
    """Differences that were found, the best row first."""
    cannot: list[str]
    """Differences that may be chance or were not tested, and the limits of the study."""


def conclude(record: Record) -> Conclusions:
    """Return what can and what cannot be concluded from a record."""
    table = primary_table(record)
    if table is None:
        return Conclusions(["No run has finished, so there is nothing to conclude."], [])
    pairs = ranked(table)
    if not pairs:
        return Conclusions(["There is nothing to compare."], [*_limits(record, table)])
    statements = [(pair["verdict"] in FOUND, _sentence(record, table, pair)) for pair in pairs]
    can = [sentence for significant, sentence in statements if significant] or [
        "No difference was found."
    ]
    cannot = [sentence for significant, sentence in statements if not significant]
    return Conclusions(can, [*cannot, *_limits(record, table)])


def ranked(table: Record) -> list[Record]:
    """Return the comparisons of a table, with the best row first and infinite differences last."""
    sign = -1 if table["higher_is_better"] else 1
    finite = [pair for pair in table["comparisons"] if math.isfinite(pair["difference"])]
    others = [pair for pair in table["comparisons"] if not math.isfinite(pair["difference"])]
    return [*sorted(finite, key=lambda pair: sign * pair["difference"]), *others]


def title_of(record: Record, pair: Record) -> str:
    """Return the name of a comparison: that of its row if all have the same baseline."""
    title = f"{pair['other']} against {pair['baseline']}"
    return pair["other"] if record["pairs"] == "baseline" else title


def size_of(pair: Record, decimals: int) -> str:
    """Return the difference of a comparison with its interval, such as `+2.00 [+1.00, +3.00]`."""
    text, ends = parts_of(pair, decimals)
    return f"{text} {ends}".rstrip()


def parts_of(pair: Record, decimals: int) -> tuple[str, str]:
    """Return the difference of a comparison, and its interval; `""` if it is unknown."""
    text, low, high = (
        "" if pair[key] is None else f"{pair[key]:+.{decimals}f}"
        for key in ("difference", "low", "high")
    )
    return text, f"[{low}, {high}]" if low else ""


def conclusion_of(row: Record, table: Record | None, pair: Record | None) -> str:
    """Return the verdict on a row, and in brackets what else is to know about it.

    Args:
        row: the row.
        table: table of a metric.
        pair: comparison of the row in it; None if it is not compared.
    """
    note = note_of(row, table)
    if pair is None:
        return note
    return f"{pair['verdict']} ({note})" if note else str(pair["verdict"])


def _sentence(record: Record, table: Record, pair: Record) -> str:
    """Return a comparison as a sentence."""
    decimals = decimals_of(table)
    text = f"{pair['other']} against {pair['baseline']}: {size_of(pair, decimals)}"
    text += f" {table['metric']}, {pair['verdict']}"
    if pair["adjusted"] is not None:
        text += f" ({probability_text(pair['adjusted'])} after Holm's correction)"
    if pair["verdict"] not in FOUND and pair["detectable"] is not None:
        most = max(abs(row["mean"]) for row in table["rows"])
        least = f"{min(pair['detectable'], most):.{decimals}f}"
        text += (
            f"; a difference of {least} would have been found with {record['power']:.0%}"
            " probability"
            if pair["detectable"] <= most
            else f"; their seeds vary so much that no difference below {least}, the largest mean of"
            " a row, would have been found"
        )
    return text + "."


def _limits(record: Record, table: Record) -> Iterator[str]:
    """Yield the limits of a study."""
    tested = [pair for pair in table["comparisons"] if pair["p"] is not None]
    if tested and all(len(row["trained"]) <= 1 for row in record["rows"]):
        yield "With one seed, the tests compare these models, and not how they were trained."
    rows = [row for row in record["rows"] if not row["same_as"]]
    runs, done = (sum(len(row[key]) for row in rows) for key in ("seeds", "trained"))
    if done < runs:
        missing = [row["name"] for row in rows if len(row["trained"]) < len(row["seeds"])]
        yield f"{runs - done} of {runs} runs have no result: {_names(missing)}."
    yield from edge_sentences(record["tuning"])
    if record["target"] is not None and record["target"]["stop"]:
        yield "Runs stopped at the target, so rows were trained for different numbers of updates."
    if table["apart"]:
        yield f"Measured on other examples, and so not compared: {_names(table['apart'])}."
    if not table["comparisons"]:
        return
    examples = f", {table['examples']:,} examples" if table["examples"] else ""
    updates = {row["costs"]["updates"] for row in record["rows"]}
    length = f" after {updates.pop():,} updates" if len(updates) == 1 else ""
    other_settings = "or settings that are tuned for each row"
    if record["tuning"] is not None:
        other_settings = "or other settings than those tuned"
    yield (
        f"The differences are those on one data set, {table['split']}{examples},{length} with the"
        f" settings of the base run: other data, a longer training, {other_settings} may order the"
        " rows differently."
    )


def _names(names: list[str]) -> str:
    """Return some names as text."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f", and {more} more" if more > 0 else "")


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
