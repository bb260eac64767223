"""Tensor parallelism: partitions the linear maps of blocks over processes.

The contract of a block (`BlockType.division`) says how: its input maps are partitioned by
columns and its output maps by rows, along the heads or the inner width.  Everything else is
computed by each process of the group.

Source: Shoeybi et al. 2019 (Megatron-LM), section 3, https://arxiv.org/abs/1909.08053
"""

from __future__ import annotations

from dataclasses import dataclass, field
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

from ....graphs.ir.graph import Filling, Graph, Part
from ....graphs.ir.traverse import owned_parts
from ....graphs.ir.weights.division import Division
from ....specs.findings import InputError

_APART = 0x85EBCA6B
"""Odd, so that the dropout of the processes of a group differs."""


@dataclass(slots=True)
class Plan:
    """Which blocks are partitioned, and how."""

    blocks: dict[str, Division] = field(default_factory=dict)
    """Division of each partitioned block, by the path of its module."""
    whole: dict[str, str] = field(default_factory=dict)
    """Reason why a block that supports it is not partitioned, by the path of its module."""

    def maps(self) -> dict[str, str]:
        """Return `columns` or `rows` for each partitioned linear map, by its path."""
        found: dict[str, str] = {}
        for path, division in self.blocks.items():
            found |= {f"{path}.{name}": "columns" for name in division.enter}
            found |= {f"{path}.{name}": "rows" for name in division.leave}
        return found


def plan(graph: Graph, processes: int) -> Plan:
    """Plan how the blocks of a graph are partitioned.

    A block is not partitioned if its parts do not divide evenly, or if one of its
    weights is tied to another.

    Args:
        graph: graph of the model.
        processes: number of processes that share a block.
    """
    found = Plan()
    tied = {path for group in graph.ties for path in group}
    for path, _, part in owned_parts(graph.root):
        division = part.block.division(part.arguments)
        if division is None or not all(map(_any_heads, part.fill.values())):
            continue
        uneven = [f"{n} {name}" for name, n in division.parts.items() if n % processes]
        maps = (f"{path}.{name}." for name in (*division.enter, *division.leave))
        if uneven:
            found.whole[path] = f"{uneven[0]} do not divide evenly among {processes}"
        elif any(weight.startswith(begin) for begin in maps for weight in tied):
            found.whole[path] = "a weight is tied"
        else:
            found.blocks[path] = division
    return found


def _any_heads(filling: Filling) -> bool:
    """Return whether a block in a slot computes the same for any of the heads, without weights."""
    if not isinstance(filling, Part) or filling.weights() or filling.steps:
        return False
    by_head = {"heads", "groups"}.intersection(filling.signature.sized)
    return not by_head and all(map(_any_heads, filling.fill.values()))


def divide(model: nn.Module, graph: Graph, mesh: DeviceMesh) -> int:
    """Partition a model over the processes of a mesh, in place.

    Args:
        model: model built from `graph`, equal on all processes.
        graph: its block contracts say what can be partitioned.
        mesh: one-dimensional mesh of the processes that share each block.

    Returns:
        The number of partitioned blocks.

    Raises:
        InputError: no block can be partitioned.
    """
    made = plan(graph, mesh.size())
    if not made.blocks:
        why = next(iter(made.whole.items()), None)
        reason = f": {why[0]}: {why[1]}" if why else ""
        raise InputError(
            f"no block of '{graph.name}' can be partitioned over {mesh.size()} processes{reason}",
            place="/parallel/tensor",
            help="set 'parallel.tensor' to a number that divides its heads and d_ff, or to 1",
        )
    styles: dict[str, ParallelStyle] = {
        path: ColwiseParallel() if way == "columns" else RowwiseParallel()
        for path, way in made.maps().items()
    }
    parallelize_module(model, mesh, styles)
    for number, (path, division) in enumerate(made.blocks.items()):
        block = model.get_submodule(path)
        for name in division.counted:
            setattr(block, name, division.parts[name] // mesh.size())
        if any(_drops(module) for module in block.modules()):
            _drop_apart(block, number * mesh.size() + mesh.get_local_rank())
    return len(made.blocks)


def _drops(module: nn.Module) -> bool:
    probability = getattr(module, "dropout", 0.0)
    return isinstance(probability, float) and probability > 0.0


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
