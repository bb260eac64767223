"""Sequence: modules that make a sequence longer or shorter, or one vector.

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

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """Put the vectors before x [B, T, D].

        Args:
            x: the sequence.
            mask: [B, T], true where it may be read.

        Returns:
            [B, N + T, D], and with `mask` the mask that goes with it.
        """
        before = self.weight.to(x.dtype).expand(x.size(0), -1, -1)
        y = torch.cat([before, x], 1)
        if mask is None:
            return y
        return y, torch.cat([mask.new_ones(x.size(0), self.weight.size(0)), mask], 1)


class Pool(nn.Module):
    """One vector for a sequence.

    Source: first: Devlin et al. 2019, section 3.2; last: Radford et al. 2018, section 3.2;
    mean and max: Reimers and Gurevych 2019, section 3.
    """

    def __init__(self, kind: str) -> None:
        """Keep which vector, or what of all of them."""
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Make one vector of x [B, T, D].

        Args:
            x: the sequence.
            mask: [B, T], true where it may be read; everywhere when None.

        Returns:
            [B, D]; zeros for a row in which nothing may be read.
        """
        if mask is None:
            return self._plain(x)
        x = x.masked_fill(~mask[..., None], 0.0)
        if self.kind == "mean":
            return x.sum(1) / mask.sum(1, keepdim=True).clamp(min=1).to(x.dtype)
        if self.kind == "max":
            lowest = torch.finfo(x.dtype).min
            greatest = x.masked_fill(~mask[..., None], lowest).amax(1)
            return greatest.masked_fill(~mask.any(1, keepdim=True), 0.0)
        places_T = torch.arange(mask.size(1), device=mask.device)
        if self.kind == "first":
            chosen_B = torch.where(mask, places_T, mask.size(1) - 1).amin(1)
        else:
            chosen_B = torch.where(mask, places_T, 0).amax(1)
        return x.gather(1, chosen_B[:, None, None].expand(-1, 1, x.size(2))).squeeze(1)

    def _plain(self, x: Tensor) -> Tensor:
        """Do so for sequences of which all may be read."""
        if self.kind == "mean":
            return x.mean(1)
        if self.kind == "max":
            return x.amax(1)
        return x[:, 0] if self.kind == "first" else x[:, -1]
