"""The length penalty, which makes hypotheses of different lengths comparable."""

from __future__ import annotations

import torch
from torch import Tensor

from ..settings import Penalty


def length_penalty(length: Tensor | int, alpha: float, form: Penalty = "gnmt") -> Tensor:
    """Return the length penalty, which divides log P; `length` counts `eos`.

    `gnmt`: ((5 + length) / 6)^alpha; `length`: length^alpha; `none`: 1.

    Source: Wu et al. 2016, section 7, https://arxiv.org/abs/1609.08144, without the
    coverage penalty.
    """
    lengths = torch.as_tensor(length, dtype=torch.float32)
    if form == "none":
        return torch.ones_like(lengths)
    return (lengths if form == "length" else (5.0 + lengths) / 6.0) ** alpha
