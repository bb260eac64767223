"""Modules that prepare inputs without noise: ids, masks, and values without a gradient.

Axes: B sequences, T positions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class NotPadding(nn.Module):
    """Mask of the non-padding positions.

    Source: Vaswani et al. 2017, section 3.2.3.
    """

    def __init__(self, pad: int = 0) -> None:
        """Set the id of the padding token."""
        super().__init__()
        self.pad = pad

    def forward(self, ids: Tensor) -> Tensor:
        """Return a mask of the shape of ids, true where they are not padding."""
        return ids != self.pad


class PrefixMask(nn.Module):
    """Masks of a prefix, which ends with the first separator, and of the rest.

    Source: Raffel et al. 2020, section 3.2.1.
    """

    def __init__(self, separator: int) -> None:
        """Set the id that ends the prefix."""
        super().__init__()
        self.separator = separator

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Divide the positions of ids [B, T].

        Args:
            ids: prefix, separator and continuation in one sequence.
            mask: [B, T], true at non-padding positions.

        Returns:
            Two masks [B, T], of the prefix with its separator and of the rest; both are false at
            padding.  A row without a separator has no prefix.
        """
        separator_BT = ids == self.separator
        if mask is not None:
            separator_BT = separator_BT & mask
        seen_BT = separator_BT.long().cumsum(1)
        before_BT = (seen_BT - separator_BT.long()) == 0
        prefix_BT = before_BT & separator_BT.any(1, keepdim=True)
        rest_BT = ~prefix_BT
        if mask is None:
            return prefix_BT, rest_BT
        return prefix_BT & mask, rest_BT & mask


class EmptyText(nn.Module):
    """Replace each text by an empty one.

    Source: Sennrich et al. 2016, section 3.1.
    """

    def __init__(self, end: int) -> None:
        """Set the end token."""
        super().__init__()
        self.end = end

    def forward(self, ids: Tensor) -> Tensor:
        """Return the end token for each row of ids [B, T], as [B, 1]."""
        return torch.full_like(ids[:, :1], self.end)


class LengthClass(nn.Module):
    """Convert the length of each row to a class.

    Source: Ghazvininejad et al. 2019, section 2.3.
    """

    def __init__(self, classes: int) -> None:
        """Set the number of classes."""
        super().__init__()
        self.classes = classes

    def forward(self, mask: Tensor) -> Tensor:
        """Return n - 1 for each row of the mask [B, T] with n true positions, as [B]."""
        return mask.sum(1).clamp(1, self.classes) - 1
