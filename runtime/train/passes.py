"""Passes of a run: the graph that its training computes, from its settings and its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from ...blocks.kernels.dropout import Dropout
from ...graphs.ir.graph import Graph, Part
from ...graphs.ir.traverse import visits
from ...graphs.passes.freeze import frozen_weights
from ...graphs.passes.merge import merged
from ...graphs.passes.objective import trained_models
from ...graphs.passes.pipeline import pipeline
from ...graphs.passes.unpad import plan_unpad
from ..checkpoint.state import RunState
from ..compile.autotune import Kernels, as_kept, choose_kernels
from ..data.plans.plan import generator
from ..data.plans.planning import plan_rows
from ..data.plans.updates import sampled_rows
from ..system.detail import Detail
from .context import TrainingContext
from .plan import kernels_to_choose, settings_of_run

if TYPE_CHECKING:
    from ..compile.autotune import Kernels
    from ..data.settings import BatchSettings
    from ..data.table import Table
    from .context import TrainingContext

WORTH = 0.05
"""Fraction of padding from which `auto` unpads; see docs/decisions/0025."""
LOGGED = frozenset({"kernels", "parallel"})
"""Passes whose changes are logged where they are chosen or carried out."""
SAMPLED = 2_000
"""Maximum number of rows from which padding is estimated with sub-word sampling, which takes
time."""


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
    share = padding_of(context.corpus, run.largest_batch, run.seed) if possible else 0.0
    unpad = run.padding == "unpadded" or share >= WORTH
    settings = settings_of_run(
        run,
        unpad=unpad,
        kernels=None if kernels is None else kernels.choice,
        processes=context.world.size,
        precision=context.placement.precision,
    )
    if run.without:
        context.listener.log(f"passes left out: {', '.join(run.without)}")
    for step in pipeline(graph, settings):
        graph = step.graph
        more = f" ({share:.1%} of the positions are padding)" if step.name == "unpad" else ""
        for line in step.changed if step.name not in LOGGED else ():
            context.listener.log(Detail(f"{step.name}: {line}{more}"))
    return graph


def padding_of(table: Table, settings: BatchSettings, seed: int) -> float:
    """Return the fraction of padding in the batches of a table, estimated from a sample.

    Batches are planned by the lengths without sub-word sampling, which makes rows of one batch
    differ.
    """
    some = sampled_rows(len(table), seed)
    lengths = [column_lengths[some] for column_lengths in table.lengths.values()]
    positions = tokens = row_count = 0
    for rows in plan_rows(lengths, settings, generator(seed, 0), count=len(some)):
        for column_lengths in table.sampled_lengths(some[rows], (seed, 0)).values():
            positions += len(rows) * int(column_lengths.max())
            tokens += int(column_lengths.sum())
        row_count += len(rows)
        if table.samples and row_count >= SAMPLED:
            break
    return 1.0 - tokens / max(positions, 1)


def chosen_kernels(context: TrainingContext, state: RunState) -> Kernels:
    """Choose and log the kernels of a run; a resumed run reuses its earlier choice.

    Args:
        context: provides the device, the settings of the run and the listener.
        state: stores the choice.

    Raises:
        InputError: the run requests a kernel that is not available.
    """
    placement = context.placement
    requested = kernels_to_choose(context.run, placement.precision)
    kernels = as_kept(state.kernels or {}) or choose_kernels(
        placement.device,
        half=placement.half,
        product_kernel=requested.product,
        attention_kernel=requested.attention,
        loss_kernel=requested.loss,
    )
    state.kernels = kernels.as_json()
    context.listener.log(Detail(kernels))
    return kernels


def freeze(model: nn.Module, context: TrainingContext) -> None:
    """Freeze the weights of the parts that a run selects, and log their number.

    Raises:
        InputError: a selection is wrong, or selects nothing.
    """
    others = () if context.start is None else context.start.frozen()
    names = frozen_weights(context.graph, context.freeze, context.train, others)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    shared = {id(parameters[name]) for name in names}
    for parameter in parameters.values():
        if id(parameter) in shared:
            parameter.requires_grad = False
    if names:
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        context.listener.log(f"frozen: {len(names)} weights; {trained:,} parameters train")


LAYERS = {Dropout: "dropout", _DropoutNd: "p"}
"""Class of a dropout layer to the attribute with its probability."""


class Dropouts:
    """The probabilities in a model with which values, rows or layers are dropped.

    They are those of its dropout layers, and the floats that `BlockType.dropout` names.
    """

    def __init__(self, model: nn.Module, graph: Graph) -> None:
        """Remember every probability of the model of a graph."""
        attributes = (
            (model.get_submodule(visit.module), name)
            for visit in visits(merged(graph).root, "weights")
            if isinstance(visit.part, Part)
            for name in visit.part.block.dropout
        )
        floats = [
            (block, name) for block, name in attributes if isinstance(getattr(block, name), float)
        ]
        floats += [
            (layer, name)
            for layer in model.modules()
            for kind, name in LAYERS.items()
            if isinstance(layer, kind)
        ]
        rates = {(module, name): getattr(module, name) for module, name in floats}
        self._rates: dict[tuple[nn.Module, str], float] = rates
        self._factor = 1.0

    def set(self, factor: float) -> None:
        """Set every probability to a multiple of the one in the graph, from 0 to 1."""
        if factor == self._factor:
            return
        self._factor = factor
        for (module, name), rate in self._rates.items():
            setattr(module, name, rate * factor)
