"""Random draws of noise blocks: from torch's global generator in training, repeated in evaluation.

Axes: B sequences, T positions.
"""

from __future__ import annotations

import torch
from torch import Tensor


def generator_for(like: Tensor, *, training: bool) -> torch.Generator | None:
    """Return the generator of the noise of a batch.

    Args:
        like: tensor of the batch.
        training: whether the block is in training mode.

    Returns:
        None in training: torch's global generator.  In evaluation, a generator of the CPU whose
        seed depends only on the shape of `like`, so that every evaluation of a batch has the same
        noise on every device.
    """
    if training:
        return None
    seed = 0
    for size in like.shape:
        seed = (seed * 1_000_003 + int(size) + 1) % 2**63
    return torch.Generator().manual_seed(seed)


def seed_draws(value: int, device: torch.device) -> None:
    """Seed torch's global generators for draws on a device.

    On the CPU this is its generator alone: `torch.manual_seed` also records, for every kind of
    accelerator that the process has not used, where it was called.
    """
    if device.type == "cpu":
        torch.default_generator.manual_seed(value)
    else:
        torch.manual_seed(value)


def uniform(like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Return numbers drawn uniformly from [0, 1), of the shape and on the device of a tensor.

    Args:
        like: the tensor.
        generator: the numbers are drawn on its device; None for torch's global generator.
    """
    device = like.device if generator is None else generator.device
    return torch.rand(like.shape, generator=generator, device=device).to(like.device)


def random_ids(
    like: Tensor, first: int, vocabulary: int, generator: torch.Generator | None = None
) -> Tensor:
    """Return ids drawn uniformly from [first, vocabulary), of the shape of a tensor of ids."""
    device = like.device if generator is None else generator.device
    drawn = torch.randint(first, vocabulary, like.shape, generator=generator, device=device)
    return drawn.to(like.device)


def masked_at_random(mask_BT: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Choose the positions to mask: in a row of n words, 1 to n of them, uniformly.

    Source: Ghazvininejad et al. 2019, section 2.2.
    """
    length_B1 = mask_BT.sum(1, keepdim=True)
    count_B1 = (1 + (uniform(length_B1, generator) * length_B1).floor()).clamp(max=length_B1)
    return smallest(uniform(mask_BT, generator), mask_BT, count_B1)


def smallest(values_BT: Tensor, among_BT: Tensor, count_B1: Tensor) -> Tensor:
    """Return a mask [B, T] of the smallest values of each row.

    Args:
        values_BT: values to compare.
        among_BT: true at the positions that may be chosen.
        count_B1: how many to choose.
    """
    rank_BT = values_BT.masked_fill(~among_BT, torch.inf).argsort(1).argsort(1)
    return (rank_BT < count_B1) & among_BT


def compacted(values_BT: Tensor, kept_BT: Tensor, fill: int) -> Tensor:
    """Move the kept values of each row to its beginning, in order, and fill the rest.

    Args:
        values_BT: the values.
        kept_BT: true at the values to keep.
        fill: the value after the kept ones.
    """
    order_BT = (~kept_BT).long().sort(dim=1, stable=True).indices
    moved_BT = values_BT.gather(1, order_BT)
    return moved_BT.masked_fill(~kept_BT.gather(1, order_BT), fill)
