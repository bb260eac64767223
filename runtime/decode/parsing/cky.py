"""CKY: the sum over all binary trees of a sentence, and the best of them, for many at once.

A binary tree over n words has 2 n - 1 spans, those of one word among them; what a tree
weighs is the sum of what its spans do.  Both programs fill a chart by width, all spans of
one width and all sentences of a batch together: n steps, whatever the batch.

Axes: B sentences, N words of the longest, M spans of a width, K ways to split a span.

Source: Kasami 1966, Younger 1967; Baker 1979 for the sum; Zhang et al. 2020, section 4,
for batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ...data.treebank.charts import Span


def log_partition(weight_BNN: Tensor, length_B: Tensor) -> Tensor:
    """Return the log of the sum over all binary trees of exp(weight of the tree), [B].

    Its gradient is how probable each span is.

    Args:
        weight_BNN: for i <= j, what the span from word i to word j weighs; finite.
        length_B: words of each sentence, at least one.
    """
    total: Tensor = _Inside.apply(weight_BNN, length_B)  # type: ignore[no-untyped-call]
    return total


def marginals(weight_BNN: Tensor, length_B: Tensor) -> Tensor:
    """Return how probable each span is in a tree drawn by its weight, [B, N, N]."""
    chart, insides = _inside(weight_BNN)
    return _outside(chart, insides, length_B, torch.ones_like(length_B, dtype=torch.float32))


def best_trees(weight_BNN: Tensor, length_B: Tensor) -> list[list[Span]]:
    """Return the spans of the heaviest binary tree of each sentence, the outer before the inner.

    Args:
        weight_BNN: for i <= j, what the span from word i to word j weighs.
        length_B: words of each sentence, at least one.
    """
    chart = _Chart(weight_BNN)
    split_BNN = torch.zeros(weight_BNN.shape, dtype=torch.int64, device=weight_BNN.device)
    for wide in range(1, chart.longest):
        best_BM, at_BM = chart.halves(wide).max(-1)
        split_BNN[:, : chart.longest - wide, wide] = at_BM
        chart.fill(wide, best_BM)
    splits = split_BNN.cpu().numpy()
    return [_spans(splits[row], int(length)) for row, length in enumerate(length_B.tolist())]


class _Chart:
    """What spans weigh with the best, or all, trees inside; by an end and how much wider than 1.

    `first` [B, N, N] is indexed by the first word and the width less one; `last` by the
    last word and, from its end backwards, the width less one: so both halves of a split
    are slices.
    """

    def __init__(self, weight_BNN: Tensor) -> None:
        self.weight_BNN = weight_BNN
        self.longest = weight_BNN.size(1)
        self.first = torch.zeros_like(weight_BNN)
        self.last = torch.zeros_like(weight_BNN)
        self._put(0, weight_BNN.diagonal(0, 1, 2))

    def halves(self, wide: int) -> Tensor:
        """Return what the two halves of each span weigh, for every split, [B, M, K]."""
        n = self.longest
        return self.first[:, : n - wide, :wide] + self.last[:, wide:, n - wide :]

    def fill(self, wide: int, inside_BM: Tensor) -> None:
        """Put the spans of a width, from what is inside them."""
        self._put(wide, inside_BM + self.weight_BNN.diagonal(wide, 1, 2))

    def _put(self, wide: int, value_BM: Tensor) -> None:
        n = self.longest
        self.first[:, : n - wide, wide] = value_BM
        self.last[:, wide:, n - 1 - wide] = value_BM


class _Inside(torch.autograd.Function):
    """The inside program; its backward pass is the outside program."""

    @staticmethod
    def forward(ctx: Any, weight_BNN: Tensor, length_B: Tensor) -> Tensor:
        """Return what all trees of each sentence weigh together."""
        ctx.chart, ctx.insides = _inside(weight_BNN.detach())
        ctx.length_B, ctx.dtype = length_B, weight_BNN.dtype
        rows_B = torch.arange(len(length_B), device=length_B.device)
        total_B: Tensor = ctx.chart.first[rows_B, 0, length_B - 1]
        return total_B

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_total_B: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of every span."""
        return _outside(ctx.chart, ctx.insides, ctx.length_B, of_total_B).to(ctx.dtype), None


def _inside(weight_BNN: Tensor) -> tuple[_Chart, list[Tensor]]:
    """Return the chart of sums, and the sum inside each span of each width from 2."""
    chart, insides = _Chart(weight_BNN.float()), []
    for wide in range(1, chart.longest):
        inside_BM = chart.halves(wide).logsumexp(-1)
        insides.append(inside_BM)
        chart.fill(wide, inside_BM)
    return chart, insides


def _outside(
    chart: _Chart, insides: Sequence[Tensor], length_B: Tensor, of_total_B: Tensor
) -> Tensor:
    """Hand what each sentence gets down to its spans, the widest first, [B, N, N]."""
    n = chart.longest
    first, last = torch.zeros_like(chart.first), torch.zeros_like(chart.last)
    rows_B = torch.arange(len(length_B), device=length_B.device)
    first[rows_B, 0, length_B - 1] = of_total_B.to(first.dtype)
    share_BNN = torch.zeros_like(chart.first)
    for wide in range(n - 1, -1, -1):
        of_span_BM = first[:, : n - wide, wide] + last[:, wide:, n - 1 - wide]
        share_BNN.diagonal(wide, 1, 2).copy_(of_span_BM)
        if wide:
            share_BMK = (chart.halves(wide) - insides[wide - 1][..., None]).exp_()
            share_BMK *= of_span_BM[..., None]
            first[:, : n - wide, :wide] += share_BMK
            last[:, wide:, n - wide :] += share_BMK
    return share_BNN


def _spans(split_NN: np.ndarray[Any, Any], length: int) -> list[Span]:
    """Read the spans of a tree out of where each span splits."""
    spans, left = [], [(0, length - 1)]
    while left:
        i, j = left.pop()
        spans.append((i, j))
        if i < j:
            middle = i + int(split_NN[i, j - i])
            left += [(middle + 1, j), (i, middle)]
    return spans
