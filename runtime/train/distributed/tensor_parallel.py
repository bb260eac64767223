"""Tensor parallelism: partitions the linear maps of blocks over processes.

The pass `parallel` says which blocks: their input maps are partitioned by columns and their output
maps by rows, along the heads or the inner width.  Everything else is computed by each process of
the group.

Source: Shoeybi et al. 2019 (Megatron-LM), section 3, https://arxiv.org/abs/1909.08053
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

from ....graphs.ir.block_type import Division
from ....graphs.passes.parallel import maps_of

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
