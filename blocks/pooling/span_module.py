"""Span: scores of what stands between two boundaries of a sequence.

Axes: B sequences, T positions, F boundaries (T + 1), D width of the model, H width of
the hidden layer, L labels, P spans that are one, those with i <= j.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.init import draw_linear
from ..kernels.linear import LinearMap, linear


class SpanScore(nn.Module):
    """Scores of every span, from how the vectors at its two boundaries differ.

    The boundary k stands between positions k - 1 and k.  What looks back from it is
    the first half of x_{k-1}, what looks ahead the second half of x_k, zeros beyond the
    ends; u_k joins the first and the negative of the second, and v_ij = u_{j+1} - u_i.
    The map W is applied to boundaries: it is linear, and there are fewer of them.

    Source: Stern et al. 2017, section 3.1; with the norm of Kitaev & Klein 2018, section 2.
    """

    def __init__(self, d_model: int, d_hidden: int, labels: int, eps: float = 1e-5) -> None:
        """Make the two layers, H x D and L x H, and the norm between them."""
        super().__init__()
        self.hidden = LinearMap(d_model, d_hidden)
        self.norm = nn.LayerNorm(d_hidden, eps)
        self.out = LinearMap(d_hidden, labels)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; the norm starts as one, biases at zero."""
        draw_linear(generator, self.hidden, self.out)
        nn.init.ones_(self.norm.weight)
        nn.init.zeros_(self.norm.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Score the spans of x [B, T, D].

        Args:
            x: vectors.
            mask: [B, T]; where false nothing is seen, as beyond the ends.

        Returns:
            [B, T, T, L], for i and j the span that begins with i and ends with j; zeros
            where j < i.
        """
        if mask is not None:
            x = x.masked_fill(~mask[..., None], 0.0)
        back_BTE, ahead_BTE = x.chunk(2, -1)
        u_BFD = torch.cat([F.pad(back_BTE, (0, 0, 1, 0)), -F.pad(ahead_BTE, (0, 0, 0, 1))], -1)
        # No bias yet: it belongs to spans.
        return self._spans(linear(u_BFD, self.hidden.weight))

    def _spans(self, u_BFH: Tensor) -> Tensor:
        """Return the scores [B, T, T, L] of all spans, from what stands at their boundaries."""
        length = u_BFH.size(1) - 1
        i_P, j_P = torch.triu_indices(length, length, device=u_BFH.device)
        v_BPH = u_BFH[:, j_P + 1] - u_BFH[:, i_P] + self.hidden.bias.to(u_BFH.dtype)
        y_BPL: Tensor = self.out(torch.relu(self.norm(v_BPH)))
        score: Tensor = y_BPL.new_zeros(u_BFH.size(0), length, length, y_BPL.size(-1))
        score[:, i_P, j_P] = y_BPL
        return score
