"""Recurrent networks as ONNX operators, for the ONNX export.

Axes: B sequences, T positions, D input width, H state width, G vectors that a cell computes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .recurrent_module import GRU, LSTM, RNN

_OPERATORS: dict[type[nn.Module], tuple[str, tuple[int, ...], dict[str, int]]] = {
    RNN: ("RNN", (0,), {}),
    GRU: ("GRU", (1, 0, 2), {"linear_before_reset": 1}),
    LSTM: ("LSTM", (0, 3, 1, 2), {}),
}
"""ONNX operator, torch's gate indices in the order of ONNX, and attributes, by module class."""


def scan(module: Any, x_BTD: Tensor, weights: list[Tensor]) -> Tensor:
    """Run a recurrent network over x from a state of zeros as one operator; return [B, T, H].

    Source: https://onnx.ai/onnx/operators/onnx__LSTM.html, with GRU and RNN next to it.
    """
    kind = next(kind for kind in type(module).__mro__ if kind in _OPERATORS)
    operator, order, attributes = _OPERATORS[kind]

    def arranged(weight: Tensor) -> Tensor:
        """Return [G * H, ...] as [1, G * H, ...], with the gates in the order of ONNX."""
        gates = weight.unflatten(0, (len(order), -1))
        return torch.cat([gates[index] for index in order])[None]

    inputs = [x_BTD.transpose(0, 1), arranged(weights[0]), arranged(weights[1])]
    if module.bias:
        inputs.append(torch.cat([arranged(bias) for bias in weights[2:]], 1))
    batch, length = x_BTD.shape[:2]
    y_T1BH = torch.onnx.ops.symbolic(
        operator,
        inputs,
        {"hidden_size": module.d_hidden, **attributes},
        dtype=x_BTD.dtype,
        shape=(length, 1, batch, module.d_hidden),
    )
    return y_T1BH[:, 0].transpose(0, 1)
