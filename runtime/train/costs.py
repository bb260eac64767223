"""Estimate the cost of a training run from its settings and a training speed.

FLOPs per token follow from the blocks' formulas at mean sentence lengths, times three for
forward and backward pass.  The duration is the number of tokens over the tokens per second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...graphs.cost.flops import TRAINING, flops
from ...graphs.ir.graph import Graph
from ...graphs.ir.value_type import time_axes
from .run import Run

FILL = 0.9
"""Fraction of the batch size that is real tokens, measured on lengths as in WMT14 at 3,500 tokens.

The rest is padding, and the shorter of both sides.
"""
CURVE = 100
"""Updates whose numbers of batches are averaged."""
LENGTH = 30
"""Default tokens per sentence, including the end token."""
SHARES = (0.1, 0.2, 0.3, 0.45, 0.55)
"""MFU values (fractions of a device's peak FLOP/s) for which a run is estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """The estimated size of a run."""

    name: str
    parameters: int
    updates: int
    tokens_per_update: float
    """Tokens of all texts together, without padding; rows if there is no time axis."""
    flops_per_token: float
    """FLOPs of matrix products, forward and backward; a multiply-add counts as 2."""

    @property
    def tokens(self) -> float:
        """Return the tokens of the complete run, counting every epoch."""
        return self.updates * self.tokens_per_update

    @property
    def flops(self) -> float:
        """Return the FLOPs of the complete run."""
        return self.tokens * self.flops_per_token

    def seconds(self, tokens_per_second: float) -> float:
        """Return the duration of the run in seconds, without validations and checkpoints."""
        return self.tokens / tokens_per_second

    def speed(self, peak_flops: float, share: float, devices: int = 1) -> float:
        """Return the tokens per second at a given MFU.

        Args:
            peak_flops: peak FLOP/s of matrix products on one device.
            share: MFU of training, as a fraction of `peak_flops`.
            devices: number of devices; linear scaling is assumed.
        """
        return peak_flops * share * devices / self.flops_per_token

    def as_json(self) -> dict[str, Any]:
        """Return the projection as plain data."""
        return {
            "name": self.name,
            "parameters": self.parameters,
            "updates": self.updates,
            "tokens_per_update": self.tokens_per_update,
            "flops_per_token": self.flops_per_token,
            "tokens": self.tokens,
            "flops": self.flops,
        }


def project(run: Run, graph: Graph, lengths: Mapping[str, int] | None = None) -> Projection:
    """Return the estimated size of a run, without its data.

    Args:
        run: its settings.
        graph: graph of its objective.
        lengths: mean tokens per sentence on the spec's time axes, including end tokens; default:
            `LENGTH`.
    """
    times = time_axes(graph.spec.axes)
    sizes = dict.fromkeys(graph.spec.axes, 1)
    sizes |= {axis: (lengths or {}).get(axis, LENGTH) for axis in times}
    # Without a time axis, such as for images, a row counts as one token.
    per_pair = sum(sizes[axis] for axis in times) or 1
    # Both sides of a batch have about the same number of tokens.
    rows = run.batch.max_sentences

    def tokens_of(update: int) -> float:
        """Return the tokens of an update."""
        per_batch = run.tokens_at(update) * FILL * len(times)
        if rows is not None:
            per_batch = min(per_batch, rows * per_pair) if times else rows
        return run.batches_at(update) * per_batch

    tried = range(1, run.updates + 1, max(1, run.updates // CURVE))
    per_update = sum(map(tokens_of, tried)) / len(tried)
    return Projection(
        name=run.name,
        parameters=graph.parameters(),
        updates=run.updates,
        tokens_per_update=per_update,
        flops_per_token=TRAINING * flops(graph, sizes) / per_pair,
    )
