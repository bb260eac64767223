"""Span scores: a score per label for every span of a sequence.

Axes: B sequences, T positions, F boundaries (T + 1), D model width, H hidden width,
L labels, P spans (i, j) with i <= j, E half of the model width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.init import draw_linear
from ..kernels.linear import LinearMap, linear


class SpanScore(nn.Module):
    """Score every span from the difference of the vectors at its two boundaries.

    Boundary k lies between positions k - 1 and k.  Its vector u_k concatenates the first half
    of x_{k-1} (left context) and the negated second half of x_k (right context), with zeros
    beyond the ends of the sequence; v_ij = u_{j+1} - u_i.  The map W is linear, so it is
    applied to the T + 1 boundaries instead of to the spans, which are more numerous.

    Source: Stern et al. 2017, section 3.1; with the norm of Kitaev & Klein 2018, section 2.
    """

    def __init__(self, d_model: int, d_hidden: int, labels: int, eps: float = 1e-5) -> None:
        """Create the two layers, [H, D] and [L, H], and the layer norm between them."""
        super().__init__()
        self.hidden = LinearMap(d_model, d_hidden)
        self.norm = nn.LayerNorm(d_hidden, eps)
        self.out = LinearMap(d_hidden, labels)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; the scale of the norm starts at one, biases at zero."""
        draw_linear(generator, self.hidden, self.out)
        nn.init.ones_(self.norm.weight)
        nn.init.zeros_(self.norm.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Score the spans of x [B, T, D].

        Args:
            x: input vectors.
            mask: [B, T]; positions where it is false are read as zeros, as beyond the ends.

        Returns:
            [B, T, T, L]; entry (i, j) scores the span from position i to position j
            inclusive.  Entries with j < i are zeros.
        """
        if mask is not None:
            x = x.masked_fill(~mask[..., None], 0.0)
        back_BTE, ahead_BTE = x.chunk(2, -1)
        u_BFD = torch.cat([F.pad(back_BTE, (0, 0, 1, 0)), -F.pad(ahead_BTE, (0, 0, 0, 1))], -1)
        # Without the bias, which is added per span: it would cancel in the difference.
        return self._spans(linear(u_BFD, self.hidden.weight, None, self.hidden.product_kernel))

    def _spans(self, u_BFH: Tensor) -> Tensor:
        """Return the scores [B, T, T, L] of all spans from the mapped boundary vectors."""
        length = u_BFH.size(1) - 1
        i_P, j_P = torch.triu_indices(length, length, device=u_BFH.device)
        v_BPH = u_BFH[:, j_P + 1] - u_BFH[:, i_P] + self.hidden.bias.to(u_BFH.dtype)
        y_BPL: Tensor = self.out(torch.relu(self.norm(v_BPH)))
        score: Tensor = y_BPL.new_zeros(u_BFH.size(0), length, length, y_BPL.size(-1))
        score[:, i_P, j_P] = y_BPL
        return score
