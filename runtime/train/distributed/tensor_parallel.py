"""Tensor plan: which maps of a graph are divided among processes, and how.

The blocks say it (`BlockType.division`): a block of heads or of a wide middle is divided
by columns where it enters and by rows where it leaves.  All else is done by each process
of the group, alike.

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

from ....graphs.ir.block_type import Division
from ....graphs.ir.graph import Graph
from ....graphs.ir.traverse import owned_parts
from ....specs.findings import InputError

_APART = 0x85EBCA6B
"""Odd, so that what processes of one group drop differs."""


@dataclass(slots=True)
class Plan:
    """Which blocks are divided."""

    blocks: dict[str, Division] = field(default_factory=dict)
    """Path of a block's module to how it is divided."""
    whole: dict[str, str] = field(default_factory=dict)
    """Path of a block that could be divided to why it is not."""

    def maps(self) -> dict[str, str]:
        """Return `columns` or `rows` by the path of a linear map."""
        found: dict[str, str] = {}
        for path, division in self.blocks.items():
            found |= {f"{path}.{name}": "columns" for name in division.enter}
            found |= {f"{path}.{name}": "rows" for name in division.leave}
        return found


def plan(graph: Graph, processes: int) -> Plan:
    """Return how the blocks of a graph are divided.

    A block stays whole where its parts do not divide evenly, or where one of its
    weights is tied to another.

    Args:
        graph: the model.
        processes: how many share one block.
    """
    found = Plan()
    tied = {path for group in graph.ties for path in group}
    for path, _, part in owned_parts(graph.root):
        division = part.block.division(part.arguments)
        if division is None:
            continue
        uneven = [f"{n} {name}" for name, n in division.parts.items() if n % processes]
        maps = (f"{path}.{name}." for name in (*division.enter, *division.leave))
        if uneven:
            found.whole[path] = f"{uneven[0]} do not divide among {processes}"
        elif any(weight.startswith(begin) for begin in maps for weight in tied):
            found.whole[path] = "a weight is tied"
        else:
            found.blocks[path] = division
    return found


def divide(model: nn.Module, graph: Graph, mesh: DeviceMesh) -> int:
    """Divide a whole model among the processes of a mesh, in place; return how many blocks.

    Args:
        model: built from the graph, alike on all of them.
        graph: says what can be divided.
        mesh: one axis: the processes that share each block.

    Raises:
        InputError: no block can be divided.
    """
    made = plan(graph, mesh.size())
    if not made.blocks:
        why = next(iter(made.whole.items()), None)
        reason = f": {why[0]}: {why[1]}" if why else ""
        raise InputError(
            f"no block of '{graph.name}' can be divided among {mesh.size()} processes{reason}",
            place="/parallel/tensor",
            help="set a number that divides its heads and d_ff, or 1",
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
    share = getattr(module, "dropout", 0.0)
    return isinstance(share, float) and share > 0.0


def _drop_apart(block: nn.Module, number: int) -> None:
    """Let a divided block drop other numbers than its other parts do.

    Outside it all processes of the group must drop the same, so what it draws leaves no
    trace in their generators.
    """
    before: list[Any] = []

    def enter(module: nn.Module, _: Any) -> None:
        if module.training:
            device = next(module.parameters()).device
            devices = [device.index or 0] if device.type == "cuda" else []
            kept = torch.random.fork_rng(devices)
            kept.__enter__()
            before.append(kept)
            torch.manual_seed((torch.initial_seed() + (number + 1) * _APART) % (1 << 63))

    def leave(*_: Any) -> None:
        if before:
            before.pop().__exit__(None, None, None)

    block.register_forward_pre_hook(enter)
    block.register_forward_hook(leave, always_call=True)
