"""EVALB report: scores of parses, in the layout of the program."""

from __future__ import annotations

import math
from collections.abc import Iterator

from .evalb import EvalbScores, EvalbSummary, SentenceScore, percent

_STATUS = {"valid": 0, "error": 1, "skip": 2}
_RULE = "=" * 76
_HEAD = (
    "  Sent.                        Matched  Bracket   Cross        Correct Tag\n"
    " ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy"
)


def report(scores: EvalbScores) -> str:
    """Return the table of sentences and both summaries, exactly as the program prints them."""
    return "\n".join(_lines(scores)) + "\n"


def summaries(scores: EvalbScores) -> str:
    """Return both summaries without the table of sentences."""
    return "\n".join(_summaries(scores)) + "\n"


def _lines(scores: EvalbScores) -> Iterator[str]:
    yield _HEAD
    yield _RULE
    yield from map(_row, scores.sentences)
    yield _RULE
    total = scores.all
    brackets = (
        f"{'':15} {total.recall:6.2f} {total.precision:6.2f} {total.matched:6d} {total.gold:5d}"
        f" {total.test:5d}  {total.crossing:5d}"
    )
    yield (
        f"{brackets if total.gold and total.test else ''}"
        f"  {total.words:5d} {total.tags:5d}   {total.tagging:6.2f}"
    )
    yield from _summaries(scores)


def _summaries(scores: EvalbScores) -> Iterator[str]:
    total = scores.all
    yield "=== Summary ==="
    yield ""
    yield "-- All --"
    yield from _summary(total)
    yield ""
    yield f"-- len<={scores.cutoff} --"
    yield from _summary(scores.short)


def _row(sentence: SentenceScore) -> str:
    recall, precision = (
        percent(sentence.matched, sentence.gold),
        percent(sentence.matched, sentence.test),
    )
    return (
        f"{sentence.number:4d}  {sentence.length:3d}    {_STATUS[sentence.status]}"
        f"  {recall:6.2f} {precision:6.2f}"
        f" {sentence.matched:5d}  {sentence.gold:5d} {sentence.test:4d}"
        f"  {sentence.crossing:5d}  {sentence.words:5d}"
        f" {sentence.tags:5d}   {percent(sentence.tags, sentence.words):6.2f}"
    )


def _summary(summary: EvalbSummary) -> Iterator[str]:
    figures = summary.as_json()
    if not summary.matched:
        figures["f1"] = math.nan  # as the program prints 0 / 0
    for name, count in (
        ("Number of sentence", summary.sentences),
        ("Number of Error sentence", summary.errors),
        ("Number of Skip  sentence", summary.skipped),
        ("Number of Valid sentence", summary.valid),
    ):
        yield f"{name:<25} = {count:6d}"
    for name, key in (
        ("Bracketing Recall", "recall"),
        ("Bracketing Precision", "precision"),
        ("Bracketing FMeasure", "f1"),
        ("Complete match", "complete_match"),
        ("Average crossing", "average_crossing"),
        ("No crossing", "no_crossing"),
        ("2 or less crossing", "two_or_less_crossing"),
        ("Tagging accuracy", "tagging_accuracy"),
    ):
        yield f"{name:<25} = {figures[key]:6.2f}"
