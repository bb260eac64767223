"""Span scores computed for all pairs of boundaries at once, for the ONNX export.

Axes: B sequences, T positions, F boundaries (T + 1), H hidden width, L labels.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def all_spans(module: Any, u_BFH: Tensor) -> Tensor:
    """Return the scores [B, T, T, L] of all spans, computed for all pairs; zeros where j < i."""
    v_BTTH = u_BFH[:, None, 1:] - u_BFH[:, :-1, None] + module.hidden.bias
    y_BTTL: Tensor = module.out(torch.relu(module.norm(v_BTTH)))
    index_T = torch.arange(u_BFH.size(1) - 1, device=u_BFH.device)
    return y_BTTL.masked_fill((index_T[:, None] > index_T)[..., None], 0.0)
