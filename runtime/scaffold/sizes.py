"""Sizes of a model and of its training that fit an amount of data.

The rules are rough, and stand in the new run as numbers to change.  They follow what works on small
corpora: small models with much dropout, small vocabularies (Sennrich and Zhang 2019, section 3.2,
https://aclanthology.org/P19-1021), and some tens of epochs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from .survey import Survey

TOKEN = 4.5
"""Characters of a token of a sub-word vocabulary, about."""
UPDATES = 300, 20_000
"""Least and most updates."""
IN_UPDATE = 600, 4_000
"""Least and most tokens of an update."""
UPDATES_IN_EPOCH = 20
"""Updates of an epoch of small data."""
ACCUMULATE = 4
"""Batches of an update: each has sentences of similar lengths, and an update mixes them."""
BATCH = 256
"""Least tokens of a batch, so that a long sentence fits."""
SAMPLES, SECOND, SPOKEN = 800_000, 16_000, 4
"""Samples of a batch of sounds and of a second, and the seconds of a text, about."""
VOCABULARY = 16_000
"""Largest vocabulary."""
AVERAGE = 5
"""Checkpoints that are averaged."""


class Width(NamedTuple):
    """Sizes of a model for data of up to some tokens."""

    tokens: float
    d_model: int
    heads: int
    d_ff: int
    layers: int
    dropout: float
    peak: float


WIDTHS = (
    Width(30e3, 128, 4, 256, 2, 0.3, 0.003),
    Width(2e6, 128, 4, 256, 4, 0.3, 0.003),
    Width(20e6, 256, 8, 1024, 4, 0.2, 0.001),
    Width(float("inf"), 512, 8, 2048, 6, 0.1, 0.0007),
)


def sizes(
    survey: Survey, texts: Sequence[str], epochs: int, *, spoken: bool = False
) -> dict[str, float]:
    """Return the numbers of a run by the names that its template has for them.

    Args:
        survey: a look at the training data.
        texts: its fields with texts.
        epochs: how often to train on each row, if that needs neither too few nor too many updates.
        spoken: whether batches consist of sounds.
    """
    tokens = max(survey.characters(name) for name in texts) / TOKEN
    width = next(width for width in WIDTHS if tokens <= width.tokens)
    in_update = _between(tokens / UPDATES_IN_EPOCH, IN_UPDATE)
    batch = max(_round(in_update / ACCUMULATE), BATCH)
    accumulate = max(2, round(in_update / batch))
    in_epoch = tokens / in_update
    if spoken:
        batch, accumulate = SAMPLES, 1
        in_epoch = survey.all_rows * SPOKEN * SECOND / SAMPLES
    updates = _round(_between(epochs * in_epoch, UPDATES))
    every = max(1, updates // 20)
    return {
        "rows": survey.all_rows,
        **{name: value for name, value in width._asdict().items() if name != "tokens"},
        "vocab": vocabulary(survey, texts),
        "batch": batch,
        "accumulate": accumulate,
        "updates": updates,
        "evaluate": 2 * every,
        "checkpoint": every,
        "average": AVERAGE,
    }


def vocabulary(survey: Survey, texts: Sequence[str]) -> int:
    """Return the number of pieces of a vocabulary of some fields.

    It grows with the root of the number of tokens, and has room for all characters; a small text
    has no more pieces than it has characters and words.
    """
    letters = len(set().union(*(survey.fields[name].letters for name in texts)))
    words = len(set().union(*(survey.fields[name].words for name in texts)))
    tokens = sum(survey.characters(name) for name in texts) / TOKEN
    least, most = letters + 8, letters + 4 + 3 * words // 4
    return max(least, min(VOCABULARY, _round(6 * math.sqrt(tokens)), most))


def _between(number: float, bounds: tuple[int, int]) -> float:
    return min(max(number, bounds[0]), bounds[1])


def _round(number: float) -> int:
    """Return a number with two digits that are not 0, rounded down."""
    unit = int(10 ** max(0, len(str(int(number))) - 2))
    return int(number) // unit * unit
