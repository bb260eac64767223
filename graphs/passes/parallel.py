"""Parallel: which layers a training shards, and which blocks it partitions, over its processes.

Source: Shoeybi et al. 2019 (Megatron-LM), section 3, https://arxiv.org/abs/1909.08053
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from ...specs.findings import InputError
from ..ir.block_type import Division
from ..ir.execution import ParallelPlan
from ..ir.graph import Filling, Graph, Part, RepeatNode
from ..ir.traverse import owned_parts, visits


def parallelize(
    graph: Graph, *, data: Literal["auto", "ddp", "fsdp"], tensor: int, processes: int
) -> Graph:
    """Return a graph with a plan of how several processes train it.

    Args:
        graph: a checked graph.
        data: data parallelism; `auto` is `ddp`, or `fsdp` if blocks are partitioned.
        tensor: number of processes that share each partitioned block.
        processes: number of all processes; a single one needs no plan.

    Raises:
        InputError: no block can be partitioned, or the settings exclude each other.
    """
    if processes == 1:
        return graph
    if data == "ddp" and tensor > 1:
        raise InputError(
            "ddp needs all weights on every process, but 'tensor' partitions them",
            location="/parallel/data",
            help="set 'parallel.data' to 'fsdp', or leave it out",
        )
    blocks = _blocks(graph, tensor) if tensor > 1 else {}
    if data == "fsdp" or tensor > 1:
        alone = tensor > 1 and processes == tensor
        plan = ParallelPlan(None if alone else "fsdp", () if alone else layers_of(graph), blocks)
    else:
        plan = ParallelPlan("ddp")
    return replace(graph, execution=replace(graph.execution, parallel=plan))


def layers_of(graph: Graph) -> tuple[str, ...]:
    """Return the copies of repeats, without those that share a weight with something outside."""
    layers = []
    for visit in visits(graph.root, "weights"):
        shares_weights = (
            visit.kind == "name" and isinstance(visit.node, RepeatNode) and visit.node.share
        )
        if not shares_weights and visit.kind != "index":
            continue
        begin = f"{visit.module}."
        inside = ([path.startswith(begin) for path in group] for group in graph.ties)
        if not any(any(group) and not all(group) for group in inside):
            layers.append(visit.module)
    return tuple(layers)


@dataclass(slots=True)
class Divided:
    """Which blocks are partitioned, and how."""

    blocks: dict[str, Division] = field(default_factory=dict)
    """Division of each partitioned block, by the path of its module."""
    undivided: dict[str, str] = field(default_factory=dict)
    """Reason why a block that supports it is not partitioned, by the path of its module."""


def maps_of(blocks: Mapping[str, Division]) -> dict[str, str]:
    """Return `columns` or `rows` for each linear map of partitioned blocks, by its path."""
    divisions: dict[str, str] = {}
    for path, division in blocks.items():
        divisions |= {f"{path}.{name}": "columns" for name in division.enter}
        divisions |= {f"{path}.{name}": "rows" for name in division.leave}
    return divisions


def divided_blocks(graph: Graph, processes: int) -> Divided:
    """Plan how the blocks of a graph are partitioned.

    A block is not partitioned if its parts do not divide evenly, or if one of its
    weights is tied to another.

    Args:
        graph: graph of the model.
        processes: number of processes that share a block.
    """
    divided = Divided()
    tied = {path for group in graph.ties for path in group}
    for path, _, part in owned_parts(graph.root):
        division = part.division
        if division is None or not all(map(_any_heads, part.fill.values())):
            continue
        uneven = [f"{n} {name}" for name, n in division.parts.items() if n % processes]
        maps = (f"{path}.{name}." for name in (*division.enter, *division.leave))
        if uneven:
            divided.undivided[path] = f"{uneven[0]} do not divide evenly among {processes}"
        elif any(weight.startswith(begin) for begin in maps for weight in tied):
            divided.undivided[path] = "a weight is tied"
        else:
            divided.blocks[path] = replace(division, drops=part.drops)
    return divided


def _any_heads(filling: Filling) -> bool:
    """Return whether a block in a slot computes the same for any of the heads, without weights."""
    if not isinstance(filling, Part) or filling.weights() or filling.steps:
        return False
    by_head = {"heads", "groups"}.intersection(filling.signature.sized)
    return not by_head and all(map(_any_heads, filling.fill.values()))


def _blocks(graph: Graph, processes: int) -> dict[str, Division]:
    """Return the partitioned blocks.

    Raises:
        InputError: there is none.
    """
    divided = divided_blocks(graph, processes)
    if divided.blocks:
        return divided.blocks
    why = next(iter(divided.undivided.items()), None)
    reason = f": {why[0]}: {why[1]}" if why else ""
    raise InputError(
        f"no block of '{graph.name}' can be partitioned over {processes} processes{reason}",
        location="/parallel/tensor",
        help="set 'parallel.tensor' to a number that divides its heads and d_ff, or to 1",
    )
