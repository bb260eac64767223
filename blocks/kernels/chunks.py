"""Chunks of a sequence: recurrences with decay that are computed by matrix products.

Axes: B sequences, H heads, T positions, N chunks of C positions each, W any width.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def chunked(part_BHTW: Tensor, chunk: int) -> Tensor:
    """Reshape [B, H, T, W] to [B, H, N, C, W], with zeros at the end of the last chunk.

    Full chunks are appended and the excess cut, so that one compiled graph is valid for every
    length.  It has two chunks at least, because torch makes sizes of one constants.
    """
    chunks = (part_BHTW.size(2) + chunk - 1) // chunk
    compiling = torch.compiler.is_compiling() and not torch.compiler.is_exporting()
    if compiling:
        chunks = torch.sym_max(chunks, 2)
    padded = F.pad(part_BHTW, (0, 0, 0, 2 * chunk if compiling else chunk))
    part_BHNCW: Tensor = padded[:, :, : chunks * chunk].unflatten(2, (chunks, chunk))
    return part_BHNCW


def unchunked(part_BHNCW: Tensor, length: int) -> Tensor:
    """Reshape [B, H, N, C, W] to [B, H, T, W], without the end of the last chunk."""
    # Not a slice: its strides depend on whether the last chunk is full, which would require
    # separate compiled graphs.
    index_T = torch.arange(length, device=part_BHNCW.device)
    return part_BHNCW.flatten(2, 3).index_select(2, index_T)


def decay_between(passed: Tensor) -> Tensor:
    """Return the decay from each position to each later one: exp(p_i - p_j) for j <= i, else 0.

    No exponent is positive, so nothing overflows.

    Args:
        passed: logarithm of the decay since the start, [..., C]; it does not increase.

    Returns:
        [..., C, C], read position last.
    """
    later_CC = torch.ones(passed.size(-1), passed.size(-1), dtype=torch.bool, device=passed.device)
    between = passed[..., :, None] - passed[..., None, :]
    return between.masked_fill(later_CC.triu(1), float("-inf")).exp()
