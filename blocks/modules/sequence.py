"""Sequence: modules that make a sequence longer or shorter.

Axes: B sequences, T positions, N learned vectors, D width of the model.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Prepend(nn.Module):
    """Learned vectors before a sequence.

    Source: Devlin et al. 2019, section 3; Dosovitskiy et al. 2021, section 3.1.
    """

    def __init__(self, d_model: int, count: int) -> None:
        """Make the vectors, N x D."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, d_model))

    def initialize(self, generator: torch.Generator) -> None:
        """Draw from N(0, 1/D), as embeddings are."""
        nn.init.normal_(self.weight, std=self.weight.size(1) ** -0.5, generator=generator)

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """Put the vectors before x [B, T, D].

        Args:
            x: the sequence.
            keep: [B, T], true where it may be read.

        Returns:
            [B, N + T, D], and with `keep` the mask that goes with it.
        """
        before = self.weight.to(x.dtype).expand(x.size(0), -1, -1)
        y = torch.cat([before, x], 1)
        if keep is None:
            return y
        return y, torch.cat([keep.new_ones(x.size(0), self.weight.size(0)), keep], 1)
