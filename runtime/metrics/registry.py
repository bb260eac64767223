"""Metric registry: every metric that a run may use.

To register a metric, add a line here.  Installed packages add metrics through the entry-point
group `weft.metrics`; a run can never name code.
"""

from __future__ import annotations

from ..system.plugins import Plugins
from .metric import Metric

SHIPPED = {
    "bleu": ".text:Bleu",
    "bleu_lc": ".text:BleuLowercase",
    "chrf": ".text:Chrf",
    "ter": ".text:Ter",
    "comet": ".comet:Comet",
    "exact_match": ".text:ExactMatch",
    "accuracy": ".labels:Accuracy",
    "f1": ".labels:F1",
    "tag_accuracy": ".labels:TagAccuracy",
    "wer": ".edit_distance:WordErrorRate",
    "cer": ".edit_distance:CharacterErrorRate",
    "mse": ".numbers:MeanSquaredError",
    "mae": ".numbers:MeanAbsoluteError",
    "nll": ".losses:Nll",
    "perplexity": ".losses:Perplexity",
    "loss": ".losses:Loss",
}
"""Name of a shipped metric to `file:Class`, relative to this folder."""

METRICS: Plugins[Metric] = Plugins(
    "metric",
    "weft.metrics",
    Metric,  # type: ignore[type-abstract]  # plug-ins are subclasses of it
    SHIPPED,
    __package__,
)
"""All metrics; `METRICS.parse("bleu", place)` returns one."""
