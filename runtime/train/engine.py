"""Engine: a model that one process or many train, with PyTorch's own means.

`ddp`: each process has all weights, and gradients are added up while the backward pass
goes on.  `fsdp`: weights, gradients and what the optimizer remembers are spread over the
processes, template by template as the graph repeats them, and the rest as one.  On top,
`tensor` processes divide heads and widths of each block that can be divided.

Not run anywhere yet: CUDA with NCCL.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from ...graphs.ir.graph import Graph
from ...specs.findings import InputError
from ..checkpoint.checkpoint import Contents, is_sharded, set_weights, tensors_in, weights_of
from ..codegen.build import build_empty, program_of
from .distributed.checkpoint import load_sharded, save_sharded
from .distributed.dtensor import apart, clip, divided_as, here, whole
from .distributed.settings import ParallelSettings
from .distributed.tensor_parallel import divide
from .distributed.world import World
from .loss import LossSums
from .optimize import clip_gradient, load_optimizer_tensors, optimizer_tensors

if TYPE_CHECKING:
    from ..data.batches import Batch
    from .context import Task

_NAMES = inspect.signature(DistributedDataParallel).parameters
_NO_BUFFERS: dict[str, Any] = {
    "forward_sync_buffers" if "forward_sync_buffers" in _NAMES else "broadcast_buffers": False
}
"""Buffers are not copied before each forward pass: ours never change.  torch renamed it."""


class LossModule(nn.Module):
    """A model and its task as one module: from a batch to what it lost.

    Those who spread weights put their work at the entrance and the exit of a module, so all
    that reads weights must happen inside one.
    """

    def __init__(self, model: nn.Module, task: Task) -> None:
        """Keep both."""
        super().__init__()
        self.model, self.task = model, task

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Return the sums of a batch, by name; what is not there is left out."""
        sums = self.task.loss(self.model, batch)
        found = {"loss": sums.loss, "nll": sums.nll, "tokens": sums.tokens}
        return found if sums.auxiliary is None else {**found, "auxiliary": sums.auxiliary}


