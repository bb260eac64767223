"""Character CNN: one vector per word from the vectors of its characters.

Axes: N words (all leading axes flattened), C parts of a word, D input width, O output width,
K kernel size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class WordConvolution(nn.Module):
    """One vector per word: a convolution over its parts, then max or mean pooling.

    Source: dos Santos & Zadrozny 2014, section 2.1.2; Ma & Hovy 2016, section 2.1.
    """

    def __init__(self, d_in: int, d_out: int, kernel: int = 3, pool: str = "max") -> None:
        """Create the kernel [O, D, K] and its bias [O]."""
        super().__init__()
        self.pool = pool
        self.weight = nn.Parameter(torch.empty(d_out, d_in, kernel))
        self.bias = nn.Parameter(torch.empty(d_out))

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; the bias starts at zero."""
        nn.init.xavier_uniform_(self.weight, generator=generator)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Compute one vector for every word.

        Args:
            x: vectors of the parts, [..., C, D]; words are zero-padded at both ends.
            mask: [..., C], true at the parts of a word; None if there is no padding.

        Returns:
            [..., O]; zeros for a word without parts.
        """
        x_NCD = x.flatten(0, -3)
        mask_NC1 = None if mask is None else mask.flatten(0, -2)[..., None]
        if mask_NC1 is not None:
            x_NCD = x_NCD.masked_fill(~mask_NC1, 0.0)
        padding = self.weight.size(2) // 2
        y_NCO = F.conv1d(x_NCD.transpose(1, 2), self.weight, self.bias, padding=padding)
        y_NCO = y_NCO.transpose(1, 2)
        y: Tensor = self._pool(y_NCO, mask_NC1).unflatten(0, x.shape[:-2])
        return y

    def _pool(self, y_NCO: Tensor, mask_NC1: Tensor | None) -> Tensor:
        """Pool the convolution outputs of each word to [N, O]."""
        if mask_NC1 is None:
            return y_NCO.amax(1) if self.pool == "max" else y_NCO.mean(1)
        if self.pool == "mean":
            count_N1 = mask_NC1.sum(1).clamp(min=1)
            return y_NCO.masked_fill(~mask_NC1, 0.0).sum(1) / count_N1.to(y_NCO.dtype)
        lowest = torch.finfo(y_NCO.dtype).min
        max_NO = y_NCO.masked_fill(~mask_NC1, lowest).amax(1)
        return max_NO.masked_fill(~mask_NC1.any(1), 0.0)
