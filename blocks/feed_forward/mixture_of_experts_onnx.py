"""Mixture of experts without sorting, for the ONNX export.

Axes: N positions, E experts, M assignments of positions to experts, P assignments of one
expert, D width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def experts_in_turn(module: Any, x_ND: Tensor, expert_M: Tensor, count_E: Tensor) -> Tensor:  # noqa: ARG001
    """Return the output of the assigned expert for each assignment, [M, D], expert by expert."""
    x_MD = x_ND.repeat(module.top_k, 1)
    y_MD = torch.zeros_like(x_MD)
    for expert in range(module.experts):
        index_P = (expert_M == expert).nonzero()[:, 0]
        y = x_MD[index_P] @ module.inner[expert]
        if module.inner_bias is not None:
            y = y + module.inner_bias[expert]
        y = module.activation(y) @ module.outer[expert]
        if module.outer_bias is not None:
            y = y + module.outer_bias[expert]
        y_MD = y_MD.index_copy(0, index_P, y)
    return y_MD