class Engine:
    """The model of a training, as this process holds it."""

    def __init__(self, model: nn.Module, task: Task, graph: Graph, world: World) -> None:
        """Hold a whole model; `spread` divides it."""
        self.model, self.graph, self.world = model, graph, world
        self._loss_module: nn.Module = LossModule(model, task)
        self._replica: nn.Module | None = None
        self.spread_weights = False
        """Whether a process holds parts of weights only."""

    def spread(self, settings: ParallelSettings) -> str:
        """Divide the work as a run says; return what was done, in words.

        Call it once the weights are those to begin with, and before an optimizer is made.

        Raises:
            InputError: nothing can be divided, or two ways do not go together.
        """
        mesh = self.world.mesh
        if mesh is None:
            return ""
        wanted, tensor = settings.data, mesh["tensor"]
        if wanted == "ddp" and tensor.size() > 1:
            raise InputError(
                "ddp needs all weights on every process, and 'tensor' divides them",
                place="/parallel/data",
                help="set parallel.data=fsdp, or leave it out",
            )
        words = [f"{self.world.size} processes"]
        if tensor.size() > 1:
            # It tells at every gathering how it goes about what fsdp and 'tensor' both divided.
            logging.getLogger("torch.distributed.tensor").setLevel(logging.ERROR)
            count = divide(self.model, self.graph, tensor)
            self.spread_weights = True
            words.append(f"{count} blocks divided among {tensor.size()}")
        if wanted == "fsdp" or (wanted == "auto" and tensor.size() > 1):
            if self.world.data_parallel_size > 1 or tensor.size() == 1:
                count = self._shard()
                self.spread_weights = True
                words.append(
                    f"fsdp over {self.world.data_parallel_size}, {count} layers by themselves"
                )
        else:
            self._loss_module = DistributedDataParallel(
                self._loss_module, gradient_as_bucket_view=True, **_NO_BUFFERS
            )
            words.append("ddp")
        return ", ".join(words)

    def _shard(self) -> int:
        """Shard each copy of a repeated template by itself, then the rest; return how many."""
        if self.world.mesh is None:
            return 0
        mesh = self.world.mesh["data"]
        templates = program_of(self.model).templates
        layers = [m for m in self.model.modules() if type(m).__name__ in templates]
        alone = [layer for layer in layers if not _shares(layer, self.model)]
        for layer in reversed(alone):  # those inside another one first
            fully_shard(layer, mesh=mesh)
        fully_shard(self._loss_module, mesh=mesh, reshard_after_forward=False)
        return len(alone)

    def loss(self, batch: Batch) -> LossSums:
        """Return the summed loss of a batch."""
        return LossSums(**self._loss_module(batch))

    def syncing(self, *, last: bool) -> AbstractContextManager[Any]:
        """Return the context of one batch; gradients are exchanged in an update's last only."""
        if isinstance(self._loss_module, DistributedDataParallel):
            return nullcontext() if last else self._loss_module.no_sync()
        if isinstance(self._loss_module, FSDPModule):
            self._loss_module.set_requires_gradient_sync(last)
            self._loss_module.set_is_last_backward(last)
        return nullcontext()

    @property
    def in_step(self) -> bool:
        """Whether all processes must run as many batches: each fetches weights of the others."""
        return isinstance(self._loss_module, FSDPModule)

    def clip(self, limit: float | None) -> Tensor:
        """Scale gradients to a norm of at most `limit`; return the norm before."""
        if self.spread_weights:
            return clip(self.model.parameters(), limit, self.world)
        return clip_gradient(self.model.parameters(), limit)

    def weights(self) -> dict[str, Tensor]:
        """Return every parameter once, whole, on the leading process; nothing elsewhere."""
        return whole(weights_of(self.model, self.graph), wanted=self.world.is_main_process)

    def moments(self, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
        """Return what the optimizer remembers, likewise."""
        return whole(optimizer_tensors(optimizer, self.model), wanted=self.world.is_main_process)

    def save(self, folder: Path, contents: Contents, optimizer: torch.optim.Optimizer) -> None:
        """Write a checkpoint of which each process writes a part."""
        weights = weights_of(self.model, self.graph)
        moments = optimizer_tensors(optimizer, self.model)
        save_sharded(folder, contents, weights, moments, self.world)

    def prepare(self, optimizer: torch.optim.Optimizer) -> None:
        """Make a new optimizer fit for weights that are spread.

        Raises:
            InputError: it looks at more than one number of a weight at a time.
        """
        if not self.spread_weights:
            return
        if not isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW):
            raise InputError(
                f"{type(optimizer).__name__} looks at whole weights, and here they are spread",
                place="/optimizer/type",
                help="use adam or adamw, or parallel.data=ddp with tensor=1",
            )
        optimizer.param_groups[:] = apart(optimizer.param_groups)

    def recall(self, optimizer: torch.optim.Optimizer, folder: Path) -> None:
        """Put back what the optimizer remembered when a checkpoint was written.

        Of one with shards a process reads its own part alone.

        Raises:
            InputError: it is damaged, or of another model.
        """
        parameters = dict(self.model.named_parameters())
        if is_sharded(folder) and self.spread_weights:
            wanted = _like_moments(parameters)
            found = load_sharded(folder / "optimizer", wanted, self.world)
            load_optimizer_tensors(optimizer, self.model, found)
            return
        moments = tensors_in(folder, "optimizer")
        spread = {}
        for key, tensor in moments.items():
            name, _, part = key.rpartition(".")
            like = parameters.get(name)
            if part == "step":
                spread[key] = tensor.reshape(())
            elif like is not None and tensor.shape == like.shape:
                spread[key] = divided_as(tensor, like)
            else:
                spread[key] = tensor
        load_optimizer_tensors(optimizer, self.model, spread)

    @contextmanager
    def evaluated(self) -> Iterator[nn.Module | None]:
        """Give the leading process a whole model in evaluation mode, and the others nothing."""
        if not self.spread_weights:
            self.model.eval()
            yield self.model if self.world.is_main_process else None
            self.model.train()
            return
        weights = self.weights()
        if not self.world.is_main_process:
            yield None
            return
        if self._replica is None:
            self._replica = build_empty(self.graph, device=self.world.device)
        set_weights(self._replica, weights, self.graph, "the training")
        yield self._replica.eval()


def _like_moments(parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """Return tensors as Adam remembers them."""
    found: dict[str, Tensor] = {}
    for name, parameter in parameters.items():
        if parameter.requires_grad:
            found |= {f"{name}.exp_avg": parameter.detach()}
            found |= {f"{name}.exp_avg_sq": parameter.detach()}
            found[f"{name}.step"] = torch.zeros((), device=here(parameter).device)
    return found


def _shares(layer: nn.Module, model: nn.Module) -> bool:
    """Say whether a layer has a parameter that is another module's too."""
    own = {id(p) for p in layer.parameters()}
    inside = {id(m) for m in layer.modules()}
    return any(
        id(p) in own
        for module in model.modules()
        if id(module) not in inside
        for p in module.parameters(recurse=False)
    )
