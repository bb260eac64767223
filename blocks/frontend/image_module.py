"""Image front end: patch embedding.

Axes: B images, C channels, H and W pixels, N patches, D model width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class PatchEmbedding(nn.Module):
    """Map every square patch of an image to a vector.

    Source: Dosovitskiy et al. 2021, section 3.1.
    """

    def __init__(
        self,
        d_model: int,
        patch: int,
        height: int,
        width: int,
        channels: int = 3,
        *,
        bias: bool = True,
    ) -> None:
        """Create the map [D, C, patch, patch]; `height` and `width` are not used."""
        del height, width
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_model, channels, patch, patch))
        self.bias = nn.Parameter(torch.empty(d_model)) if bias else None

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights for patches as flat vectors; the bias starts at zero."""
        nn.init.xavier_uniform_(self.weight.flatten(1), generator=generator)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, image: Tensor) -> Tensor:
        """Map images [B, C, H, W] to [B, N, D], patches row by row from the top left."""
        y_BDHW = F.conv2d(image, self.weight, self.bias, stride=self.weight.size(-1))
        return y_BDHW.flatten(2).transpose(1, 2)
