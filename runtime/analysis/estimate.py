"""Projection: what a run will cost, from its settings and a speed.

Operations of a token are those of the blocks' formulas at mean sentence lengths, three times
the forward pass; how long a run takes is its tokens over the tokens a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...graphs.cost.flops import flops
from ...graphs.ir.graph import Graph
from ...specs.load import load
from ..compile.roofline import TRAINING
from ..spec.check import graph_of
from ..train.run import Run, spec_of

FILL = 0.9
"""Share of a batch's bound that real tokens fill: measured on lengths as in WMT14, at
3,500 tokens; the rest is padding, and the shorter of both sides."""
LENGTH = 30
"""Tokens of a sentence where nobody says how many, its end counted."""
SHARES = (0.1, 0.2, 0.3, 0.45, 0.55)
"""Shares of a device's ceiling at which a run is projected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """What a run consists of."""

    name: str
    parameters: int
    updates: int
    tokens_per_update: float
    """Source and target tokens together, padding not counted."""
    flops_per_token: float
    """Of matrix products, forward and backward; to multiply and add is 2."""

    @property
    def tokens(self) -> float:
        """Return the tokens of the whole run, epochs counted again."""
        return self.updates * self.tokens_per_update

    @property
    def flops(self) -> float:
        """Return the operations of the whole run."""
        return self.tokens * self.flops_per_token

    def seconds(self, tokens_per_second: float) -> float:
        """Return how long the run takes, validations and checkpoints not counted."""
        return self.tokens / tokens_per_second

    def speed(self, peak_flops: float, share: float, devices: int = 1) -> float:
        """Return the tokens a second at a share of what devices can do.

        Args:
            peak_flops: operations a second of matrix products on one device.
            share: of it, that training reaches.
            devices: how many there are, each as fast as if it were alone.
        """
        return peak_flops * share * devices / self.flops_per_token

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "name": self.name,
            "parameters": self.parameters,
            "updates": self.updates,
            "tokens_per_update": self.tokens_per_update,
            "flops_per_token": self.flops_per_token,
            "tokens": self.tokens,
            "flops": self.flops,
        }


def project(run: Run, source: str, lengths: Mapping[str, int] | None = None) -> Projection:
    """Return what a run consists of, without its data.

    Args:
        run: its settings.
        source: file it came from.
        lengths: mean tokens of a sentence on the spec's time axes, ends counted; `LENGTH`
            where left out.

    Raises:
        SpecError: its spec is wrong.
    """
    graph = run_graph(run, source)
    times = [axis for axis, kind in graph.spec.axes.items() if kind == "time"]
    sizes = dict.fromkeys(graph.spec.axes, 1)
    sizes |= {axis: (lengths or {}).get(axis, LENGTH) for axis in times}
    per_pair = sum(sizes[axis] for axis in times)
    # Both sides of a batch fill it about alike.
    per_update = run.accumulate * run.batch.tokens * FILL * len(times)
    return Projection(
        name=run.name,
        parameters=graph.parameters(),
        updates=run.updates,
        tokens_per_update=per_update,
        flops_per_token=TRAINING * flops(graph, sizes) / per_pair,
    )


def run_graph(run: Run, source: str) -> Graph:
    """Return the graph of a run with the vocabulary that its tokenizer is asked for.

    Raises:
        SpecError: its spec is wrong.
    """
    held = load(spec_of(run, source))
    sizes = dict.fromkeys(("vocab", "source_vocab", "target_vocab"), run.tokenizer.vocab_size)
    known = {name: size for name, size in sizes.items() if name in held.form.params}
    return graph_of(replace(held, overrides={**known, **run.params}))
