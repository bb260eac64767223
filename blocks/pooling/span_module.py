"""Span scores: a score per label for every span of a sequence.

Axes: B sequences, T positions, F boundaries (T + 1), D model width, H hidden width,
L labels, P spans (i, j) with i <= j, E half of the model width.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from ..kernels.linear import LinearMap, draw_linear, linear
from ..kernels.precision import operand


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
        weight = operand(self.hidden, "weight")
        return self._spans(linear(u_BFD, weight, None, self.hidden.product_kernel))

    def _spans(self, u_BFH: Tensor) -> Tensor:
        """Return the scores [B, T, T, L] of all spans from the mapped boundary vectors."""
        length = u_BFH.size(1) - 1
        if u_BFH.device.type == "cpu" and not torch.compiler.is_compiling():
            v_BPH: Tensor = _Differences.apply(u_BFH)  # type: ignore[no-untyped-call]
        else:
            i_P, j_P = torch.triu_indices(length, length, device=u_BFH.device)
            v_BPH = u_BFH[:, j_P + 1] - u_BFH[:, i_P]
        v_BPH = v_BPH + self.hidden.bias.to(u_BFH.dtype)
        y_BPL: Tensor = self.out(torch.relu(self.norm(v_BPH)))
        if y_BPL.device.type == "cpu" and not torch.compiler.is_compiling():
            table_BTTL: Tensor = _Table.apply(y_BPL, length)  # type: ignore[no-untyped-call]
            return table_BTTL
        score: Tensor = y_BPL.new_zeros(u_BFH.size(0), length, length, y_BPL.size(-1))
        score[:, i_P, j_P] = y_BPL
        return score


def _rows(length: int) -> Iterator[tuple[int, slice]]:
    """Yield each first position, and where its spans are among all spans."""
    end = 0
    for i in range(length):
        begin, end = end, end + length - i
        yield i, slice(begin, end)


class _Differences(torch.autograd.Function):
    """u_{j+1} - u_i of all spans in the order of their rows, copied row by row.

    Indexing adds up gradients one span after another, which takes several times as long on a CPU.
    """

    @staticmethod
    def forward(ctx: Any, u_BFH: Tensor) -> Tensor:
        """Return the differences, [B, P, H]."""
        batch, ctx.length, width = u_BFH.size(0), u_BFH.size(1) - 1, u_BFH.size(2)
        v_BPH = u_BFH.new_empty(batch, ctx.length * (ctx.length + 1) // 2, width)
        for i, spans in _rows(ctx.length):
            torch.sub(u_BFH[:, i + 1 :], u_BFH[:, i : i + 1], out=v_BPH[:, spans])
        return v_BPH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_v_BPH: Tensor) -> Tensor:
        """Return the gradient of every boundary, summed in float32."""
        batch, _, width = of_v_BPH.shape
        of_u_BFH = of_v_BPH.new_zeros(batch, ctx.length + 1, width, dtype=torch.float32)
        for i, spans in _rows(ctx.length):
            of_u_BFH[:, i + 1 :] += of_v_BPH[:, spans]
            of_u_BFH[:, i] -= of_v_BPH[:, spans].sum(1)
        return of_u_BFH.to(of_v_BPH.dtype)


class _Table(torch.autograd.Function):
    """The scores of all spans as a table [B, T, T, L] with zeros where j < i."""

    @staticmethod
    def forward(ctx: Any, y_BPL: Tensor, length: int) -> Tensor:
        """Copy the scores row by row."""
        ctx.shape = y_BPL.shape
        score_BTTL = y_BPL.new_zeros(y_BPL.size(0), length, length, y_BPL.size(-1))
        for i, spans in _rows(length):
            score_BTTL[:, i, i:] = y_BPL[:, spans]
        return score_BTTL

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_score_BTTL: Tensor) -> tuple[Tensor, None]:
        """Copy the gradients back."""
        of_y_BPL = of_score_BTTL.new_empty(ctx.shape)
        for i, spans in _rows(of_score_BTTL.size(1)):
            of_y_BPL[:, spans] = of_score_BTTL[:, i, i:]
        return of_y_BPL, None
