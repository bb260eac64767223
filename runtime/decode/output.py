"""Output: hypotheses as plain values, for JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..data.symbols import Vocabulary
from .settings import Hypothesis


def output_records(target: Vocabulary, found: Sequence[Hypothesis]) -> list[dict[str, Any]]:
    """Return the outputs of one text, best first: text, scores and pieces.

    A score that is not finite, of an output that the model holds for impossible but had
    to be given, is None: JSON has no such number.
    """
    return [
        {
            "text": target.decode(one.tokens),
            "score": _finite(one.score),
            "log_probability": _finite(one.log_probability),
            "finished": one.finished,
            "tokens": target.pieces(one.tokens),
        }
        for one in found
    ]


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
