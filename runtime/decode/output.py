"""Convert hypotheses to plain values for JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..data.symbols import Vocabulary
from .settings import Hypothesis


def output_records(target: Vocabulary, hypotheses: Sequence[Hypothesis]) -> list[dict[str, Any]]:
    """Return the outputs of one text, best first: text, scores and pieces.

    A score that is not finite becomes None, because JSON cannot represent it.  Such a score
    means that the model gives the output probability zero but had to write it.
    """
    return [
        {
            "text": target.decode(hypothesis.tokens),
            "score": _finite(hypothesis.score),
            "log_probability": _finite(hypothesis.log_probability),
            "finished": hypothesis.finished,
            "tokens": target.pieces(hypothesis.tokens),
        }
        for hypothesis in hypotheses
    ]


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
