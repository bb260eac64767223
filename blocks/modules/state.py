"""State: what a block remembers from one decoding step to the next.

Rows R = N sentences times K beams, sentence by sentence.  What belongs to the
source is kept once for each sentence; only what a beam has written itself is kept
once for each row, so that reordering beams touches nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Room(NamedTuple):
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
