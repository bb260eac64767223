"""State: what a block remembers from one decoding step to the next.

Rows R = N sentences times K beams, sentence by sentence.  What belongs to the
source is kept once for each sentence; only what a beam has written itself is kept
once for each row, so that reordering beams touches nothing else.

A block's `step` takes the next position of every row, or the next several: a prompt is
read at once.  It gives for them what `forward` gives for the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Capacity(NamedTuple):
    """How much a decoder must be able to remember."""

    sentences: int
    """Sentences N."""
    beams: int
    """Beams K of each sentence."""
    length: int
    """Positions that will be decoded at most."""
    dtype: torch.dtype
    """Precision of what is remembered."""
    device: torch.device

    @property
    def rows(self) -> int:
        """Rows R = N * K."""
        return self.sentences * self.beams


class State(NamedTuple):
    """What one block remembers."""

    appended: dict[str, Tensor] = {}  # noqa: RUF012 - never changed in place
    """Buffers [R, ..., length, width], filled position by position."""
    carried: dict[str, Tensor] = {}  # noqa: RUF012 - never changed in place
    """Tensors [R, ...] that each step replaces in place."""
    fixed: dict[str, Tensor] = {}  # noqa: RUF012 - never changed in place
    """Tensors [N, ...] that no step changes."""


def one_by_one(
    step: Callable[[Tensor, Tensor | None, int], Tensor],
    x: Tensor,
    mask: Tensor | None,
    position: int,
) -> Tensor:
    """Step through several positions of x [R, T, ...], for a block that takes one at a time.

    Args:
        step: from x [R, 1, ...], mask [R, 1] and the position to what the block gives.
        x: what the block reads.
        mask: [R, T], or None.
        position: where the first of them stands.
    """
    given = []
    for place in range(x.size(1)):
        here = slice(place, place + 1)
        kept = None if mask is None else mask[:, here]
        given.append(step(x[:, here], kept, position + place))
    return torch.cat(given, 1)
