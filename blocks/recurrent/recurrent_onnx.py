"""The recurrences as ONNX operators, for the export.

Axes: B sequences, T positions, D width in, H width of the state, G vectors that a cell computes.
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
"""The ONNX operator, the order of its gates among torch's, and its attributes."""


def scan(module: Any, x_BTD: Tensor, weights: list[Tensor]) -> Tensor:
    """Run a recurrence over x from a state of zeros, as one operator; gives [B, T, H].

    Source: https://onnx.ai/onnx/operators/onnx__LSTM.html, and GRU and RNN there.
    """
    operator, order, attributes = _OPERATORS[type(module)]

    def arranged(weight: Tensor) -> Tensor:
        """Return [G * H, ...] as [1, G * H, ...], the gates in ONNX's order."""
        gates = weight.unflatten(0, (len(order), -1))
        return torch.cat([gates[place] for place in order])[None]

    given = [x_BTD.transpose(0, 1), arranged(weights[0]), arranged(weights[1])]
    if module.bias:
        given.append(torch.cat([arranged(bias) for bias in weights[2:]], 1))
    batch, length = x_BTD.shape[:2]
    y_T1BH = torch.onnx.ops.symbolic(
        operator,
        given,
        {"hidden_size": module.d_hidden, **attributes},
        dtype=x_BTD.dtype,
        shape=(length, 1, batch, module.d_hidden),
    )
    return y_T1BH[:, 0].transpose(0, 1)
