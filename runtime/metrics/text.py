"""Metrics of texts: BLEU, chrF and TER by sacreBLEU, with its signatures, and exact match.

Source: Post 2018 (sacreBLEU); Papineni et al. 2002 (BLEU); Popovic 2015 (chrF); Snover et al.
2006 (TER).
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ..data.columns.values import tags_of, text_of
from .metric import (
    Measured,
    Statistics,
    SumMetric,
    any_number,
    converted,
    ratio,
    refuse_other_length,
)


@dataclass(frozen=True, slots=True)
class Scores:
    """sacreBLEU scores of translations, with their signatures."""

    values: Mapping[str, float]
    signatures: Mapping[str, str]


def score(hypotheses: Sequence[str], references: Sequence[str]) -> Scores:
    """Return the corpus lower-cased BLEU BLEU and chrF of translations."""
    measured = {metric.type: metric.measure(hypotheses, references) for metric in TRANSLATION}
    return Scores(
        {name: measurement.value for name, measurement in measured.items()},
        {name: measurement.signature for name, measurement in measured.items()},
    )


class _SacreBleu(SumMetric):
    """Base class of the metrics of sacreBLEU, whose scores are functions of sums over lines."""

    takes: ClassVar[tuple[str, ...]] = ("text",)

    @abstractmethod
    def scorer(self) -> Any:
        """Return the metric of sacreBLEU."""

    def measure(self, predictions: Sequence[str], references: Sequence[str]) -> Measured:
        """Return the corpus score of texts."""
        texts = converted(predictions, text_of), converted(references, text_of)
        refuse_other_length(*texts)
        metric = self.scorer()
        corpus_score = metric.corpus_score(texts[0], [texts[1]])
        return Measured(float(corpus_score.score), str(metric.get_signature()))

    def statistics(self, predictions: Sequence[str], references: Sequence[str]) -> Statistics:
        """Return the sufficient statistics of each line, such as matching n-grams."""
        texts = converted(predictions, text_of), converted(references, text_of)
        refuse_other_length(*texts)
        sums = self.scorer()._extract_corpus_statistics(texts[0], [texts[1]])  # noqa: SLF001
        return np.array(sums, np.float64)

    def value_of(self, total: NDArray[np.float64]) -> float:
        """Return the corpus score for the sum of the lines' statistics."""
        return float(_scorer(self)._compute_score_from_stats(total).score)  # noqa: SLF001

    def values(self, predictions: Sequence[str], references: Sequence[str]) -> NDArray[np.float64]:
        """Return sacreBLEU's score of each sentence: BLEU counts only n-grams that fit into it."""
        score_of = _sentence_scorer(self)._compute_score_from_stats  # noqa: SLF001
        sums = self.statistics(predictions, references)
        return np.array([score_of(row).score for row in sums], np.float64)


@functools.lru_cache(maxsize=64)
def _scorer(metric: _SacreBleu) -> Any:
    """Return the metric of sacreBLEU, made once: a bootstrap computes thousands of scores."""
    return metric.scorer()


@functools.lru_cache(maxsize=64)
def _sentence_scorer(metric: _SacreBleu) -> Any:
    """Return the metric of sacreBLEU for single sentences."""
    scorer = metric.scorer()
    if hasattr(scorer, "effective_order"):  # an option of BLEU, which chrF always has
        scorer.effective_order = True
    return scorer


Tokenize = Literal["13a", "intl", "zh", "char", "none"]


class Bleu(_SacreBleu):
    """Corpus BLEU, from 0 to 100."""

    written: ClassVar[str] = "BLEU"

    type: Literal["bleu"] = "bleu"
    tokenize: Tokenize = "13a"
    """Tokenization of sacreBLEU."""

    def scorer(self) -> Any:
        """Return the metric of sacreBLEU."""
        import sacrebleu  # noqa: PLC0415 - slow to load

        return sacrebleu.BLEU(tokenize=self.tokenize)


class BleuLowercase(_SacreBleu):
    """Corpus BLEU of lower-cased text, from 0 to 100."""

    written: ClassVar[str] = "lower-cased BLEU"

    type: Literal["bleu_lc"] = "bleu_lc"
    tokenize: Tokenize = "13a"
    """Tokenization of sacreBLEU."""

    def scorer(self) -> Any:
        """Return the metric of sacreBLEU."""
        import sacrebleu  # noqa: PLC0415 - slow to load

        return sacrebleu.BLEU(lowercase=True, tokenize=self.tokenize)


_PLUS = 2
"""Order of words of chrF++."""


class Chrf(_SacreBleu):
    """Corpus chrF, from 0 to 100."""

    written: ClassVar[str] = "chrF"

    type: Literal["chrf"] = "chrf"
    word_order: int = Field(default=0, ge=0, le=10)
    """Longest n-grams of words that also count; 2 is chrF++."""

    @property
    def label(self) -> str:
        """Name in publications; Popović 2017 calls chrF with n-grams of two words chrF++."""
        name = super().label
        return name.replace("chrF", "chrF++") if self.word_order == _PLUS else name

    def scorer(self) -> Any:
        """Return the metric of sacreBLEU."""
        import sacrebleu  # noqa: PLC0415 - slow to load

        return sacrebleu.CHRF(word_order=self.word_order)


TRANSLATION = (Bleu(), BleuLowercase(), Chrf())
"""Metrics of translations where a run names none."""


class Ter(_SacreBleu):
    """Translation edit rate in percent: edits, including shifts, for each word."""

    higher_is_better: ClassVar[bool] = False

    written: ClassVar[str] = "TER"

    type: Literal["ter"] = "ter"

    def scorer(self) -> Any:
        """Return the metric of sacreBLEU."""
        import sacrebleu  # noqa: PLC0415 - slow to load

        return sacrebleu.TER()


class ExactMatch(SumMetric):
    """Percentage of predictions that equal the reference."""

    type: Literal["exact_match"] = "exact_match"
    lowercase: bool = False
    """Whether texts are compared without case."""

    def signature(self) -> str:
        """Return how the value is computed."""
        return f"exact_match|case:{'lc' if self.lowercase else 'mixed'}"

    def statistics(self, predictions: Sequence[Any], references: Sequence[Any]) -> Statistics:
        """Return 1 or 0 for each example, and 1."""
        same = [self._equal(*pair) for pair in zip(predictions, references, strict=True)]
        return np.stack((np.array(same, np.float64), np.ones(len(same))), 1)

    def _equal(self, prediction: Any, other: Any) -> bool:
        """Return whether two values are equal as their column stores them.

        A list of tags equals their text, a class its number, and a number a text with it.
        """
        if isinstance(prediction, list | tuple) or isinstance(other, list | tuple):
            prediction, other = (tags_of(value, "a row") for value in (prediction, other))
            prediction, other = " ".join(prediction), " ".join(other)
        if isinstance(prediction, float) or isinstance(other, float):
            return any_number(prediction, "a row") == any_number(other, "a row")
        return bool(self._plain(prediction) == self._plain(other))

    def _plain(self, value: Any) -> Any:
        """Return texts and classes without outer white space, and without case if so set."""
        if not isinstance(value, str | int):
            return value
        text = str(value).strip()
        return text.lower() if self.lowercase else text

    def value_of(self, total: NDArray[np.float64]) -> float:
        """Return the percentage of equal examples."""
        return 100 * ratio(*total)
