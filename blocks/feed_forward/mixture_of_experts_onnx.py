"""Mixture of experts without sorting, for the ONNX export.

Axes: N positions, E experts, M assignments of positions to experts, P assignments of one
expert, D width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .feed_forward_module import through_gate


def experts_in_turn(module: Any, x_ND: Tensor, expert_M: Tensor, count_E: Tensor) -> Tensor:  # noqa: ARG001
    """Return the output of the assigned expert for each assignment, [M, D], expert by expert."""
    x_MD = x_ND.repeat(module.top_k, 1)
    y_MD = torch.zeros_like(x_MD)
    for expert in range(module.experts):
        index_P = (expert_M == expert).nonzero()[:, 0]
        x_PD = x_MD[index_P]
        y = _mapped(x_PD, module.inner, module.inner_bias, expert)
        if module.gate is None:
            y = module.activation(y)
        else:
            gate = _mapped(x_PD, module.gate, module.gate_bias, expert)
            y = through_gate(y, gate, module.activation, module.limit, module.offset)
        y = _mapped(y, module.outer, module.outer_bias, expert)
        y_MD = y_MD.index_copy(0, index_P, y)
    return y_MD


def _mapped(x_PI: Tensor, weight_EIO: Tensor, bias_EO: Tensor | None, expert: int) -> Tensor:
    """Return the linear map of one expert."""
    y_PO = x_PI @ weight_EIO[expert]
    return y_PO if bias_EO is None else y_PO + bias_EO[expert]
