"""Masks of pairs of positions, for the attention backends that need them as tensors.

Axes: B sequences, T query positions, S key positions.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Pairs = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Maps the positions of queries and keys, and the rows of the batch, to true where the query may
attend to the key; elementwise, for index tensors of any shapes that broadcast."""


def near(length: int, device: torch.device, *, causal: bool) -> Tensor:
    """Return the mask [T, T] of causal attention, or of attention to all positions.

    Args:
        length: number of positions T.
        device: device of the mask.
        causal: whether position t attends only to positions up to t.
    """
    all_ = torch.ones(length, length, dtype=torch.bool, device=device)
    return all_.tril() if causal else all_


def of_pairs(pairs: Pairs, query_T: Tensor, key_S: Tensor, rows: int) -> Tensor:
    """Return which keys each query may attend to, [T, S], or [B, 1, T, S] if rows differ.

    Args:
        pairs: the elementwise function.
        query_T: positions of the queries.
        key_S: positions of the keys.
        rows: number of rows B.
    """
    row_B11 = torch.arange(rows, device=query_T.device)[:, None, None]
    allowed = pairs(query_T[:, None], key_S[None, :], row_B11)
    return allowed[:, None] if allowed.dim() > 2 else allowed  # noqa: PLR2004 - with rows
