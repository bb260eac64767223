"""Unpadding: a model in training computes non-padding tokens only.

Only the classes of modules change: parameter names, outputs and decoding stay the same.
A module that accepts any leading axes is unchanged; attention pads only its heads; every other
module gets padded values.  In evaluation mode nothing is unpadded.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ....blocks.kernels.unpad import Batched, rows_of, with_padding, without_padding
from ....graphs.passes.objective import trained_models
from ....graphs.passes.unpad import Place, UnpadPlan, plan_unpad
from ....specs.findings import InputError
from ...codegen.generated import program_of
from ...data.planning import plan_rows
from .subclass import like

if TYPE_CHECKING:
    from ...data.settings import BatchSettings
    from ...data.table import Table
    from ..context import TrainingContext

WORTH = 0.05
"""Fraction of padding from which `auto` unpads; see docs/decisions/0025."""
SAMPLE = 200_000
"""Maximum number of rows from which the fraction of padding is estimated."""


def unpad(model: nn.Module, *, pad: int = 0) -> UnpadPlan:
    """Make a built model compute non-padding tokens only while it trains, in place.

    Inputs, outputs, names of weights and evaluation do not change.  Call it before the model is
    compiled, parallelized or given activation checkpointing; `weft train` calls it where it makes
    training faster.

    Args:
        model: the result of `build`.
        pad: the padding id at the ends of rows, for inputs without a corresponding input of kind
            `mask`.

    Returns:
        The axes that are unpadded, and the reasons why others stay padded.

    Raises:
        InputError: the model was not built by weft, is already unpadded, or cannot be unpadded;
            the message gives the reason.
    """
    graph = program_of(model).graph
    if hasattr(model, "batched"):
        raise InputError(f"'{graph.name}' is already unpadded", help="call weft.unpad once")
    plan = plan_unpad(graph)
    if not plan.axes:
        raise InputError(
            f"'{graph.name}' cannot be unpadded: {plan.why}",
            place="/padding",
            help="set 'padding' to 'padded', or remove it from the run",
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
    """Unpad a model if its run requests it, or for `auto` if it is worthwhile, and log it."""
    run = context.run
    if run.padding == "padded":
        return
    for name, graph in trained_models(context.graph).items():
        if run.padding == "auto" and not plan_unpad(graph).axes:
            continue
        share = padding_of(context.corpus, run.batch, run.seed)
        if run.padding == "unpadded" or share >= WORTH:
            plan = unpad(model.get_submodule(name), pad=context.pad)
            context.listener.log(
                f"unpadded axes: {' and '.join(plan.axes)} of {name}"
                f" ({share:.1%} of the positions are padding)"
            )


def padding_of(table: Table, settings: BatchSettings, seed: int) -> float:
    """Return the fraction of padding in the batches of a table, estimated from a sample."""
    lengths = list(table.lengths.values())
    if len(table) > SAMPLE:
        some = np.random.default_rng(seed).integers(len(table), size=SAMPLE)
        lengths = [each[some] for each in lengths]
    positions = tokens = 0
    for rows in plan_rows(lengths, settings, seed, 0, count=min(len(table), SAMPLE)):
        for each in lengths:
            positions += len(rows) * int(each[rows].max())
            tokens += int(each[rows].sum())
    return 1.0 - tokens / max(positions, 1)


def kept(ids_BT: Tensor, pad: int) -> Tensor:
    """Return a mask [B, T], true up to the last non-padding id of each row.

    The first position is always true: some models begin their outputs with the padding id.
    """
    mask_BT = (ids_BT != pad).long().flip(1).cummax(1).values.flip(1) > 0
    mask_BT[:, 0] = True
    return mask_BT


@functools.cache
def _through_padding(kind: Any) -> Any:
    """Return a module subclass that pads its inputs and unpads its outputs.

    There is one subclass per class, so the copies of a template still share a class.
    """
    plain = kind.forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.training:
            return plain(self, *args, **kwargs)
        batched, around = self.batched, self.around
        values = dict(zip(around.ports, args, strict=False)) | kwargs
        for port, place in around.inputs.items():
            if isinstance(value := values.get(port), Tensor):
                values[port] = with_padding(value, batched.rows_of(value, place), place.dim)
        found = plain(self, **values)
        single = not isinstance(found, tuple)
        outputs = [
            value if place is None else without_padding(value, batched.rows[place.axis], place.dim)
            for value, place in zip(
                (found,) if single else found, around.outputs.values(), strict=True
            )
        ]
        return outputs[0] if single else tuple(outputs)

    return like(kind, forward, _through_padding)


@functools.cache
def _unpadded_inside(kind: Any) -> Any:
    """Return a model subclass that unpads its inputs and pads its outputs again."""
    plain = kind.forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.training:
            return plain(self, *args, **kwargs)
        plan, rows = self.plan, self.batched.rows
        values = dict(zip(plan.whole.ports, args, strict=False)) | kwargs
        rows.clear()
        for axis in plan.axes:
            count = self.counts.get(_marking(plan, axis, values))
            rows[axis] = rows_of(_mask(plan, axis, values, self.pad), count)
        self.counts = {}
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
        """Set the numbers of non-padding tokens of inputs for the next `forward`.

        Used is that of the mask of an axis, or, without a mask, that of its ids.
        """
        self.counts = dict(counts)

    return like(kind, forward, _unpadded_inside, expect=expect)


def _mask(plan: UnpadPlan, axis: str, values: Mapping[str, Tensor], pad: int) -> Tensor:
    """Return the padding mask of an axis, true at non-padding tokens, from the inputs."""
    port = _marking(plan, axis, values)
    value = values[port]
    if plan.masks.get(axis) == port:
        return value
    place = plan.whole.inputs[port]
    if _holds_ids(value, place):
        return kept(value, pad)
    return torch.ones(value.shape[place.dim : place.dim + 2], dtype=torch.bool, device=value.device)


def _marking(plan: UnpadPlan, axis: str, values: Mapping[str, Tensor]) -> str:
    """Return the input that tells the padding of an axis: its mask, else its ids, else any."""
    if (mask := plan.masks.get(axis)) in values:
        return str(mask)
    places = {
        port: place
        for port, place in plan.whole.inputs.items()
        if place.axis == axis and port in values
    }
    ids = (port for port, place in places.items() if _holds_ids(values[port], place))
    return next(ids, next(iter(places)))


def _holds_ids(value: Tensor, place: Place) -> bool:
    """Return whether an input holds token ids, not vectors."""
    return value.dtype == torch.int64 and place.rank == 2  # noqa: PLR2004 - batch and time
