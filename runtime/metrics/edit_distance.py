"""Error rates of recognized text: edit distance in words (WER) or characters (CER).

Source: Levenshtein 1966; the rate of a corpus is its total distance by its total length.
"""

from __future__ import annotations

import unicodedata
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ...specs.findings import InputError
from ..data.columns.values import text_of
from .metric import Statistics, SumMetric, converted, ratio

LONGEST = 50_000
"""Maximum words or characters of a text; the time grows with the square."""


def edit_distance(hypothesis: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """Return the least number of insertions, deletions and substitutions.

    >>> edit_distance("kitten", "sitting")
    3

    Raises:
        InputError: a sequence is too long.
    """
    if max(len(hypothesis), len(other)) > LONGEST:
        raise InputError(
            f"a text has more than {LONGEST:,} words or characters",
            help="split the texts into sentences",
        )
    numbers: dict[Hashable, int] = {}
    first, second = (
        np.array([numbers.setdefault(item, len(numbers)) for item in items], np.int64)
        for items in (hypothesis, other)
    )
    if len(first) > len(second):
        first, second = second, first
    positions = np.arange(len(second) + 1)
    row = positions.copy()
    for number, item in enumerate(first, 1):
        # Deletions and substitutions depend on the row above; insertions on the same row, so their
        # best is a running minimum.
        best = np.empty_like(row)
        best[0] = number
        best[1:] = np.minimum(row[1:] + 1, row[:-1] + (second != item))
        row = np.minimum.accumulate(best - positions) + positions
    return int(row[-1])


class _ErrorRate(SumMetric):
    """Base class of error rates."""

    takes: ClassVar[tuple[str, ...]] = ("text",)
    higher_is_better: ClassVar[bool] = False

    lowercase: bool = False
    """Whether case is ignored."""
    punctuation: Literal["keep", "remove"] = "keep"
    """Whether characters of the Unicode categories P are kept or removed before the comparison."""

    @abstractmethod
    def items(self, text: str) -> Sequence[str]:
        """Return the words or characters of a normalized text."""

    def signature(self) -> str:
        """Return how the value is computed."""
        case = "lc" if self.lowercase else "mixed"
        return f"{self.type}|case:{case}|punctuation:{self.punctuation}"

    def normalized(self, text: str) -> str:
        """Return a text in Unicode form NFC, with single spaces, and as the settings require."""
        text = unicodedata.normalize("NFC", text)
        if self.punctuation == "remove":
            text = "".join(c for c in text if not unicodedata.category(c).startswith("P"))
        return " ".join((text.lower() if self.lowercase else text).split())

    def statistics(self, predictions: Sequence[Any], references: Sequence[Any]) -> Statistics:
        """Return the errors and the length of the reference of each example."""
        counts = np.zeros((len(references), 2))
        texts = converted(predictions, text_of), converted(references, text_of)
        for row, (text, right) in enumerate(zip(*texts, strict=True)):
            reference = self.items(self.normalized(right))
            counts[row] = (
                edit_distance(self.items(self.normalized(text)), reference),
                len(reference),
            )
        return counts

    def value_of(self, total: NDArray[np.float64]) -> float:
        """Return errors by length, in percent; infinite if all references are empty."""
        if not total[1]:
            return float("inf") if total[0] else 0.0
        return 100 * ratio(*total)

    def details(self, total: NDArray[np.float64]) -> dict[str, Any]:
        """Return the counts."""
        return {"errors": int(total[0]), "length": int(total[1])}


class WordErrorRate(_ErrorRate):
    """Word error rate in percent; words are separated by white space."""

    written: ClassVar[str] = "WER"

    type: Literal["wer"] = "wer"

    def items(self, text: str) -> Sequence[str]:
        """Return the words of a text."""
        return text.split()


class CharacterErrorRate(_ErrorRate):
    """Character error rate in percent; white space counts as one character."""

    written: ClassVar[str] = "CER"

    type: Literal["cer"] = "cer"

    def items(self, text: str) -> Sequence[str]:
        """Return the characters of a text."""
        return text
