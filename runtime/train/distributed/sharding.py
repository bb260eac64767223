"""Functions on tensors that may be sharded: gathering, sharding, gradient clipping.

A weight is a plain tensor, equal on every process, or a DTensor of which each process holds a
shard.  All processes must call these functions together.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

from ....graphs.ir.block_type import Division
from ....graphs.passes.parallel import maps_of
from ....specs.findings import InputError
from ....specs.regular_files import DamagedError
from ...checkpoint.manifest import write_part
from ...checkpoint.saving import Contents, finish, new_folder
from .world import World


def full_tensors(tensors: Mapping[str, Tensor], *, gather: bool) -> dict[str, Tensor]:
    """Gather sharded tensors.

    Args:
        tensors: must have the same names in the same order on all processes.
        gather: whether to return them on this process; otherwise the result is empty.
    """
    gathered = {}
    for name, tensor in tensors.items():
        full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if gather:
            gathered[name] = full.detach()
    return gathered


def shards_like(full: Tensor, like: Tensor) -> Tensor:
    """Shard a tensor like another one; return it unchanged if the other one is not sharded.

    Every process must have the full tensor: nothing is communicated.
    """
    if not isinstance(like, DTensor):
        return full
    on_device = full.to(like.device_mesh.device_type)
    return distribute_tensor(on_device, like.device_mesh, like.placements, src_data_rank=None)


def local_shard(tensor: Tensor) -> Tensor:
    """Return the local shard of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def clip(parameters: Iterable[nn.Parameter], limit: float | None, world: World) -> Tensor:
    """Scale gradients in place so that their common norm is at most `limit`.

    Like `clip_gradient`, but also for sharded gradients: the squared norm of each shard is
    weighted by one over the number of processes that hold the same shard.

    Args:
        parameters: parameters without a gradient are skipped.
        limit: maximum Euclidean norm of all gradients together; None only measures.
        world: the processes.

    Returns:
        The norm before scaling, a scalar tensor, equal on every process.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    square = torch.zeros((), device=world.device)
    for gradient in gradients:
        share = _parts(gradient) / world.size
        square = square + share * torch.linalg.vector_norm(local_shard(gradient)).square().float()
    dist.all_reduce(square)
    norm = square.sqrt()
    if limit is not None:
        scale = torch.clamp(limit / (norm + 1e-6), max=1.0)
        torch._foreach_mul_([local_shard(gradient) for gradient in gradients], scale)
    return norm


def _parts(tensor: Tensor) -> int:
    """Return the number of different shards of a tensor."""
    if not isinstance(tensor, DTensor):
        return 1
    mesh = tensor.device_mesh
    return prod(
        mesh.size(axis)
        for axis, placement in enumerate(tensor.placements)
        if not placement.is_replicate()
    )


_APART = 0x85EBCA6B
"""Odd, so that the dropout of the processes of a group differs."""


def divide(model: nn.Module, blocks: Mapping[str, Division], mesh: DeviceMesh) -> None:
    """Partition a model over the processes of a mesh, in place.

    Args:
        model: equal on all processes.
        blocks: the division of each partitioned block, by the path of its module.
        mesh: one-dimensional mesh of the processes that share each block.
    """
    styles: dict[str, ParallelStyle] = {
        path: ColwiseParallel() if way == "columns" else RowwiseParallel()
        for path, way in maps_of(blocks).items()
    }
    parallelize_module(model, mesh, styles)
    for number, (path, division) in enumerate(blocks.items()):
        block = model.get_submodule(path)
        for name in division.counted:
            setattr(block, name, division.parts[name] // mesh.size())
        if division.drops:
            _drop_apart(block, number * mesh.size() + mesh.get_local_rank())


def _drop_apart(block: nn.Module, number: int) -> None:
    """Give each shard of a partitioned block its own dropout.

    Outside the block all processes of the group must have the same dropout, so the state of
    the random number generators is restored afterwards.
    """
    forks: list[Any] = []

    def enter(module: nn.Module, _: Any) -> None:
        if module.training:
            device = next(module.parameters()).device
            devices = [device.index or 0] if device.type == "cuda" else []
            fork = torch.random.fork_rng(devices)
            fork.__enter__()
            forks.append(fork)
            torch.manual_seed((torch.initial_seed() + (number + 1) * _APART) % (1 << 63))

    def leave(*_: Any) -> None:
        if forks:
            forks.pop().__exit__(None, None, None)

    block.register_forward_pre_hook(enter)
    block.register_forward_hook(leave, always_call=True)


def save_sharded(
    folder: Path,
    contents: Contents,
    weights: Mapping[str, Tensor],
    moments: Mapping[str, Tensor],
    world: World,
) -> None:
    """Write a sharded checkpoint; all processes must call this.

    Args:
        folder: must be on a file system that all processes share.
        contents: contents of the checkpoint except the tensors.
        weights: weights, as sharded on this process.
        moments: optimizer state, as sharded on this process.
        world: the processes.

    Raises:
        InputError: the disk is full or the folder cannot be written.
    """
    try:
        with world.main_process_first():
            partial = (
                new_folder(folder) if world.is_main_process else folder.with_name(_hidden(folder))
            )
        _write(partial / "weights", weights, world)
        _write(partial / "optimizer", moments, world)
        world.wait()
        write_part(partial, world.rank, world.size)
        world.wait()
        if world.is_main_process:
            finish(partial, folder, contents)
    except (OSError, SafetensorError, CheckpointException) as error:
        raise InputError(
            f"cannot write the checkpoint: {error}",
            location=str(folder),
            help="free disk space and use --resume; earlier checkpoints are complete",
        ) from error


def _hidden(folder: Path) -> str:
    return f".{folder.name}.partial"


def _write(folder: Path, tensors: Mapping[str, Tensor], world: World) -> None:
    """Write shards; a scalar is written as a vector of size 1, which can have an offset."""
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    shards: dict[str, Any] = {n: t.reshape(1) if t.dim() == 0 else t for n, t in tensors.items()}
    with warnings.catch_warnings():
        if world.size == 1:  # torch warns that there is only one process
            warnings.simplefilter("ignore", UserWarning)
        save(shards, storage_writer=writer, no_dist=world.size == 1)


def load_sharded(folder: Path, like: Mapping[str, Tensor], world: World) -> dict[str, Tensor]:
    """Read tensors of a sharded checkpoint; all processes must call this.

    The number of processes may differ from the number that wrote the checkpoint.

    Args:
        folder: folder `weights` or `optimizer` of a checkpoint.
        like: tensors with the names, shapes and sharding of the result; not changed.
        world: the processes.

    Raises:
        InputError: a tensor is missing, or a file is damaged.
    """
    tensors: dict[str, Any] = {
        name: torch.empty_like(t.reshape(1) if t.dim() == 0 else t) for name, t in like.items()
    }
    try:
        reader = HuggingFaceStorageReader(str(folder))
        load(tensors, storage_reader=reader, no_dist=world.size == 1)
    except (OSError, SafetensorError, ValueError, KeyError, CheckpointException) as error:
        raise DamagedError(
            f"the shards are damaged, cut off or belong to another graph: {error}",
            location=str(folder),
            help="use an older checkpoint of the run",
        ) from error
    return {name: t.reshape(()) if like[name].dim() == 0 else t for name, t in tensors.items()}
