"""Token embedding.  Axes: any leading ones, D model width."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Embedding(nn.Module):
    """Look up a learned vector for each id, optionally multiplied by sqrt(D).

    Source: Vaswani et al. 2017, section 3.4.
    """

    def __init__(
        self, vocab: int, d_model: int, scale: str = "none", *, frozen: bool = False
    ) -> None:
        """Create the table [vocab, D]."""
        super().__init__()
        self.frozen = frozen
        self.weight = nn.Parameter(torch.empty(vocab, d_model))
        self.factor = d_model**0.5 if scale == "sqrt" else 1.0

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """Register a parameter, which may be a tied tensor, and freeze it if `frozen` is set."""
        if self.frozen and param is not None:
            param.requires_grad = False
        super().register_parameter(name, param)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw from N(0, 1/D), so that scaled vectors have unit variance."""
        nn.init.normal_(self.weight, std=self.weight.size(1) ** -0.5, generator=generator)

    def forward(self, ids: Tensor) -> Tensor:
        """Look up the vectors [..., D] of ids [...]."""
        return F.embedding(ids, self.weight) * self.factor
