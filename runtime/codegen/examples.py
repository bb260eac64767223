"""Random example inputs of a spec, for trying, comparing and measuring models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...graphs.ir.block_type import BlockType
from ...graphs.ir.graph import Graph
from ...graphs.ir.value_type import ValueType, evaluate
from ...specs.findings import InputError, did_you_mean
from ..spec.check import Source, graph_of
from .generated import program_of


def sizes_for(graph: Graph, *, batch: int = 2, length: int = 5) -> dict[str, int]:
    """Return axis sizes: `batch` for batch axes, increasing lengths for other axes."""
    sizes: dict[str, int] = {}
    for index, (axis, kind) in enumerate(graph.spec.axes.items()):
        sizes[axis] = batch if kind == "batch" else length + index
    return sizes


def example_inputs(
    spec: Source | Graph | nn.Module,
    sizes: Mapping[str, int] | None = None,
    *,
    seed: int = 1,
    device: torch.device | str | None = None,
    padding: bool = True,
    blocks: Iterable[BlockType] = (),
) -> dict[str, Tensor]:
    """Return random inputs that fit a spec or a built model.

    Args:
        spec: the result of `load`, a path, a shipped name, or a module from `build`.
        sizes: sizes of the spec's axes, such as `{"B": 8, "T": 20}`; default: 2 for batch axes,
            and a different length of at least 5 for every other axis.
        seed: seed of the random values.
        device: device of the inputs; default: that of the model's weights, or the CPU.
        padding: whether masks exclude the last position of every other row.
        blocks: block types that the spec may use besides the installed ones.

    Returns:
        Input name to tensor: ids are int64 below their size, masks bool, vectors normally
        distributed float32.

    Raises:
        InputError: `sizes` names an unknown axis or has a size below 1.
        SpecError: the spec has errors; all of them are listed.
    """
    if isinstance(spec, nn.Module):
        weight = next(spec.parameters(), None)
        if device is None and weight is not None and not weight.is_meta:
            device = weight.device
        graph = program_of(spec).graph
    else:
        graph = graph_of(spec, blocks)
    for axis, size in dict[str, Any](sizes or {}).items():
        if axis not in graph.spec.axes:
            help_ = did_you_mean(axis, graph.spec.axes)
            raise InputError(f"{graph.name} has no axis '{axis}'", location="sizes", help=help_)
        if not isinstance(size, int) or size < 1:
            raise InputError(
                f"the size of axis '{axis}' is {size!r}, not 1 or more", location="sizes"
            )
    axis_sizes = sizes_for(graph) | dict(sizes or {})
    generator = torch.Generator().manual_seed(seed)
    examples = {
        name: example_value(type_, axis_sizes, generator, padding=padding)
        for name, type_ in graph.inputs.items()
    }
    return (
        examples if device is None else {name: value.to(device) for name, value in examples.items()}
    )


def example_value(
    type_: ValueType, sizes: Mapping[str, int], generator: torch.Generator, *, padding: bool
) -> Tensor:
    """Return a random value of a type.

    Args:
        type_: the type.
        sizes: sizes of the axes.
        generator: source of the random numbers.
        padding: whether masks exclude the last position of every other row.
    """
    shape = [evaluate(axis, sizes) for axis in type_.axes]
    match type_.kind:
        case "ids" | "label":
            return torch.randint(evaluate(type_.size or 1, sizes), shape, generator=generator)
        case "mask":
            rows = torch.arange(math.prod(shape[:-1])).view(shape[:-1])
            short = rows % 2 if padding and shape[-1] > 1 else rows * 0
            return torch.arange(shape[-1]) < shape[-1] - short[..., None]
        case "len":
            # Which axis it measures is unknown, so no length exceeds the shortest axis.
            longest = min((size for size in sizes.values() if size > 1), default=1)
            if not padding:
                return torch.full(shape, min(sizes.values()))
            return torch.randint(1, longest + 1, shape, generator=generator)
        case "pos":
            return torch.arange(shape[-1]).expand(shape).contiguous()
        case _:
            return torch.randn(shape, generator=generator)
