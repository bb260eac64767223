"""Measure how well a model translates with a shortlist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..checkpoint.manifest import weights_digest
from ..compile.decoder import passes_of, use_passes
from ..decode.shortlist.table import Measurement, Shortlist
from ..metrics.text import Bleu

if TYPE_CHECKING:
    from .model import Model

_ROWS = 64


def measured(
    model: Model, shortlist: Shortlist, sources: Sequence[str], references: Sequence[str]
) -> Shortlist:
    """Return a shortlist with BLEU of a model's translations, with the shortlist and without.

    BLEU is that of the metrics of the model's run, if there is one; search, precision and other
    passes are those of the model, which decodes as before afterwards.

    Args:
        model: the model, on the CPU and without other models of an ensemble.
        shortlist: a shortlist for its tokenizers.
        sources: lines of validation data, at least one.
        references: their translations.

    Raises:
        InputError: the model cannot decode with a shortlist.
    """
    metric = _bleu(model)
    before = passes_of(model.module)
    scores = []
    try:
        for chosen in (None, shortlist):
            use_passes(model.module, replace(before, shortlist=chosen))
            scores.append(metric.measure(model.translate(sources), references).value)
    finally:
        use_passes(model.module, before)
    measurement = Measurement(
        lines=len(sources),
        bleu=scores[0],
        bleu_shortlist=scores[1],
        tokens=_mean_tokens(model, shortlist, sources),
        weights=weights_digest(model.checkpoint.folder),
        settings={
            "search": model.search.model_dump(mode="json"),
            "precision": "bfloat16" if model.half else "float32",
            "quantize": before.quantize,
        },
    )
    about = shortlist.about.model_copy(update={"measured": measurement, "unchecked": False})
    return replace(shortlist, about=about)


def _bleu(model: Model) -> Any:
    """Return BLEU as the run of a model measures it, or with the usual tokenization."""
    metrics = [] if model.trained is None else model.answering.run.metrics()
    return next((metric for metric in metrics if isinstance(metric, Bleu)), Bleu())


def _mean_tokens(model: Model, shortlist: Shortlist, sources: Sequence[str]) -> float:
    """Return the mean number of tokens in the lists of lines, without special tokens."""
    reader = model.line_predictor()
    rows, total = reader.source.encode_many(sources), 0
    for start in range(0, len(rows), _ROWS):
        total += int(shortlist.allowed(rows[start : start + _ROWS], reader.target.vocab_size).sum())
    return round(total / len(rows), 1)
