"""Results of translation as plain values for JSON.

The commands and the server share this format: text, scores and tokens of each output, and on
request its alignment to the source and the attention weights of every head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..decode.output import output_records
from ..decode.settings import Hypothesis
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


def text_records(
    model: Model,
    texts: Sequence[str],
    hypotheses: Sequence[Sequence[Hypothesis]],
    details: Details | None = None,
) -> list[dict[str, Any]]:
    """Return a record for each text: `source` and `translations`, best first.

    Args:
        model: the model that wrote them; of an ensemble, the first model gives alignment and
            attention.
        texts: the sources.
        hypotheses: hypotheses of each.
        details: optional details to include. They come with `source_tokens`, the pieces of the
            source; attention weights also cover its end token.

    Raises:
        InputError: the model does not support the requested details.
    """
    options = details or Details()
    translator = model.translator
    target = translator.target
    records: list[dict[str, Any]] = [
        {"source": text, "translations": output_records(target, candidates)}
        for text, candidates in zip(texts, hypotheses, strict=True)
    ]
    if not (options.alignment or options.attention):
        return records
    from ..analysis.alignment import aligned, check_inputs
    from ..analysis.attention_weights import maps_of_ids

    check_inputs(model.graph)
    tokenizers = translator.source, target
    most = translator.longest_source
    sources = [ids[:most] for ids in translator.source.encode_many(list(texts))]
    for record, ids in zip(records, sources, strict=True):
        translations = record.pop("translations")
        record |= {"source_tokens": translator.source.pieces(ids), "translations": translations}
    outputs = [
        (ids, hypothesis.tokens, output)
        for ids, candidates, record in zip(sources, hypotheses, records, strict=True)
        for hypothesis, output in zip(candidates, record["translations"], strict=True)
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
