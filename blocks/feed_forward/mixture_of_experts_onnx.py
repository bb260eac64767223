"""Mixture of experts without sorting, for the ONNX export.

Axes: N positions, M pairs of a position and an expert, P pairs of one expert, D width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def experts_in_turn(module: Any, x_ND: Tensor, expert_M: Tensor, count_E: Tensor) -> Tensor:  # noqa: ARG001
    """Return what each position's expert makes of it, [M, D]: each expert maps rows of its own."""
    x_MD = x_ND.repeat(module.top_k, 1)
    y_MD = torch.zeros_like(x_MD)
    for expert in range(module.experts):
        place_P = (expert_M == expert).nonzero()[:, 0]
        y = x_MD[place_P] @ module.inner[expert]
        if module.inner_bias is not None:
            y = y + module.inner_bias[expert]
        y = module.activation(y) @ module.outer[expert]
        if module.outer_bias is not None:
            y = y + module.outer_bias[expert]
        y_MD = y_MD.index_copy(0, place_P, y)
    return y_MD
