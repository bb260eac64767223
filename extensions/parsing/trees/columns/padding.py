"""Padding of the arrays of several rows into one tensor.

Axes: B rows, N values of the longest row, P values of the longest group.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.generic]


def mask_of(counts: NDArray[np.integer], longest: int) -> NDArray[np.bool_]:
    """Return a mask of the first `counts` places of `longest`, along a new last axis."""
    return np.arange(longest) < counts[..., None]


def padded(rows: Sequence[Array], fill: int, *, longest: int | None = None) -> Tensor:
    """Return rows of numbers as one int64 tensor, [B, N].

    Args:
        rows: one array [values] for each row.
        fill: value of the padding.
        longest: number of columns; defaults to the length of the longest row, at least one.
    """
    counts_B = np.array([len(row) for row in rows])
    columns = max(1, int(counts_B.max(initial=0))) if longest is None else longest
    values_BN = np.full((len(rows), columns), fill, np.int64)
    values_BN[mask_of(counts_B, columns)] = np.concatenate(rows)
    return torch.from_numpy(values_BN)


def padded_groups(
    rows: Sequence[Array], counts: Sequence[NDArray[np.integer]]
) -> tuple[Tensor, Tensor]:
    """Return rows of groups of numbers as one zero-padded int64 tensor [B, N, P], and its mask.

    Args:
        rows: the values of all groups of each row, one after another.
        counts: number of values of each group of each row.
    """
    counts_BN = padded(counts, 0).numpy()
    mask_BNP = mask_of(counts_BN, max(1, int(counts_BN.max(initial=0))))
    values_BNP = np.zeros(mask_BNP.shape, np.int64)
    values_BNP[mask_BNP] = np.concatenate(rows)
    return torch.from_numpy(values_BNP), torch.from_numpy(mask_BNP)
