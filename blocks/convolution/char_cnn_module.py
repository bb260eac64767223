"""Word: one vector for each word, from those of its parts.

Axes: N words, any leading axes as one; C parts of a word, D width in, O width out, K
parts that a kernel reads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class WordConvolution(nn.Module):
    """A vector for each word: a convolution over its parts, then the greatest of each number.

    Source: dos Santos & Zadrozny 2014, section 2.1.2; Ma & Hovy 2016, section 2.1.
    """

    def __init__(self, d_in: int, d_out: int, kernel: int = 3, pool: str = "max") -> None:
        """Make the kernel, O x D x K, and its bias."""
        super().__init__()
        self.pool = pool
        self.weight = nn.Parameter(torch.empty(d_out, d_in, kernel))
        self.bias = nn.Parameter(torch.empty(d_out))

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; the bias starts at zero."""
        nn.init.xavier_uniform_(self.weight, generator=generator)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Make a vector of the parts of every word.

        Args:
            x: vectors of parts, [..., C, D]; beyond the ends of a word stand zeros.
            mask: [..., C], true for a part; all are when None.

        Returns:
            [..., O]; zeros for a word of no parts.
        """
        x_NCD = x.flatten(0, -3)
        mask_NC1 = None if mask is None else mask.flatten(0, -2)[..., None]
        if mask_NC1 is not None:
            x_NCD = x_NCD.masked_fill(~mask_NC1, 0.0)
        reach = self.weight.size(2) // 2
        y_NCO = F.conv1d(x_NCD.transpose(1, 2), self.weight, self.bias, padding=reach)
        y_NCO = y_NCO.transpose(1, 2)
        y: Tensor = self._pooled(y_NCO, mask_NC1).unflatten(0, x.shape[:-2])
        return y

    def _pooled(self, y_NCO: Tensor, mask_NC1: Tensor | None) -> Tensor:
        """Return what becomes of the results of each word, [N, O]."""
        if mask_NC1 is None:
            return y_NCO.amax(1) if self.pool == "max" else y_NCO.mean(1)
        if self.pool == "mean":
            parts_N1 = mask_NC1.sum(1).clamp(min=1)
            return y_NCO.masked_fill(~mask_NC1, 0.0).sum(1) / parts_N1.to(y_NCO.dtype)
        lowest = torch.finfo(y_NCO.dtype).min
        greatest_NO = y_NCO.masked_fill(~mask_NC1, lowest).amax(1)
        return greatest_NO.masked_fill(~mask_NC1.any(1), 0.0)
