"""Passes of a run: the graph that its training computes, from its settings and its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ....graphs.ir.graph import Graph
from ....graphs.passes.objective import trained_models
from ....graphs.passes.pipeline import pipeline
from ....graphs.passes.unpad import plan_unpad
from ...data.planning import plan_rows
from .pass_settings import settings_of_run

if TYPE_CHECKING:
    from ...compile.autotune import Kernels
    from ...data.settings import BatchSettings
    from ...data.table import Table
    from ..context import TrainingContext

WORTH = 0.05
"""Fraction of padding from which `auto` unpads; see docs/decisions/0025."""
LOGGED = frozenset({"kernels", "parallel"})
"""Passes whose changes are logged where they are chosen or carried out."""
SAMPLE = 200_000
"""Maximum number of rows from which the fraction of padding is estimated."""
SAMPLED = 2_000
"""The same with sub-word sampling, which takes time."""


def planned_graph(context: TrainingContext, kernels: Kernels | None) -> Graph:
    """Return the graph that a run trains, with its passes applied, and log what they change.

    Args:
        context: the run and its data.
        kernels: the kernels that were chosen; logged where they are.  None if the run leaves the
            pass out.

    Raises:
        InputError: the run unpads a model that cannot be unpadded, a selection is wrong, or the
            settings of parallelism do not fit the graph.
    """
    run, graph = context.run, context.graph
    models = trained_models(graph).values()
    possible = (
        graph.segments is None
        and "unpad" not in run.without
        and any(plan_unpad(model).axes for model in models)
    )
    share = padding_of(context.corpus, run.batch, run.seed) if possible else 0.0
    unpad = run.padding == "unpadded" or share >= WORTH
    settings = settings_of_run(
        run,
        unpad=unpad,
        kernels=None if kernels is None else kernels.choice,
        processes=context.world.size,
        precision=context.place.precision,
    )
    if run.without:
        context.listener.log(f"passes left out: {', '.join(run.without)}")
    for step in pipeline(graph, settings):
        graph = step.graph
        more = f" ({share:.1%} of the positions are padding)" if step.name == "unpad" else ""
        for line in step.changed if step.name not in LOGGED else ():
            context.listener.log(f"{step.name}: {line}{more}")
    return graph


def padding_of(table: Table, settings: BatchSettings, seed: int) -> float:
    """Return the fraction of padding in the batches of a table, estimated from a sample.

    Batches are planned by the lengths without sub-word sampling, which makes rows of one batch
    differ.
    """
    lengths = list(table.lengths.values())
    some = np.arange(len(table))
    if len(table) > SAMPLE:
        some = np.random.default_rng(seed).integers(len(table), size=SAMPLE)
        lengths = [each[some] for each in lengths]
    positions = tokens = seen = 0
    for rows in plan_rows(lengths, settings, seed, 0, count=len(some)):
        for each in table.sampled_lengths(some[rows], (seed, 0)).values():
            positions += len(rows) * int(each.max())
            tokens += int(each.sum())
        seen += len(rows)
        if table.samples and seen >= SAMPLED:
            break
    return 1.0 - tokens / max(positions, 1)
