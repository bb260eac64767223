"""Answers as plain values for JSON.

The commands and the server share this format: text, scores and tokens of each output, and on
request its alignment to the source and the attention weights of every head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..data.prompts import PromptTokenizer
    from ..data.symbols import Vocabulary
    from ..decode.predictors.predictor import Answer
    from ..decode.predictors.text import TextPredictor
    from .model import Model

_DIGITS = 4
"""Decimal places of attention weights; keeps files at a third of the size."""


@dataclass(frozen=True, slots=True)
class Details:
    """Optional details of an output."""

    alignment: bool = False
    """Pairs of a source token and an output token."""
    attention: bool = False
    """Weights of each attention, [heads][positions][positions]."""


def output_record(answer: Answer, vocabulary: Vocabulary | PromptTokenizer) -> dict[str, Any]:
    """Return a written text: text, scores and pieces.

    A score that is not finite becomes None, because JSON cannot represent it.  Such a score
    means that the model gives the output probability zero but had to write it.
    """
    hypothesis = answer.hypothesis
    if hypothesis is None:
        return {"text": answer.value, "score": _finite(answer.score)}
    return {
        "text": answer.value,
        "score": _finite(hypothesis.score),
        "log_probability": _finite(hypothesis.log_probability),
        "finished": hypothesis.finished,
        "tokens": vocabulary.pieces(hypothesis.tokens),
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def text_records(
    model: Model,
    predictor: TextPredictor,
    texts: Sequence[str],
    answers: Sequence[Sequence[Answer]],
    details: Details | None = None,
) -> list[dict[str, Any]]:
    """Return a record for each text: `source` and `translations`, best first.

    Args:
        model: the model that wrote them; of an ensemble, the first model gives alignment and
            attention.
        predictor: its predictor of lines.
        texts: the sources.
        answers: the answers to each.
        details: optional details to include. They come with `source_tokens`, the pieces of the
            source; attention weights also cover its end token.

    Raises:
        InputError: the model does not support the requested details.
    """
    options = details or Details()
    target = predictor.target
    records: list[dict[str, Any]] = [
        {"source": text, "translations": [output_record(answer, target) for answer in candidates]}
        for text, candidates in zip(texts, answers, strict=True)
    ]
    if not (options.alignment or options.attention):
        return records
    from ..analysis.alignment import aligned, check_inputs
    from ..analysis.attention_weights import maps_of_ids

    check_inputs(model.graph)
    tokenizers = predictor.source, target
    most = predictor.longest_source
    sources = [ids[:most] for ids in predictor.source.encode_many(list(texts))]
    for record, ids in zip(records, sources, strict=True):
        translations = record.pop("translations")
        record |= {"source_tokens": predictor.source.pieces(ids), "translations": translations}
    outputs = [
        (ids, answer.hypothesis.tokens, output)
        for ids, candidates, record in zip(sources, answers, records, strict=True)
        for answer, output in zip(candidates, record["translations"], strict=True)
        if answer.hypothesis is not None
    ]
    if options.alignment:
        pairs = [(ids, tokens) for ids, tokens, _ in outputs]
        for (_, _, output), alignment in zip(
            outputs, aligned(model.module, model.graph, tokenizers, pairs), strict=True
        ):
            output["alignment"] = alignment
    if options.attention:
        for ids, tokens, output in outputs:
            maps = maps_of_ids(model.module, tokenizers, ids, tokens)
            output["attention"] = {
                path: [
                    [[round(x, _DIGITS) for x in row] for row in head] for head in weights.tolist()
                ]
                for path, weights in maps.weights.items()
            }
    return records
