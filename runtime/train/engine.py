"""Model execution on one process or many, with DDP, FSDP and tensor parallelism of PyTorch.

`ddp`: each process has all weights; gradients are all-reduced during the backward pass.
`fsdp`: weights, gradients and optimizer state are sharded over the processes, each copy of a
repeated template separately and the remaining parameters together; with `shard`, over groups of
processes that replicate them (HSDP).  In addition, groups of `tensor` processes partition the heads
and widths of each block that supports it.

Not tested yet: CUDA with NCCL.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from ...graphs.ir.execution import WeightCasts
from ...graphs.ir.graph import Graph
from ...specs.findings import InputError
from ..checkpoint.checkpoint import is_sharded, tensors_in
from ..checkpoint.saving import Contents, weights_of
from ..checkpoint.state import RunState
from ..codegen.generated import program_of
from .device import RunDevice
from .distributed.late_weights import LateModel
from .distributed.sharding import (
    clip,
    divide,
    full_tensors,
    load_sharded,
    save_sharded,
)
from .distributed.stopping import StopRequest, together
from .distributed.world import World
from .losses import LossSums
from .recipe.optimize import (
    Optimizers,
    clip_gradient,
    load_optimizer_tensors,
    optimizer_tensors,
    state_like,
)

if TYPE_CHECKING:
    from .context import Losses

_NAMES = inspect.signature(DistributedDataParallel).parameters
_NO_BUFFERS: dict[str, Any] = {
    "forward_sync_buffers" if "forward_sync_buffers" in _NAMES else "broadcast_buffers": False
}
"""Do not broadcast buffers before each forward pass: they never change.  torch renamed this
option."""


def mixed_precision(casts: WeightCasts | None) -> MixedPrecisionPolicy:
    """Return the dtypes of FSDP: weights of the products' dtype, gradients summed in float32.

    Autocast casts the inputs of products, so those of layers keep their dtype, and the losses of
    the objective are float32 as without FSDP.
    """
    if casts is None:
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(
        param_dtype=getattr(torch, casts.dtype),
        reduce_dtype=torch.float32,
        output_dtype=None,
        cast_forward_inputs=False,
    )


class EvaluatedModel:
    """The model of a training in evaluation mode, seen from one process."""

    def __init__(self, engine: Engine) -> None:
        """Take the model of an engine."""
        self.model, self.world = engine.model, engine.world
        self.in_step = engine.spread_weights
        """Whether all processes must run equally many batches together."""
        self._graph = engine.graph
        self._late: LateModel | None = None

    @contextmanager
    def answering(self, stop: StopRequest) -> Iterator[nn.Module]:
        """Yield the model for answers to rows of this process; all processes call it together.

        It runs without regard to the others, also if the weights are spread over processes: then
        a layer is gathered when it runs.

        Args:
            stop: a request to stop ends the body.

        Raises:
            Interrupted: there was a request to stop, at any process.
        """
        if not self.in_step:
            with together(self.world, stop):
                yield self.model
            return
        if self._late is None:
            self._late = LateModel(self.model, self._graph, self.world)
        with self._late.running(stop):
            yield self._late.model


class LossModule(nn.Module):
    """A model and its losses as one module, which maps a batch to its loss.

    DDP and FSDP run their hooks before and after the `forward` of a module, so everything that
    reads weights must happen inside one module.
    """

    def __init__(self, model: nn.Module, losses: Losses) -> None:
        """Store the model and the losses."""
        super().__init__()
        self.model, self.losses = model, losses

    def forward(self, batch: Any) -> dict[str, Any]:
        """Return the sums of a batch by name, without those that are None."""
        sums = self.losses.loss(self.model, batch)
        outputs: dict[str, Any] = {"loss": sums.loss, "nll": sums.nll, "tokens": sums.tokens}
        outputs |= {} if sums.auxiliary is None else {"auxiliary": sums.auxiliary}
        return outputs | ({"parts": dict(sums.parts)} if sums.parts else {})


class Engine:
    """The model of a training and its parallelization, seen from one process."""

    def __init__(self, model: nn.Module, losses: Losses, graph: Graph, world: World) -> None:
        """Take an unsharded model; `spread` parallelizes it."""
        self.model, self.graph, self.world = model, graph, world
        self._loss_module: nn.Module = LossModule(model, losses)
        self.spread_weights = False
        """Whether each process holds only a shard of the weights."""

    def spread(self) -> str:
        """Parallelize the model by the plan of its graph; return a summary for the log.

        Call it after the initial weights are set and before the optimizer is made.
        """
        mesh, plan = self.world.mesh, program_of(self.model).graph.execution.parallel
        if mesh is None or plan is None:
            return ""
        summary = [f"{self.world.size} processes"]
        if plan.blocks:
            # With fsdp and 'tensor' together torch logs a message at every all-gather, as long as
            # the divided weights exist, so the level stays as it is set here.
            logging.getLogger("torch.distributed.tensor").setLevel(logging.ERROR)
            divide(self.model, plan.blocks, (self.world.replicas or mesh)["tensor"])
            self.spread_weights = True
            summary.append(f"{len(plan.blocks)} blocks partitioned over {mesh['tensor'].size()}")
        if plan.data == "fsdp":
            casts = program_of(self.model).graph.execution.casts
            replicas = self.world.replicas
            over = mesh["data"] if replicas is None else replicas["replicate", "shard"]
            settings: dict[str, Any] = {"mesh": over, "mp_policy": mixed_precision(casts)}
            for path in reversed(plan.sharded):  # nested layers first
                fully_shard(self.model.get_submodule(path), **settings)
            fully_shard(self._loss_module, reshard_after_forward=False, **settings)
            self.spread_weights = True
            count = len(plan.sharded)
            gathered = "" if casts is None else f", gathered in {casts.dtype}"
            sizes = " x ".join(map(str, over.shape))
            summary.append(f"fsdp over {sizes}, {count} layers sharded separately{gathered}")
        elif plan.data == "ddp":
            self._loss_module = DistributedDataParallel(
                self._loss_module, gradient_as_bucket_view=True, **_NO_BUFFERS
            )
            summary.append("ddp")
        return ", ".join(summary)

    def loss(self, batch: Any) -> LossSums:
        """Return the loss of a batch, summed over its target tokens."""
        return LossSums(**self._loss_module(batch))

    def syncing(self, *, last: bool) -> AbstractContextManager[Any]:
        """Return the context of one micro-batch; only the last one of an update syncs gradients."""
        if isinstance(self._loss_module, DistributedDataParallel):
            return nullcontext() if last else self._loss_module.no_sync()
        if isinstance(self._loss_module, FSDPModule):
            self._loss_module.set_requires_gradient_sync(last)
            self._loss_module.set_is_last_backward(last)
        return nullcontext()

    @property
    def in_step(self) -> bool:
        """Whether all ranks must run equally many micro-batches: each all-gathers weights."""
        return isinstance(self._loss_module, FSDPModule)

    def clip(self, limit: float | None) -> Tensor:
        """Scale gradients to a norm of at most `limit`; return the norm before scaling."""
        if self.spread_weights:
            return clip(self.model.parameters(), limit, self.world)
        return clip_gradient(self.model.parameters(), limit)

    def weights(self) -> dict[str, Tensor]:
        """Return every parameter once, unsharded, on the main process; nothing on the others."""
        return full_tensors(weights_of(self.model, self.graph), gather=self.world.is_main_process)

    def moments(self, optimizer: Optimizers) -> dict[str, Tensor]:
        """Return the optimizer state, unsharded, on the main process; nothing on the others."""
        return full_tensors(
            optimizer_tensors(optimizer, self.model), gather=self.world.is_main_process
        )

    def save(self, folder: Path, contents: Contents, optimizer: Optimizers) -> None:
        """Write a sharded checkpoint; each process writes its own shards."""
        weights = weights_of(self.model, self.graph)
        moments = optimizer_tensors(optimizer, self.model)
        save_sharded(folder, contents, weights, moments, self.world)

    def recall(self, optimizer: Optimizers, folder: Path) -> None:
        """Restore the optimizer state of a checkpoint.

        From a sharded checkpoint each process reads only its own shards.

        Args:
            optimizer: a new optimizer of the model.
            folder: the checkpoint.

        Raises:
            InputError: the checkpoint is damaged or belongs to another model.
        """
        if is_sharded(folder) and self.spread_weights:
            templates = state_like(optimizer, self.model)
            tensors = load_sharded(folder / "optimizer", templates, self.world)
        else:
            tensors = tensors_in(folder, "optimizer")
        load_optimizer_tensors(optimizer, self.model, tensors)

    @contextmanager
    def evaluated(self) -> Iterator[EvaluatedModel]:
        """Yield the model in evaluation mode; all processes must call this together."""
        sharded = self._loss_module if isinstance(self._loss_module, FSDPModule) else None
        self.model.eval()
        if sharded is not None:  # what is outside of the layers, which are gathered one by one
            # Without an update before, FSDP would take the first layer that runs for its root.
            sharded._get_fsdp_state()._lazy_init()  # noqa: SLF001 - there is no public way
            sharded.unshard()
        try:
            yield EvaluatedModel(self)
        finally:
            if sharded is not None:
                sharded.reshard()
            self.model.train()


SMALLEST = 1e-4
"""Scale below which a run stops: then an overflow has another cause than the scale."""


class LossScaling:
    """Scale of the loss, which changes nothing in float32 and bfloat16.

    Fused optimizers (adam, adamw, sgd) skip an update on the device; before an update of the
    others the host waits for the device.
    """

    def __init__(self, placement: RunDevice, state: RunState) -> None:
        """Start with torch's scale, or continue with the scale of a checkpoint."""
        self.enabled = placement.dtype == torch.float16
        self._scaler = torch.amp.GradScaler(placement.device.type, enabled=self.enabled)
        self._skipped = torch.tensor(state.skipped, device=placement.device)
        if self.enabled and state.loss_scale:
            self._scaler.load_state_dict(state.loss_scale)

    def state(self) -> dict[str, Any]:
        """Return its part of the state of a run; on an accelerator, this waits for the device."""
        if not self.enabled:
            return {}
        return {"loss_scale": self._scaler.state_dict(), "skipped": int(self._skipped)}

    def report(self) -> dict[str, Any]:
        """Return what metrics.jsonl reports: the scale, and how many updates were skipped."""
        if not self.enabled:
            return {}
        return {"loss_scale": self._scaler.get_scale(), "skipped_updates": int(self._skipped)}

    def summary(self) -> str:
        """Return a line for the log about skipped updates, or ""."""
        if not (skipped := int(self._skipped)):
            return ""
        return f"{skipped} updates were skipped because a gradient overflowed float16"

    def scaled(self, loss: Tensor) -> Tensor:
        """Return the loss times the scale, for the backward pass."""
        return self._scaler.scale(loss)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients by the scale; call it before gradients are clipped."""
        if self.enabled:
            self._scaler.unscale_(optimizer)

    def counted(self, norm: Tensor) -> Tensor:
        """Count the update as skipped if a gradient overflowed.

        Args:
            norm: Euclidean norm of all gradients, which is not finite if one is not.

        Returns:
            The norm; 0 in place of one that is not finite.
        """
        if not self.enabled:
            return norm
        finite = torch.isfinite(norm)
        self._skipped += ~finite
        return torch.where(finite, norm, torch.zeros_like(norm))

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Update the weights unless a gradient overflowed, and adjust the scale."""
        self._scaler.step(optimizer)
        self._scaler.update()

    def refuse_too_small(self) -> None:
        """Stop a run whose gradients overflow at any scale.

        Raises:
            InputError: the scale is below `SMALLEST`.
        """
        if self.enabled and self._scaler.get_scale() < SMALLEST:
            raise InputError(
                "gradients overflow float16 at every scale of the loss;"
                f" {int(self._skipped)} updates were skipped",
                location="/precision",
                help="set 'precision' to 'float32', or to 'bfloat16' if the device has it",
            )
