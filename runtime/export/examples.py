"""Random example inputs of a graph, for comparing two forms of a model."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ...graphs.ir.dims import evaluate
from ...graphs.ir.graph import Graph
from ...graphs.ir.value_type import ValueType


def sizes_for(graph: Graph, *, batch: int, length: int) -> dict[str, int]:
    """Return axis sizes: `batch` for batch axes, increasing lengths for other axes."""
    sizes: dict[str, int] = {}
    for place, (axis, kind) in enumerate(graph.spec.axes.items()):
        sizes[axis] = batch if kind == "batch" else length + place
    return sizes


def example_inputs(graph: Graph, sizes: Mapping[str, int], *, seed: int = 1) -> dict[str, Tensor]:
    """Return random inputs; masks exclude the last position of every other row.

    Args:
        graph: the graph that takes the inputs.
        sizes: sizes of its axes.
        seed: random seed.

    Raises:
        ValueError: the graph has an input of an unsupported kind.
    """
    generator = torch.Generator().manual_seed(seed)
    return {name: _value(type_, sizes, generator) for name, type_ in graph.inputs.items()}


def _value(type_: ValueType, sizes: Mapping[str, int], generator: torch.Generator) -> Tensor:
    shape = [evaluate(axis, sizes) for axis in type_.axes]
    if type_.kind in {"f", "bias", "score"}:
        return torch.randn(shape, generator=generator)
    if type_.kind in {"ids", "label"}:
        return torch.randint(evaluate(type_.size or 0, sizes), shape, generator=generator)
    if type_.kind == "mask":
        rows = torch.arange(math.prod(shape[:-1])).view(shape[:-1])
        short = rows % 2 if shape[-1] > 1 else rows * 0
        return torch.arange(shape[-1]) < shape[-1] - short[..., None]
    if type_.kind == "len":
        longest = min(size for axis, size in sizes.items() if size > 1)
        return torch.randint(1, longest + 1, shape, generator=generator)
    if type_.kind == "pos":
        return torch.arange(shape[-1]).expand(shape)
    msg = f"cannot make an example input of kind '{type_.kind}'"
    raise ValueError(msg)
