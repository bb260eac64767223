"""Random field over labeled trees: sums over all binary trees of a sentence, in batches.

A binary tree over n words has 2 n - 1 spans, including those of one word; the weight of a
tree is the sum of the weights of its spans.  The inside algorithm fills a chart by width, with
all spans of one width and all sentences of a batch at once: n steps, whatever the batch size.

Axes: B sentences, N words of the longest, M spans of a width, K ways to split a span, L labels.

Source: Baker 1979; Zhang et al. 2020, sections 2 and 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class SpanWeights:
    """Log weights of spans, summed over labels: exp of each label's score, plus 1 for no label."""

    def __init__(self, score_BNNL: Tensor, length_B: Tensor) -> None:
        """Sum over labels in float32.

        Args:
            score_BNNL: for i <= j, the score of each label of the span from word i to word j.
            length_B: words of each sentence, at least one.
        """
        self.score_BNNL, self.length_B = score_BNNL, length_B
        summed_BNN: Tensor = _LabelSum.apply(score_BNNL)  # type: ignore[no-untyped-call]
        self.span_BNN = F.softplus(summed_BNN)

    def log_all(self) -> Tensor:
        """Return the log partition function of each sentence over all labeled trees, [B]."""
        return log_partition(self.span_BNN, self.length_B)

    def probabilities(self) -> Tensor:
        """Return the marginal probability of each label of each span, [B N N L]."""
        in_tree_BNN = marginals(self.span_BNN, self.length_B)
        log_BNN = in_tree_BNN.clamp(min=1e-30).log() - self.span_BNN
        return (self.score_BNNL.float() + log_BNN[..., None]).exp()


class _LabelSum(torch.autograd.Function):
    """logsumexp over the labels of each span i <= j, in float32; zeros elsewhere.

    The spans of one first word at a time, because the scores of all spans exceed the cache.
    """

    @staticmethod
    def forward(ctx: Any, score_BNNL: Tensor) -> Tensor:
        """Return the sums, [B, N, N]."""
        sum_BNN = score_BNNL.new_zeros(score_BNNL.shape[:-1], dtype=torch.float32)
        for i in range(score_BNNL.size(1)):
            sum_BNN[:, i, i:] = score_BNNL[:, i, i:].float().logsumexp(-1)
        ctx.save_for_backward(score_BNNL, sum_BNN)
        return sum_BNN

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_sum_BNN: Tensor) -> Tensor:
        """Return the gradient of every score: that of the sum times the label's probability."""
        score_BNNL, sum_BNN = ctx.saved_tensors
        of_score_BNNL = torch.zeros_like(score_BNNL)
        for i in range(score_BNNL.size(1)):
            share_BML = (score_BNNL[:, i, i:].float() - sum_BNN[:, i, i:, None]).exp_()
            of_score_BNNL[:, i, i:] = share_BML.mul_(of_sum_BNN[:, i, i:, None])
        return of_score_BNNL


def log_partition(weight_BNN: Tensor, length_B: Tensor) -> Tensor:
    """Return the log of the sum over all binary trees of exp(weight of the tree), [B].

    Its gradient is the marginal probability of each span.

    Args:
        weight_BNN: for i <= j, the weight of the span from word i to word j; finite.
        length_B: words of each sentence, at least one.
    """
    total: Tensor = _Inside.apply(weight_BNN, length_B)  # type: ignore[no-untyped-call]
    return total


def marginals(weight_BNN: Tensor, length_B: Tensor) -> Tensor:
    """Return the marginal probability of each span, [B, N, N]."""
    chart, insides = _inside(weight_BNN)
    return _outside(chart, insides, length_B, torch.ones_like(length_B, dtype=torch.float32))


class SpanChart:
    """Weights of spans including the trees inside them: the best tree, or the sum over all.

    `first` [B, N, N] is indexed by the first word and the width minus one; `last` by the
    last word and, counted from the end, the width minus one.  Both parts of a split are
    therefore slices.
    """

    def __init__(self, weight_BNN: Tensor) -> None:
        """Create a chart of the given weights; only spans of one word are filled."""
        self.weight_BNN = weight_BNN
        self.longest = weight_BNN.size(1)
        self.first = torch.zeros_like(weight_BNN)
        self.last = torch.zeros_like(weight_BNN)
        self._put(0, weight_BNN.diagonal(0, 1, 2))

    def splits(self, wide: int) -> Tensor:
        """Return the summed weight of the two parts of each span, for every split, [B, M, K]."""
        n = self.longest
        return self.first[:, : n - wide, :wide] + self.last[:, wide:, n - wide :]

    def fill(self, wide: int, inside_BM: Tensor) -> None:
        """Set the spans of a width, given the weight inside them."""
        self._put(wide, inside_BM + self.weight_BNN.diagonal(wide, 1, 2))

    def _put(self, wide: int, value_BM: Tensor) -> None:
        n = self.longest
        self.first[:, : n - wide, wide] = value_BM
        self.last[:, wide:, n - 1 - wide] = value_BM


class _Inside(torch.autograd.Function):
    """The inside algorithm; its backward pass is the outside algorithm."""

    @staticmethod
    def forward(ctx: Any, weight_BNN: Tensor, length_B: Tensor) -> Tensor:
        """Return the log of the summed weight of all trees of each sentence."""
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


def _inside(weight_BNN: Tensor) -> tuple[SpanChart, list[Tensor]]:
    """Return the chart of sums, and the sum inside each span of each width from 2."""
    chart, insides = SpanChart(weight_BNN.float()), []
    for wide in range(1, chart.longest):
        inside_BM = chart.splits(wide).logsumexp(-1)
        insides.append(inside_BM)
        chart.fill(wide, inside_BM)
    return chart, insides


def _outside(
    chart: SpanChart, insides: Sequence[Tensor], length_B: Tensor, of_total_B: Tensor
) -> Tensor:
    """Propagate the gradient of each sentence to its spans, widest first, [B, N, N]."""
    n = chart.longest
    first, last = torch.zeros_like(chart.first), torch.zeros_like(chart.last)
    rows_B = torch.arange(len(length_B), device=length_B.device)
    first[rows_B, 0, length_B - 1] = of_total_B.to(first.dtype)
    share_BNN = torch.zeros_like(chart.first)
    for wide in range(n - 1, -1, -1):
        of_span_BM = first[:, : n - wide, wide] + last[:, wide:, n - 1 - wide]
        share_BNN.diagonal(wide, 1, 2).copy_(of_span_BM)
        if wide:
            share_BMK = (chart.splits(wide) - insides[wide - 1][..., None]).exp_()
            share_BMK *= of_span_BM[..., None]
            first[:, : n - wide, :wide] += share_BMK
            last[:, wide:, n - wide :] += share_BMK
    return share_BNN
