"""CKY: the best binary tree of each sentence of a batch.

Axes: B sentences, N words of the longest, M spans of a width.

Source: Kasami 1966, Younger 1967; Zhang et al. 2020, section 4, for batches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....blocks.kernels.losses.tree_crf import SpanChart
from ..trees.charts import Span


def best_trees(weight_BNN: Tensor, length_B: Tensor) -> list[list[Span]]:
    """Return the spans of the best binary tree of each sentence, outer spans before inner ones.

    Args:
        weight_BNN: for i <= j, the weight of the span from word i to word j.
        length_B: words of each sentence, at least one.
    """
    chart = SpanChart(weight_BNN)
    split_BNN = torch.zeros(weight_BNN.shape, dtype=torch.int64, device=weight_BNN.device)
    for wide in range(1, chart.longest):
        best_BM, at_BM = chart.splits(wide).max(-1)
        split_BNN[:, : chart.longest - wide, wide] = at_BM
        chart.fill(wide, best_BM)
    splits = split_BNN.cpu().numpy()
    return [_spans(splits[row], int(length)) for row, length in enumerate(length_B.tolist())]


def _spans(split_NN: np.ndarray[Any, Any], length: int) -> list[Span]:
    """Return the spans of a tree, given the split point of each span."""
    spans, pending = [], [(0, length - 1)]
    while pending:
        i, j = pending.pop()
        spans.append((i, j))
        if i < j:
            middle = i + int(split_NN[i, j - i])
            pending += [(middle + 1, j), (i, middle)]
    return spans
