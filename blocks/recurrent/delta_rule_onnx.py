"""The triangular systems of the delta rule without an operator that ONNX lacks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def solved(module: Any, lower: Tensor, right: Tensor) -> Tensor:
    """Return the solution of (I + lower) u = right by forward substitution.

    Args:
        module: the delta rule.
        lower: strictly lower triangular matrices, [..., C, C].
        right: right-hand sides, [..., C, W].
    """
    rows = [right[..., :1, :]]
    for index in range(1, int(module.chunk)):
        before = lower[..., index : index + 1, :index] @ torch.cat(rows, -2)
        rows.append(right[..., index : index + 1, :] - before)
    return torch.cat(rows, -2)
