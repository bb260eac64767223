"""Records: what became of texts, as plain values for JSON.

The commands and the server say the same of an output: text, scores and tokens, and on
request which token of the source each comes from and what every head read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..analysis.alignment import aligned, check_inputs
from ..analysis.attention_weights import maps_of_ids
from ..decode.output import output_records
from ..decode.settings import Hypothesis
from ..decode.translate import LONGEST_SOURCE
from .model import Model

_DIGITS = 4
"""Of a weight: what a person sees, and a third of the bytes."""


@dataclass(frozen=True, slots=True)
class Details:
    """What is told of an output beyond text, scores and tokens."""

    alignment: bool = False
    """Pairs of a source token and a token of the output."""
    attention: bool = False
    """What each head of each attention read, [heads][positions][positions]."""


def text_records(
    model: Model,
    texts: Sequence[str],
    found: Sequence[Sequence[Hypothesis]],
    details: Details | None = None,
) -> list[dict[str, Any]]:
    """Return what became of each text: `source` and `translations`, best first.

    Args:
        model: that wrote them; of an ensemble the first tells alignment and attention.
        texts: the sources.
        found: hypotheses of each.
        details: what is told besides, with `source_tokens`, the pieces of the source, of
            which attention also reads the end.

    Raises:
        InputError: details are wanted of a model that has none.
    """
    wanted = details or Details()
    translator = model.translator
    target = translator.target
    records: list[dict[str, Any]] = [
        {"source": text, "translations": output_records(target, each)}
        for text, each in zip(texts, found, strict=True)
    ]
    if not (wanted.alignment or wanted.attention):
        return records
    check_inputs(model.graph)
    tokenizers = translator.source, target
    sources = [ids[:LONGEST_SOURCE] for ids in translator.source.encode_many(list(texts))]
    for record, ids in zip(records, sources, strict=True):
        translations = record.pop("translations")
        record |= {"source_tokens": translator.source.pieces(ids), "translations": translations}
    outputs = [
        (ids, one.tokens, told)
        for ids, each, record in zip(sources, found, records, strict=True)
        for one, told in zip(each, record["translations"], strict=True)
    ]
    if wanted.alignment:
        pairs = [(ids, tokens) for ids, tokens, _ in outputs]
        for (_, _, told), one in zip(
            outputs, aligned(model.module, model.graph, tokenizers, pairs), strict=True
        ):
            told["alignment"] = one
    if wanted.attention:
        for ids, tokens, told in outputs:
            maps = maps_of_ids(model.module, tokenizers, ids, tokens)
            told["attention"] = {
                path: [[[round(x, _DIGITS) for x in row] for row in head] for head in each.tolist()]
                for path, each in maps.weights.items()
            }
    return records
