"""Span corruption of rows of ids.

Axes: B sequences, T positions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..kernels.noise import compacted, generator_for, smallest, uniform


class SpanCorruption(nn.Module):
    """Remove random spans of each row.

    A row of n tokens loses round(rate n) of them in round(rate n / span) spans.  The lengths of
    the spans, and those of the parts between them, are uniform among all divisions into parts of
    at least one token.  A row begins with a part that stays and ends with a span, so a row of one
    token loses nothing.

    Source: Raffel et al. 2020, sections 3.1.4 and 3.3.4.
    """

    def __init__(
        self,
        v: int,
        rate: float = 0.15,
        span: float = 3.0,
        sentinels: int = 100,
        end: int = 1,
        pad: int = 0,
    ) -> None:
        """Set the size of the vocabulary, with the sentinels, and the params of the block."""
        super().__init__()
        self.v, self.rate, self.span, self.sentinels = v, rate, span, sentinels
        self.end, self.pad = end, pad

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the source and the target of rows of ids, all [B, T].

        What follows the first end or padding of a row is dropped.
        """
        stopped_BT = (ids == self.end) | (ids == self.pad)
        token_BT = stopped_BT.long().cumsum(1) == 0
        end_BT = (ids == self.end) & (stopped_BT.long().cumsum(1) == 1)
        removed_BT, span_BT = self._removed(token_BT)
        first_BT = removed_BT.clone()
        first_BT[:, 1:] &= ~removed_BT[:, :-1]
        sentinel_BT = self.v - 1 - span_BT
        source = compacted(
            torch.where(first_BT, sentinel_BT, ids),
            (token_BT & ~removed_BT) | first_BT | end_BT,
            self.pad,
        )
        tokens = torch.stack([sentinel_BT, ids], 2).flatten(1)
        keep_mask = torch.stack([first_BT, removed_BT | end_BT], 2).flatten(1)
        return source, compacted(tokens, keep_mask, self.pad)[:, : ids.size(1)]

    def _removed(self, token_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Draw the spans.

        Args:
            token_BT: true at the tokens, which come first in each row.

        Returns:
            A mask [B, T] of the removed tokens, and the number of the span of each of them.
        """
        generator = generator_for(token_BT, training=self.training)
        length_B1 = token_BT.sum(1, keepdim=True)
        most_B1 = (length_B1 - 1).clamp(min=0)
        out_B1 = (length_B1 * self.rate).round().long().clamp(min=1).minimum(most_B1)
        count_B1 = (out_B1 / self.span).round().long().clamp(1, self.sentinels)
        count_B1 = count_B1.minimum(out_B1).minimum(length_B1 - out_B1)
        # Divide the row into the tokens that stay, then those that go; cut each into `count`
        # parts; then sort the parts into the order first to stay, first to go, second to stay.
        stay_B1 = length_B1 - out_B1
        index_T = torch.arange(token_BT.size(1), device=token_BT.device)
        stays_BT, goes_BT = index_T < stay_B1, (index_T >= stay_B1) & token_BT
        part_BT = torch.zeros_like(token_BT, dtype=torch.int64)
        for those_BT, first_B1 in ((stays_BT, torch.zeros_like(stay_B1)), (goes_BT, stay_B1)):
            inner_BT = those_BT & (index_T > first_B1)
            cut_BT = smallest(uniform(token_BT, generator), inner_BT, count_B1 - 1)
            part_BT += cut_BT.long().cumsum(1) * those_BT
        order_BT = torch.where(token_BT, 2 * part_BT + goes_BT, 2 * token_BT.size(1))
        sorted_BT = order_BT.sort(dim=1, stable=True).values
        return (sorted_BT % 2 == 1) & token_BT, sorted_BT // 2
