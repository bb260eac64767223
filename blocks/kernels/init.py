"""Weight initialization of linear maps."""

from __future__ import annotations

import torch
from torch import nn


def draw_linear(generator: torch.Generator, *maps: nn.Linear) -> None:
    """Draw Xavier-uniform weights for each map, in their order; biases start at zero."""
    for linear in maps:
        nn.init.xavier_uniform_(linear.weight, generator=generator)
        if linear.bias is not None:
            nn.init.zeros_(linear.bias)
