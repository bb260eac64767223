"""Module of learned and constant arrays."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Parameter(nn.Module):
    """An array that does not depend on the input.

    Source: Jaegle et al. 2021, section 3.1; Lester et al. 2021, section 2.
    """

    def __init__(
        self, shape: Sequence[int], init: str, factor: float, *, learned: bool, rows: bool
    ) -> None:
        """Create the array, if it is learned.

        Args:
            shape: sizes of its axes; a single number is stored as one element.
            init: `normal`, `zeros`, `ones`, `identity` or `range`.
            factor: a factor of the values.
            learned: whether training changes them.
            rows: whether each row of a batch has the array.
        """
        super().__init__()
        self.shape, self.init, self.factor, self.rows = tuple(shape), init, factor, rows
        self.weight = nn.Parameter(torch.empty(self.shape or (1,))) if learned else None

    def initialize(self, generator: torch.Generator) -> None:
        """Set the values: `normal` is drawn from N(0, 1/D), as for token embeddings."""
        if self.weight is None:
            return
        if self.init == "normal":
            width = self.weight.size(-1)
            nn.init.normal_(self.weight, std=width**-0.5, generator=generator)
            self.weight.data.mul_(self.factor)
        else:
            self.weight.data.copy_(self._constant(self.weight).view_as(self.weight))

    def forward(self, x: Tensor | None = None) -> Tensor:
        """Return the array, for every row of x [B, ...] if it has `rows`."""
        if self.weight is not None:
            y = self.weight.view(self.shape)
            y = y if x is None else y.to(x.dtype)
        else:
            assert x is not None  # noqa: S101 - the block has the port
            y = self._constant(x)
        return y.expand(x.size(0), *self.shape) if self.rows and x is not None else y

    def _constant(self, like: Tensor) -> Tensor:
        """Return the values with the precision and on the device of a tensor."""
        if self.init == "identity":
            y = torch.eye(*self.shape[-2:], dtype=like.dtype, device=like.device)
        elif self.init == "range":
            y = torch.arange(self.shape[-1], dtype=like.dtype, device=like.device)
        else:
            filled = torch.ones if self.init == "ones" else torch.zeros
            y = filled(self.shape, dtype=like.dtype, device=like.device)
        return (self.factor * y).expand(self.shape)
