"""Modules that prepend learned vectors to a sequence or pool it into one vector.

Axes: B sequences, T positions, N learned vectors, D model width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Prepend(nn.Module):
    """Prepend learned vectors to a sequence.

    Source: Devlin et al. 2019, section 3; Dosovitskiy et al. 2021, section 3.1.
    """

    def __init__(self, d_model: int, count: int) -> None:
        """Create the vectors [N, D]."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, d_model))

    def initialize(self, generator: torch.Generator) -> None:
        """Draw from N(0, 1/D), as for token embeddings."""
        nn.init.normal_(self.weight, std=self.weight.size(1) ** -0.5, generator=generator)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """Prepend the learned vectors to x [B, T, D].

        Args:
            x: the sequence.
            mask: [B, T], true at non-padding positions.

        Returns:
            [B, N + T, D]; if `mask` is given, also the mask extended to [B, N + T].
        """
        before = self.weight.to(x.dtype).expand(x.size(0), -1, -1)
        y = torch.cat([before, x], 1)
        if mask is None:
            return y
        return y, torch.cat([mask.new_ones(x.size(0), self.weight.size(0)), mask], 1)


class Pool(nn.Module):
    """Pool a sequence into one vector.

    Source: first: Devlin et al. 2019, section 3.2; last: Radford et al. 2018, section 3.2;
    mean and max: Reimers and Gurevych 2019, section 3.
    """

    def __init__(self, kind: str) -> None:
        """Set the kind of pooling: `first`, `last`, `mean` or `max`."""
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Pool x [B, T, D] into one vector per row.

        Args:
            x: the sequence.
            mask: [B, T], true at non-padding positions; None if there is no padding.

        Returns:
            [B, D]; zeros for a row that is all padding.
        """
        if mask is None:
            return self._unmasked(x)
        x = x.masked_fill(~mask[..., None], 0.0)
        if self.kind == "mean":
            return x.sum(1) / mask.sum(1, keepdim=True).clamp(min=1).to(x.dtype)
        if self.kind == "max":
            lowest = torch.finfo(x.dtype).min
            maximum = x.masked_fill(~mask[..., None], lowest).amax(1)
            return maximum.masked_fill(~mask.any(1, keepdim=True), 0.0)
        index_T = torch.arange(mask.size(1), device=mask.device)
        if self.kind == "first":
            chosen_B = torch.where(mask, index_T, mask.size(1) - 1).amin(1)
        else:
            chosen_B = torch.where(mask, index_T, 0).amax(1)
        return x.gather(1, chosen_B[:, None, None].expand(-1, 1, x.size(2))).squeeze(1)

    def _unmasked(self, x: Tensor) -> Tensor:
        """Pool sequences without padding."""
        if self.kind == "mean":
            return x.mean(1)
        if self.kind == "max":
            return x.amax(1)
        return x[:, 0] if self.kind == "first" else x[:, -1]
