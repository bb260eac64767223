"""Outputs of a model that decodes, computed step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .....plugin import Capacity, Graph

SINGLE = 8
"""Maximum number of positions that are computed one by one."""


@torch.no_grad()
def outputs_by_steps(
    graph: Graph, model: nn.Module, inputs: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the outputs along the step axis, computed as in decoding; none without such an axis.

    The first half of the positions is read at once, as a prompt is, and the next ones one by one.

    Args:
        graph: graph of the model.
        model: the model, in evaluation mode.
        inputs: inputs of its parallel pass; padding is behind the other positions.
    """
    axis = graph.step_axis
    if axis is None:
        return {}
    moving = {
        name: type_.axes.index(axis) for name, type_ in graph.inputs.items() if axis in type_.axes
    }
    first = inputs[next(iter(moving))]
    rows, length = first.size(0), first.size(moving[next(iter(moving))])
    fixed = {name: value for name, value in inputs.items() if name not in moving}
    stepping: Any = model
    parameter = next(model.parameters())
    state = stepping.begin(Capacity(rows, 1, length, parameter.dtype, parameter.device), **fixed)
    parts: list[Mapping[str, Tensor]] = []
    position, prompt = 0, length // 2
    while position < length:
        count = prompt if position < prompt else 1
        count = count if len(parts) <= SINGLE else length - position
        values = {name: inputs[name].narrow(dim, position, count) for name, dim in moving.items()}
        parts.append(stepping.step(**values, state=state, position=position))
        position += count
    along = {n: type_.axes.index(axis) for n, type_ in graph.outputs.items() if axis in type_.axes}
    return {name: torch.cat([part[name] for part in parts], dim) for name, dim in along.items()}
