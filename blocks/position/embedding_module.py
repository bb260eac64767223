"""Embedding: ids to vectors.  Axes: any leading ones, D width of the model."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Embedding(nn.Module):
    """A learned vector for each id, multiplied by sqrt(D) when asked.

    Source: Vaswani et al. 2017, section 3.4.
    """

    def __init__(
        self, vocab: int, d_model: int, scale: str = "none", *, frozen: bool = False
    ) -> None:
        """Make the table, vocab x d_model."""
        super().__init__()
        self.frozen = frozen
        self.weight = nn.Parameter(torch.empty(vocab, d_model))
        self.factor = d_model**0.5 if scale == "sqrt" else 1.0

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """Take what is assigned as the table, a tied tensor too, and freeze it when asked."""
        if self.frozen and param is not None:
            param.requires_grad = False
        super().register_parameter(name, param)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw from N(0, 1/D), so that scaled vectors have unit variance."""
        nn.init.normal_(self.weight, std=self.weight.size(1) ** -0.5, generator=generator)

    def forward(self, ids: Tensor) -> Tensor:
        """Look up ids [...] as vectors [..., D]."""
        return F.embedding(ids, self.weight) * self.factor
