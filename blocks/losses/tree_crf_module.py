"""Chart loss: the negative log-likelihood of labeled trees, given scores of labeled spans.

Axes: B sentences, S words of the longest, L labels, N labeled spans of a tree at most.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..kernels.losses.tree_crf import SpanWeights


class ChartCrossEntropy(nn.Module):
    """Sum over sentences of the negative log-likelihood of the right labeled tree.

    The probability of a labeled tree is proportional to exp of the sum of its scores, where a
    span without a label has score 0.  The sum in the denominator is over all binary trees and
    all labels.  Trees of any arity correspond to several binary trees with the same labeled
    spans; all of them are right, and `binary` is the log of their number.

    Source: Stern et al. 2017, section 3.1; Zhang et al. 2020, section 2.
    """

    def forward(
        self,
        score: Tensor,
        first: Tensor,
        last: Tensor,
        label: Tensor,
        binary: Tensor,
        known: Tensor,
        mask: Tensor | None = None,
        symbols: Tensor | None = None,  # noqa: ARG002 - only `weight` needs it
    ) -> tuple[Tensor, Tensor]:
        """Compare scores [B, S, S, L] with the labeled spans of the right trees.

        Args:
            score: entry (i, j) scores the labels of the span from word i to word j inclusive.
            first: first word of each labeled span, [B, N]; -1 for padding.
            last: last word of each labeled span, [B, N]; -1 for padding.
            label: label of each labeled span, [B, N]; -1 for padding.
            binary: log of the number of binary trees that reduce to the right tree, [B].
            known: [B]; sentences where it is false have no loss and no gradient.
            mask: [B, S], true at words; None if every sentence has S words.
            symbols: what each sentence counts, [B].

        Returns:
            The loss, in float32, and the same without a gradient.
        """
        rows, longest = score.shape[:2]
        length_B = known.new_full((rows,), longest, dtype=torch.int64)
        if mask is not None:
            # A row without words must not index the chart at -1; its loss is masked.
            length_B = mask.sum(1).clamp(min=1)
        weights = SpanWeights(score, length_B)
        row_B1 = torch.arange(rows, device=score.device)[:, None]
        spans = (row_B1, first.clamp(min=0), last.clamp(min=0), label.clamp(min=0))
        right_BN = score[spans].float().masked_fill(label < 0, 0.0)
        row_BN = row_B1.expand_as(label)
        # Spans are subtracted one by one in their order, so the result does not depend on padding.
        total_B = weights.log_all() - binary.float()
        nll_B = total_B.index_add(0, row_BN.flatten(), -right_BN.flatten())
        loss = nll_B.masked_fill(~known, 0.0).sum()
        return loss, loss.detach()

    def weight(self, known: Tensor, symbols: Tensor | None = None) -> Tensor:
        """Return what the sentences of a batch count in a mean over several batches.

        By default each known sentence counts 1.  Parsers have always been trained per symbol of
        the linearized tree, with the end token: with `symbols`, learning rates and reported
        losses keep that scale, and a long sentence counts as much as many short ones.  Sentences
        with an unknown label are included, as they are in the number of target tokens.
        """
        return known.sum() if symbols is None else symbols.sum()
