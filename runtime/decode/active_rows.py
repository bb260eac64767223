"""Held: the rows that a model still works on, of all that a search began with.

Sentences of a batch are done at different times.  When at most half of those that a model
holds go on, it lets go of the others: its state is copied for the rows that are left, which
costs about what one step reads, and every later step is shorter.  A search goes on to think
in all of its rows.

Axes: N sentences, R rows of them, M of those that are held, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

import torch
from torch import Tensor

NARROW = 2
"""Of so many sentences that are held, one at most must go on before the others are let go."""

Cancelled = Callable[[], Collection[int]]
"""Asked before each step which of the N sentences nobody waits for any more."""


class Stepper(Protocol):
    """A model in the middle of N sentences, each begun with K equal rows."""

    rows: int
    """Number of sentences N that it holds."""

    def step(self, tokens_R: Tensor, position: int, /) -> Tensor:
        """Append one token to every row and return the logits [R, V] of the next.

        Args:
            tokens_R: for each row its last token, sentence by sentence; `bos` first.
            position: how many tokens came before it.
        """

    def reorder(self, rows_R: Tensor, /) -> None:
        """Let each row r go on from what row `rows_R[r]` of its sentence has written."""

    def narrow(self, sentences_N: Tensor, /) -> None:
        """Keep these sentences alone, in this order."""


class ActiveRows:
    """A stepper, and which of the rows of a search it still holds."""

    def __init__(self, stepper: Stepper, rows: int, cancelled: Cancelled | None = None) -> None:
        """Begin with all of them.

        Args:
            stepper: in the middle of no sentence yet.
            rows: how many a search has, as many for each sentence.
            cancelled: sentences whose rows need not go on.
        """
        self._stepper, self._cancelled = stepper, cancelled
        self._all, self._sentences = rows, stepper.rows
        self._each = rows // max(1, stepper.rows)
        self._sentences_M: Tensor | None = None
        self.rows_M: Tensor | None = None
        """The rows that are held; None for all."""

    def step(self, tokens_R: Tensor, position: int) -> Tensor:
        """Append a token to every row; return the logits [M, V] of those that are held."""
        return self._stepper.step(self.taken(tokens_R), position)

    def taken(self, values_R: Tensor) -> Tensor:
        """Return what belongs to the rows that are held."""
        return values_R if self.rows_M is None else values_R[self.rows_M]

    def spread(self, values_M: Tensor) -> Tensor:
        """Return values [R, ...]; zeros, which nobody may read, for rows that are not held."""
        if self.rows_M is None:
            return values_M
        return values_M.new_zeros(self._all, *values_M.shape[1:]).index_copy(
            0, self.rows_M, values_M
        )

    def reorder(self, rows_R: Tensor) -> None:
        """Let each row go on from what another row of its sentence has written."""
        if self.rows_M is None:
            self._stepper.reorder(rows_R)
            return
        place_R = torch.zeros_like(rows_R)
        place_R[self.rows_M] = torch.arange(len(self.rows_M), device=rows_R.device)
        self._stepper.reorder(place_R[rows_R[self.rows_M]])

    def wanted(self, like_N: Tensor) -> Tensor:
        """Return `like_N`, true for sentences that go on, without those that nobody waits for."""
        cancelled = [] if self._cancelled is None else list(self._cancelled())
        if not cancelled:
            return like_N
        return like_N.index_fill(0, torch.tensor(cancelled, device=like_N.device), value=False)

    def narrow(self, open_N: Tensor, count: int) -> None:
        """Let go of sentences that are done, when few enough are not.

        Args:
            open_N: which go on.
            count: how many that are, one at least.
        """
        if count * NARROW > self._stepper.rows:
            return
        own_M = open_N if self._sentences_M is None else open_N[self._sentences_M]
        left = own_M.nonzero()[:, 0]
        self._stepper.narrow(left)
        self._sentences_M = left if self._sentences_M is None else self._sentences_M[left]
        self.rows_M = rows_of(self._sentences_M, self._each)


def rows_of(sentences_N: Tensor, each: int) -> Tensor:
    """Return the rows [N * each] of some sentences, each of which has as many."""
    return (sentences_N[:, None] * each + torch.arange(each, device=sentences_N.device)).flatten()
