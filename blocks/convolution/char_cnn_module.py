"""Character CNN: one vector per word from the vectors of its characters.

Axes: N words (all leading axes flattened), C parts of a word, M parts of all words, D input width,
O output width, K kernel size, X = K x D.
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
        self.pool, self.zeros = pool, ((kernel - 1) // 2, kernel // 2)
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
        mask_NC = None if mask is None else mask.flatten(0, -2)
        if mask_NC is not None:
            x_NCD = x_NCD.masked_fill(~mask_NC[..., None], 0.0)
        if self.pool == "mean":
            y_NO = self._mean(x_NCD, mask_NC)
        elif mask_NC is None:
            y_NO = self._convolved(x_NCD).amax(1)
        elif x.device.type == "cpu" and not torch.compiler.is_compiling():
            y_NO = self._max_of_parts(x_NCD, mask_NC)
        else:
            y_NO = _max(self._convolved(x_NCD), mask_NC)
        y: Tensor = y_NO.unflatten(0, x.shape[:-2])
        return y

    def _convolved(self, x_NCD: Tensor) -> Tensor:
        """Return the outputs of the convolution at all places, [N, C, O]."""
        before, after = self.zeros
        x_NDC = x_NCD.transpose(1, 2)
        x_NDC = F.pad(x_NDC, (0, after - before)) if after > before else x_NDC
        y_NOC = F.conv1d(x_NDC, self.weight, self.bias, padding=before)
        return y_NOC.transpose(1, 2)

    def _max_of_parts(self, x_NCD: Tensor, mask_NC: Tensor) -> Tensor:
        """Return the largest outputs of each word, [N, O], computed at its M parts only.

        Most words are much shorter than the longest, so the padding would take most of the time.
        The number of parts must be known, which makes an accelerator wait and prevents compiling.
        """
        d_in, kernel = self.weight.shape[1:]
        parts_MD = torch.cat([x_NCD[mask_NC], x_NCD.new_zeros(1, d_in)])
        last = len(parts_MD) - 1  # the zeros around words and in their gaps
        place_NC = torch.full_like(mask_NC, last, dtype=torch.int64)
        place_NC[mask_NC] = torch.arange(last)
        around_NCK = F.pad(place_NC, self.zeros, value=last).unfold(1, kernel, 1)
        window_MX = parts_MD.index_select(0, around_NCK[mask_NC].flatten()).view(last, -1)
        y_MO = F.linear(window_MX, self.weight.transpose(1, 2).flatten(1), self.bias)
        max_NO = torch.segment_reduce(y_MO, "max", lengths=mask_NC.sum(1))
        return max_NO.masked_fill(~mask_NC.any(1, keepdim=True), 0.0)

    def _mean(self, x_NCD: Tensor, mask_NC: Tensor | None) -> Tensor:
        """Return the means of the outputs of each word, [N, O], from the means of its windows."""
        kernel, places = self.weight.size(2), x_NCD.size(1)
        padded = x_NCD if kernel == 1 else F.pad(x_NCD, (0, 0, *self.zeros))
        windows = [padded[:, k : k + places] for k in range(kernel)]
        if mask_NC is None:
            mean_NX = torch.cat([window.mean(1) for window in windows], -1)
        else:
            count_N1 = mask_NC.sum(1, keepdim=True).clamp(min=1)
            out_NC1 = ~mask_NC[..., None]
            sums = [w if kernel == 1 else w.masked_fill(out_NC1, 0.0) for w in windows]
            mean_NX = torch.cat([w.sum(1) for w in sums], -1) / count_N1
        y_NO = F.linear(mean_NX, self.weight.transpose(1, 2).flatten(1), self.bias)
        return y_NO if mask_NC is None else y_NO.masked_fill(~mask_NC.any(1, keepdim=True), 0.0)


def _max(y_NCO: Tensor, mask_NC: Tensor) -> Tensor:
    """Return the largest outputs of each word, [N, O]; zeros for a word without parts."""
    lowest = torch.finfo(y_NCO.dtype).min
    max_NO = y_NCO.masked_fill(~mask_NC[..., None], lowest).amax(1)
    return max_NO.masked_fill(~mask_NC.any(1, keepdim=True), 0.0)
