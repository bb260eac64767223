"""Costs of the runs of a study, before anything trains: sizes, memory, FLOPs and duration."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ....graphs.cost.decode_state import state_by_node
from ....plugin import Graph, cost_table, default_sizes, deployed_graph, flops, time_axes
from ....runtime.train.checks.files import state_floats
from ....runtime.train.costs import LENGTH, project
from .base import Run

FLOAT = 4
"""Bytes of a float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Costs of one run."""

    parameters: int
    """Parameters of the deployed model."""
    flops: int
    """FLOPs of one forward pass of the deployed model, for one sequence of 32 tokens."""
    decode_state: int
    """Bytes of its decoding state after 32 tokens; 0 if it does not decode step by step."""
    memory: int
    """Bytes of training, estimated: weights, gradients, moments, and outputs of all blocks."""
    updates: int
    tokens: float
    """Tokens of all texts together, by estimate."""
    training_flops: float
    """FLOPs of matrix products of the complete training, forward and backward."""

    def seconds(self, flops_per_second: float) -> float:
        """Return the duration at a speed, without validations and checkpoints."""
        return self.training_flops / flops_per_second

    def as_json(self) -> dict[str, Any]:
        """Return the costs as plain data."""
        return asdict(self)


def quantity(graph: Graph, name: str) -> int:
    """Return the parameters, FLOPs or decoding state of a deployed model.

    Args:
        graph: graph of the model.
        name: `parameters`, `flops` or `decode_state`.
    """
    sizes = default_sizes(graph)
    if name == "parameters":
        return graph.parameters()
    if name == "flops":
        return flops(graph, sizes)
    return sum(state_by_node(graph, sizes).values())


def costs_of(run: Run, graph: Graph) -> Costs:
    """Return the costs of a run.

    Args:
        run: the run.
        graph: graph of its objective.
    """
    model, work = deployed_graph(graph), project(run, graph)
    return Costs(
        parameters=quantity(model, "parameters"),
        flops=quantity(model, "flops"),
        decode_state=quantity(model, "decode_state"),
        memory=_memory(run, graph),
        updates=run.updates,
        tokens=work.tokens,
        training_flops=work.flops,
    )


def _memory(run: Run, graph: Graph) -> int:
    """Return the estimated memory of training in bytes."""
    times = time_axes(graph.spec.axes)
    tokens = run.token_range()[1]
    rows = run.batch.max_sentences or tokens
    if times:
        rows = min(rows, max(1, tokens // LENGTH))
    sizes = dict.fromkeys(graph.spec.axes, rows) | dict.fromkeys(times, LENGTH)
    floats = 2 * graph.parameters() + state_floats(run, graph)
    return floats * FLOAT + cost_table(graph, sizes).activation_bytes
