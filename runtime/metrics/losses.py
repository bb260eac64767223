"""Metrics of the losses and scores of a validation: nll, perplexity, and any output by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

from ...specs.findings import InputError, did_you_mean
from .metric import LossMetric, Measured

LARGEST = 700.0
"""Largest nll whose exponential is computed; that of a larger one overflows."""


def mean_of(losses: Mapping[str, float], output: str) -> float:
    """Return the mean of an output.

    Raises:
        InputError: the objective does not report it.
    """
    if output not in losses:
        raise InputError(
            f"the objective reports no loss or score '{output}'", help=did_you_mean(output, losses)
        )
    return losses[output]


class Nll(LossMetric):
    """Mean negative log-likelihood in nats per item."""

    written: ClassVar[str] = "NLL"

    type: Literal["nll"] = "nll"

    def measure_losses(self, losses: Mapping[str, float]) -> Measured:
        """Return the mean of the output, which is `nll` unless it is given."""
        return Measured(mean_of(losses, self.output or "nll"))


class Perplexity(LossMetric):
    """Exponential of the mean negative log-likelihood."""

    type: Literal["perplexity"] = "perplexity"

    def measure_losses(self, losses: Mapping[str, float]) -> Measured:
        """Return the perplexity of the output, which is `nll` unless it is given."""
        return Measured(math.exp(min(mean_of(losses, self.output or "nll"), LARGEST)))


class Loss(LossMetric):
    """Mean of a loss or score by its name: `"loss:NAME"`, or `"loss"` for the sum of all losses.

    One of several losses that is called `loss` or `nll` has the name of its node.
    """

    type: Literal["loss"] = "loss"

    def measure_losses(self, losses: Mapping[str, float]) -> Measured:
        """Return the mean of the output, which is `loss` unless it is given."""
        return Measured(mean_of(losses, self.output or "loss"))
