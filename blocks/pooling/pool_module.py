"""Modules that prepend learned vectors to a sequence or pool it into one vector.

Axes: B sequences, T positions, N learned vectors, D model width; W groups of E neighbors.
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
    mean and max: Reimers and Gurevych 2019, section 3; neighbors: Dai et al. 2020, section 2.
    """

    def __init__(self, kind: str, every: int | None = None) -> None:
        """Set the kind, `first`, `last`, `mean` or `max`, and the number of neighbors."""
        super().__init__()
        self.kind, self.every = kind, every

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """Pool x [B, T, D] into one vector per row, or one for each E neighbors.

        Args:
            x: the sequence.
            mask: [B, T], true at non-padding positions; None if there is no padding.

        Returns:
            [B, D], or [B, T / E, D] and if `mask` is given, [B, T / E], true where any neighbor
            counts; zeros where all is padding.
        """
        if self.every is None:
            return self._pooled(x, mask)
        x_BWED = x.unflatten(1, (-1, self.every))
        mask_BWE = None if mask is None else mask.unflatten(1, (-1, self.every))
        inner = None if mask_BWE is None else mask_BWE.flatten(0, 1)
        y = self._pooled(x_BWED.flatten(0, 1), inner).unflatten(0, x_BWED.shape[:2])
        return y if mask_BWE is None else (y, mask_BWE.any(2))

    def _pooled(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Pool all positions of each row."""
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
