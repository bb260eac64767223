"""Casts: low-precision weights are written once an update, and not at each product.

In mixed precision, autocast converts the operands of every product.  Activations differ in each
batch, but weights change only with an update.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.execution import LowPrecision, WeightCasts
from ..ir.graph import Graph


def cast_weights(graph: Graph, dtype: LowPrecision) -> Graph:
    """Return a graph whose products read weights that are cast once an update, in training.

    If FSDP shards the weights, it casts its shards, and no other copies are made.

    Args:
        graph: a checked graph, after the pass `parallel`.
        dtype: dtype of the products: the one that the training gives to autocast.
    """
    plan = graph.execution.parallel
    sharded = plan is not None and plan.data == "fsdp"
    casts = WeightCasts(dtype, "fsdp" if sharded else "copies")
    return replace(graph, execution=replace(graph.execution, casts=casts))
