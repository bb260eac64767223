"""Minimum Bayes risk decoding: of the outputs for a row, those with the best expected value.

The value of an output is that of a metric with another output as its reference, in expectation over
the outputs that the model gives.  Samples have equal weights (Eikema and Aziz 2022, section 4), and
hypotheses of a beam search their probabilities, which are normalized over the list (Kumar and Byrne
2004, section 3).  With C candidates and E outputs with which they are compared, of different texts,
the metric is computed for C * E pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..settings import Risk, different
from .predictor import Answer, Row


def least_risk(
    risk: Risk,
    compared: Sequence[Answer],
    further: Sequence[Answer],
    row: Row,
    column: str,
    *,
    drawn: bool,
) -> list[Answer]:
    """Return the outputs with the best expected values, best first.

    Their scores are these values, negative for a metric that is better when lower.  Of equal ones,
    the most probable is first.

    Args:
        risk: the metric, and how many outputs are compared and returned.
        compared: outputs with which candidates are compared; they are candidates too.
        further: further candidates.
        row: raw values of the row, for metrics that read the source.
        column: the column whose values the outputs are.
        drawn: whether `compared` were sampled, and have equal weights.
    """
    weights = weights_of(compared, drawn=drawn)
    by_probability = sorted([*compared, *further], key=lambda answer: -_log_probability(answer))
    candidates = different(by_probability, lambda answer: answer.value)[: risk.candidates]
    references = risk.metric.references([{**row, column: text} for text in weights], column)
    values = risk.metric.values(
        [answer.value for answer in candidates for _ in references],
        [reference for _ in candidates for reference in references],
    ).reshape(len(candidates), len(references))
    expected = values @ [*weights.values()]
    if not risk.metric.higher_is_better:
        expected = -expected
    chosen = sorted(range(len(candidates)), key=lambda index: -expected[index])[: risk.nbest]
    return [_scored(candidates[index], float(expected[index])) for index in chosen]


def weights_of(compared: Sequence[Answer], *, drawn: bool) -> Mapping[str, float]:
    """Return the probability of each text among outputs; arguments as of `least_risk`."""
    logs = [0.0 if drawn else _log_probability(answer) for answer in compared]
    highest, weights = max(logs, default=0.0), dict[str, float]()
    if math.isinf(highest):  # every output has the probability 0
        logs, highest = [0.0] * len(logs), 0.0
    for answer, log in zip(compared, logs, strict=True):
        weights[answer.value] = weights.get(answer.value, 0.0) + math.exp(log - highest)
    total = sum(weights.values())
    return {text: weight / total for text, weight in weights.items()}


def _log_probability(answer: Answer) -> float:
    return answer.hypothesis.log_probability if answer.hypothesis else answer.score


def _scored(answer: Answer, score: float) -> Answer:
    hypothesis = answer.hypothesis and replace(answer.hypothesis, score=score)
    return replace(answer, score=score, hypothesis=hypothesis)
