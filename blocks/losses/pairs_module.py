"""Losses between two outputs of models: divergence of distributions, and contrast of vectors.

Axes: B rows of the batch, D width of vectors.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.linear import Product
from ..kernels.losses.divergence import Direction, divergence
from .cross_entropy_module import counted, wired


class KLDivergence(nn.Module):
    """Kullback-Leibler divergence of the distributions of two logits.

    Source: Hinton et al. 2015, section 2; Liang et al. 2021, section 2.1.
    """

    product_kernel: Product = "torch"
    """Kernel of its products in float32 on the CPU, where it computes a linear map."""

    def __init__(self, temperature: float = 1.0, direction: Direction = "forward") -> None:
        """Set the temperature and the direction: `forward`, `reverse` or `symmetric`."""
        super().__init__()
        self.temperature, self.direction = temperature, direction

    def forward(
        self,
        logits: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        *,
        classes: Tensor | None = None,
    ) -> Tensor:
        """Compare two logits [..., V].

        Args:
            logits: unnormalized scores.
            target: unnormalized scores; `forward` is their divergence from `logits`.
            mask: [...], true at the items that count.
            classes: [...], negative at the items that do not count, instead of `mask`.

        Returns:
            The sum of the divergences of the items that count, in float32.
        """
        total = divergence(
            logits,
            target,
            counted(wired(mask, classes), None),
            temperature=self.temperature,
            direction=self.direction,
        )
        return self.temperature**2 * total

    def weight(self, mask: Tensor | None = None, classes: Tensor | None = None) -> Tensor:
        """Return the number of items that count."""
        return counted(wired(mask, classes), None).sum()


class Contrastive(nn.Module):
    """Contrastive loss of the pairs of a batch.

    Source: van den Oord et al. 2018, section 2.3; Radford et al. 2021, section 2.3.
    """

    def __init__(self, temperature: float = 0.07, directions: str = "both") -> None:
        """Set the temperature, and the directions: `both` or `forward`."""
        super().__init__()
        self.temperature, self.directions = temperature, directions

    def forward(self, x: Tensor, z: Tensor, **rows: Tensor) -> Tensor:  # noqa: ARG002 - for `weight`
        """Compare all pairs of rows of x and z, both [B, D].

        Args:
            x: a vector for each row.
            z: the vector that belongs to it.
            **rows: an input of the batch, of which `weight` counts the rows.

        Returns:
            The sum over the rows, in float32.
        """
        score_BB = (F.normalize(x, dim=-1) @ F.normalize(z, dim=-1).t()).float() / self.temperature
        loss = -score_BB.log_softmax(1).diagonal().sum()
        if self.directions == "forward":
            return loss
        return 0.5 * (loss - score_BB.log_softmax(0).diagonal().sum())

    def weight(
        self, ids: Tensor | None = None, mask: Tensor | None = None, images: Tensor | None = None
    ) -> Tensor:
        """Return the number of rows."""
        items = wired(ids, mask, images)
        return torch.full((), items.size(0), dtype=torch.int64, device=items.device)
