"""Which items of a batch a loss counts, and how many they are."""

from __future__ import annotations

import torch
from torch import Tensor


def counted(labels: Tensor, mask: Tensor | None) -> Tensor:
    """Return a mask of the items that count: a label that is not negative, and a true mask.

    Args:
        labels: classes, or a mask of items.
        mask: true at the items that count; None if all count.
    """
    valid = labels if labels.dtype == torch.bool else labels >= 0
    return valid if mask is None else valid & mask


def summed(loss: Tensor, mask: Tensor | None) -> Tensor:
    """Return the sum of the losses of items, in float32, where a mask of their shape is true."""
    return (loss if mask is None else loss.masked_fill(~mask, 0.0)).sum()


def wired(*alternatives: Tensor | None) -> Tensor:
    """Return the value of the one port that is wired, of several that exclude each other.

    Raises:
        ValueError: none or several of them are wired.
    """
    tensors = [tensor for tensor in alternatives if tensor is not None]
    if len(tensors) != 1:
        msg = f"{len(tensors)} of the ports with the labels are given, not one"
        raise ValueError(msg)
    return tensors[0]


def all_of(like: Tensor) -> Tensor:
    """Return the number of elements of a tensor, on its device."""
    return torch.full((), like.numel(), dtype=torch.int64, device=like.device)
