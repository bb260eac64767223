"""Weight transfer: loads the weights of a checkpoint into the model of another spec.

Weights with equal paths and shapes are copied, also between renamed nodes; all others are
newly initialized.  A `WeightTransfer` lists both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...graphs.diff.diff import diff
from ...graphs.diff.weight_transfer import WeightTransfer
from ...graphs.ir.canonical import fingerprint
from ...graphs.ir.graph import Graph
from ...graphs.ir.value_type import sizes_of_inputs
from ...specs.findings import InputError
from ...specs.load import LoadedSpec, load
from ...specs.reader import parse
from ..codegen.build import build
from ..spec.check import graph_of
from .checkpoint import Checkpoint, deployed
from .mapping.line import Parts, TableRecord
from .mapping.plan import TransferPlan, planned
from .saving import weights_of

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Renumbered:
    """The classes of a column where another checkpoint has other numbers for them."""

    before: int
    """Number of classes of the checkpoint."""
    numbers: tuple[int | None, ...]
    """For each class, its number in the checkpoint; None if that does not have it."""


Renumbering = Mapping[str, Mapping[int, Renumbered]]
"""Path of a weight and axis to the classes that the axis counts."""


def carry_over(
    model: nn.Module,
    weights: Mapping[str, Tensor],
    old: Graph,
    new: Graph,
    renumbering: Renumbering | None = None,
    plan: TransferPlan | None = None,
) -> tuple[WeightTransfer, int]:
    """Copy the weights of one graph into the model of another where they fit.

    Args:
        model: model built from `new`; its other weights are not changed.
        weights: weights of `old`, each once.
        old: source graph.
        new: target graph.
        renumbering: weights of `new` whose entries follow the names of classes; entries of classes
            that `old` does not have are not changed.
        plan: lines that fill weights of `new`, or leave them unchanged.

    Returns:
        Which weights were carried over, from where, and which were not; and the number of
        parameters that were copied.
    """
    transfer = diff(old, new).weight_transfer
    parameters, copied = model.state_dict(), 0
    by_line = plan.paths if plan is not None else frozenset()
    renumbered = {path: axes for path, axes in (renumbering or {}).items() if path not in by_line}
    with torch.no_grad():
        for path, axes in renumbered.items():
            source = transfer.sources.get(path, path)
            if source in weights:
                copied += _copy_classes(parameters[path], weights[source], axes)
        for path, source in transfer.sources.items():
            if path not in renumbered and path not in by_line:
                copied += parameters[path].copy_(weights[source]).numel()
    if plan is not None:
        copied += plan.fill(parameters, weights)
        transfer = plan.applied(transfer, old)
    return transfer, copied


def _copy_classes(target: Tensor, source: Tensor, axes: Mapping[int, Renumbered]) -> int:
    """Copy the entries of the classes that two weights share; return the number of parameters.

    Args:
        target: the weight to change.
        source: the weight of the other graph.
        axes: axes that count classes; the others have equal sizes, or nothing is copied.
    """
    sizes = {axis: classes.before for axis, classes in axes.items()}
    expected_shape = [sizes.get(axis, size) for axis, size in enumerate(target.shape)]
    if list(source.shape) != expected_shape:
        return 0
    into, out_of = [], []
    for axis, size in enumerate(target.shape):
        numbers = axes[axis].numbers if axis in axes else range(size)
        pairs = [(now, before) for now, before in enumerate(numbers) if before is not None]
        into.append(torch.tensor([now for now, _ in pairs], dtype=torch.long))
        out_of.append(torch.tensor([before for _, before in pairs], dtype=torch.long))
    part = source[torch.meshgrid(*out_of, indexing="ij")]
    target[torch.meshgrid(*into, indexing="ij")] = part.to(target)
    return part.numel()


class _Table(TableRecord):
    """Lines by pattern."""

    weights: dict[str, Parts | None]


def adapted(
    checkpoint: Checkpoint, graph: Graph, seed: int, lines: Mapping[str, Any] | None = None
) -> tuple[Checkpoint, WeightTransfer]:
    """Return a checkpoint of another graph, with the weights that fit it.

    Args:
        checkpoint: checkpoint with the weights; not changed.
        graph: target graph.
        seed: determines the newly initialized weights, together with their paths.
        lines: lines of a table that fill weights of the graph, as in JSON.

    Raises:
        SpecError: a line is wrong.
    """
    plan = None
    if lines is not None:
        table = parse(_Table, {"weights": dict(lines)}, "weights", {})
        plan = planned(table.weights, checkpoint.graph, graph, "weights")
    model = build(graph, seed=seed)
    weight_transfer, _ = carry_over(model, checkpoint.weights, checkpoint.graph, graph, plan=plan)
    state = {"adapted_from": fingerprint(checkpoint.graph), "update": 0}
    run = dict(checkpoint.run)
    if "params" in run:  # the model is the one in the checkpoint
        run["params"] = {name: value for name, value in run["params"].items() if name != "model"}
    weights = {path: tensor.clone() for path, tensor in weights_of(model, graph).items()}
    adapted_checkpoint = replace(
        checkpoint, graph=graph, weights=weights, run=run, state=state, objective=None
    )
    return deployed(adapted_checkpoint), weight_transfer


def graph_with_sizes(checkpoint: Checkpoint, spec: LoadedSpec | str | Path) -> Graph:
    """Return the graph of another spec with the sizes of a checkpoint's data.

    Params that are sizes of inputs, or that the objective takes from the columns, are those of the
    checkpoint unless the spec overrides them.

    Args:
        checkpoint: checkpoint whose columns the model will read and answer in.
        spec: the result of `load`, a path, or a shipped name.

    Raises:
        InputError: the spec lacks an input or output of the checkpoint's model, or has another
            vocabulary.
        SpecError: the spec has errors; all of them are listed.
    """
    loaded = spec if isinstance(spec, LoadedSpec) else load(spec)
    old, objective = checkpoint.graph, checkpoint.objective
    params = loaded.recovered.params
    shared = {} if objective is None else objective.params
    sizes: dict[str, Any] = {
        name: size
        for name, size in old.params.items()
        if name in params and name in shared and isinstance(size, int)
    }
    sizes |= sizes_of_inputs(loaded.recovered.inputs, params, old.inputs)
    graph = graph_of(replace(loaded, overrides={**sizes, **loaded.overrides}))
    for name, type_ in old.inputs.items():
        if name not in graph.inputs or graph.inputs[name].kind != type_.kind:
            raise InputError(
                f"'{graph.name}' has no input '{name}' of kind {type_.kind}, which the data fills",
                location=f"{graph.source}#/inputs",
                help="name a spec with the inputs of the checkpoint's model",
            )
        if graph.inputs[name].size != type_.size:
            raise InputError(
                f"'{name}' of the spec has size {graph.inputs[name].size}, but the tokenizer has"
                f" {type_.size}",
                location=graph.source,
                help="remove the sizes of the vocabulary from the spec's params",
            )
    for name in old.outputs:
        if name not in graph.outputs:
            raise InputError(
                f"'{graph.name}' has no output '{name}', which answers are read from",
                location=f"{graph.source}#/outputs",
                help="name a spec with the outputs of the checkpoint's model",
            )
    return graph
