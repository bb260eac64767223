"""Packing: a model in training computes positions that are no padding alone.

Only its modules change, by their class: names of parameters, outputs and what is decoded stay.
A module that takes any leading axes is left as it is; attention pads its heads alone; any
other is given padded values.  In evaluation nothing is packed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ....blocks.kernels.unpad import Batched, rows_of, with_padding, without_padding
from ....graphs.ir.graph import Graph
from ....graphs.passes.unpad import UnpadPlan, plan_unpad
from ....specs.findings import InputError
from ...data.batches import plan_epoch
from .subclass import like

if TYPE_CHECKING:
    from ...data.settings import BatchSettings
    from ...data.shards.corpus import Corpus
    from ..context import TrainingContext

WORTH = 0.05
"""Share of positions that are padding from which `auto` packs; see docs/decisions/0025."""
SAMPLE = 200_000
"""Pairs of a corpus that tell how much of it would be padding."""


def unpad(model: nn.Module, graph: Graph, *, pad: int) -> UnpadPlan:
    """Let a model train on packed rows, in place.

    Call it before `recompute` and before the model is compiled or divided.

    Args:
        model: built from the graph.
        graph: says what can be packed.
        pad: the id that fills rows, at their ends, where no input says what to keep.

    Returns:
        How the graph is packed.

    Raises:
        InputError: it cannot be.
    """
    plan = plan_unpad(graph)
    if not plan.axes:
        raise InputError(
            f"'{graph.name}' cannot be unpadded: {plan.why}",
            place="/padding",
            help="leave 'padding' out of the run, or set it to 'padded'",
        )
    batched = Batched()
    for path, around in plan.blocks.items():
        module: Any = model.get_submodule(path)
        kind: Any = type(module)
        module.batched, module.around = batched, around
        if hasattr(kind, "places"):
            module.places = around.inputs
        else:
            module.__class__ = _through_padding(kind)
    root: Any = model
    kind = type(model)
    root.batched, root.plan, root.pad, root.counts = batched, plan, pad, {}
    root.__class__ = _unpadded_inside(kind)
    return plan


def unpad_for_run(model: nn.Module, context: TrainingContext) -> None:
    """Pack a model where its run says so, or says `auto` and it is worth while, and say it."""
    run, graph = context.run, context.graph
    if run.padding == "padded" or (run.padding == "auto" and not plan_unpad(graph).axes):
        return
    share = padding_of(context.corpus, run.batch, run.seed)
    if run.padding == "unpadded" or share >= WORTH:
        plan = unpad(model, graph, pad=context.pad)
        context.listener.log(
            f"unpadded: {' and '.join(plan.axes)}, of which {share:.1%} is padding"
        )


def padding_of(corpus: Corpus, settings: BatchSettings, seed: int) -> float:
    """Return the share of positions that are padding, in batches of some of a corpus."""
    source, target = corpus.source_lengths, corpus.target_lengths
    if len(source) > SAMPLE:
        some = np.random.default_rng(seed).integers(len(source), size=SAMPLE)
        source, target = source[some], target[some]
    positions = tokens = 0
    for rows in plan_epoch(source, target, settings, seed, 0):
        for lengths in (source[rows], target[rows]):
            positions += len(rows) * (int(lengths.max()) + 1)  # the end token
            tokens += int(lengths.sum()) + len(rows)
    return 1.0 - tokens / max(positions, 1)


def kept(ids_BT: Tensor, pad: int) -> Tensor:
    """Return [B, T], true up to the last id of each row that is no padding, and at the first.

    Some models begin what they write with the id that fills rows.
    """
    mask_BT = (ids_BT != pad).long().flip(1).cummax(1).values.flip(1) > 0
    mask_BT[:, 0] = True
    return mask_BT


@functools.cache
def _through_padding(kind: Any) -> Any:
    """Return a class of modules that are given padded values, and what they give is packed.

    One for each class, so that the copies of a template are still alike.
    """
    plain = kind.forward
    ports = list(inspect.signature(plain).parameters)[1:]

    def forward(self: Any, *given: Any, **named: Any) -> Any:
        if not self.training:
            return plain(self, *given, **named)
        values = dict(zip(ports, given, strict=False)) | named
        batched, around = self.batched, self.around
        for port, place in around.inputs.items():
            if isinstance(value := values.get(port), Tensor):
                values[port] = with_padding(value, batched.rows_of(value, place), place.dim)
        found = plain(self, **values)
        alone = not isinstance(found, tuple)
        outputs = [
            value if place is None else without_padding(value, batched.rows[place.axis], place.dim)
            for value, place in zip(
                (found,) if alone else found, around.outputs.values(), strict=True
            )
        ]
        return outputs[0] if alone else tuple(outputs)

    return like(kind, forward)


@functools.cache
def _unpadded_inside(kind: Any) -> Any:
    """Return a class of models whose inputs are packed and whose outputs are padded again."""
    plain = kind.forward
    ports = list(inspect.signature(plain).parameters)[1:]

    def forward(self: Any, *given: Any, **named: Any) -> Any:
        if not self.training:
            return plain(self, *given, **named)
        values = dict(zip(ports, given, strict=False)) | named
        plan, rows = self.plan, self.batched.rows
        rows.clear()
        for axis in plan.axes:
            rows[axis] = rows_of(_mask(plan, axis, values, self.pad), self.counts.pop(axis, None))
        for port, place in plan.whole.inputs.items():
            if port in values:
                values[port] = without_padding(values[port], rows[place.axis], place.dim)
        outputs: Mapping[str, Tensor] = plain(self, **values)
        found = dict(outputs)
        for port, place in plan.whole.outputs.items():
            if place is not None:
                found[port] = with_padding(found[port], rows[place.axis], place.dim)
        return found

    def expect(self: Any, counts: Mapping[str, int]) -> None:
        """Be told how many positions of inputs are no padding, for the next `forward`."""
        places = self.plan.whole.inputs
        self.counts = {places[port].axis: n for port, n in counts.items() if port in places}

    return like(kind, forward, expect=expect)


def _mask(plan: UnpadPlan, axis: str, values: Mapping[str, Tensor], pad: int) -> Tensor:
    """Return which positions of an axis are no padding, as the inputs say."""
    if plan.masks.get(axis) in values:
        return values[plan.masks[axis]]
    on_axis = {
        port: place
        for port, place in plan.whole.inputs.items()
        if place.axis == axis and port in values
    }
    for port, place in on_axis.items():
        value = values[port]
        if value.dtype == torch.int64 and place.rank == 2:  # noqa: PLR2004 - ids, not vectors
            return kept(value, pad)
    value, place = next((values[port], place) for port, place in on_axis.items())
    return torch.ones(value.shape[place.dim : place.dim + 2], dtype=torch.bool, device=value.device)
