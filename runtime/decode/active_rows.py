"""Active rows: drop finished sentences from a batch while the others are decoded.

Sentences of a batch end at different times.  When at most half of the sentences in a model's
decoding state are unfinished, the finished sentences are removed from it: the state of the
remaining rows is copied, which costs about as much as one step reads, and every later step
is cheaper.  The search itself continues to work with all of its rows.

Axes: N sentences, R rows of the search, M active rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

import torch
from torch import Tensor

NARROW = 2
"""The state is narrowed when at most one in this many of its sentences is unfinished."""

Cancelled = Callable[[], Collection[int]]
"""Called before each step; returns the indices of the sentences whose output is not needed."""


class Stepper(Protocol):
    """A model that is decoding N sentences, each with K rows that start out equal."""

    rows: int
    """Number of sentences N in the decoding state."""

    def step(self, tokens_R: Tensor, position: int, /) -> Tensor:
        """Append one token to every row and return the logits [R, V] of the next token.

        Args:
            tokens_R: the last token of every row, sentence by sentence; `bos` at the first step.
            position: number of tokens before it.
        """

    def reorder(self, rows_R: Tensor, /) -> None:
        """Make each row r continue from row `rows_R[r]`, which belongs to the same sentence."""

    def narrow(self, sentences_N: Tensor, /) -> None:
        """Keep only these sentences, in this order."""


class BlockStepper(Stepper, Protocol):
    """A stepper that can append several tokens at once."""

    def read(self, tokens_RT: Tensor, /) -> None:
        """Append the first tokens of every row, without computing logits."""

    def steps(self, tokens_RT: Tensor, position: int, /) -> Tensor:
        """Append tokens to every row and return the logits [R, T, V] after each."""


class ActiveRows:
    """A stepper, together with the rows of a search that are still in its state."""

    def __init__(self, stepper: Stepper, rows: int, cancelled: Cancelled | None = None) -> None:
        """Start with all rows active.

        Args:
            stepper: a stepper before its first step.
            rows: rows of the search; every sentence has the same number.
            cancelled: returns the sentences that need not be continued.
        """
        self._stepper, self._cancelled = stepper, cancelled
        self._all, self._sentences = rows, stepper.rows
        self._each = rows // max(1, stepper.rows)
        self._sentences_M: Tensor | None = None
        self.rows_M: Tensor | None = None
        """The active rows; None for all."""

    def step(self, tokens_R: Tensor, position: int) -> Tensor:
        """Append a token to every active row; return their logits [M, V]."""
        return self._stepper.step(self.taken(tokens_R), position)

    def taken(self, values_R: Tensor) -> Tensor:
        """Return the values of the active rows."""
        return values_R if self.rows_M is None else values_R[self.rows_M]

    def spread(self, values_M: Tensor) -> Tensor:
        """Return values [R, ...]; rows that are not active get zeros, which must not be used."""
        if self.rows_M is None:
            return values_M
        return values_M.new_zeros(self._all, *values_M.shape[1:]).index_copy(
            0, self.rows_M, values_M
        )

    def reorder(self, rows_R: Tensor) -> None:
        """Make each row continue from another row of its sentence."""
        if self.rows_M is None:
            self._stepper.reorder(rows_R)
            return
        place_R = torch.zeros_like(rows_R)
        place_R[self.rows_M] = torch.arange(len(self.rows_M), device=rows_R.device)
        self._stepper.reorder(place_R[rows_R[self.rows_M]])

    def unfinished(self, like_N: Tensor) -> Tensor:
        """Return `like_N`, true for unfinished sentences, with cancelled sentences set to false."""
        cancelled = [] if self._cancelled is None else list(self._cancelled())
        if not cancelled:
            return like_N
        return like_N.index_fill(0, torch.tensor(cancelled, device=like_N.device), value=False)

    def narrow(self, open_N: Tensor, count: int) -> None:
        """Remove finished sentences from the state, when few enough are unfinished.

        Args:
            open_N: whether each sentence is unfinished.
            count: number of unfinished sentences, at least one.
        """
        if count * NARROW > self._stepper.rows:
            return
        own_M = open_N if self._sentences_M is None else open_N[self._sentences_M]
        # Finished sentences fill the state up to a power of two of its sentences, because matrix
        # products on the CPU are compiled for each number of rows.
        size = self._stepper.rows
        while size // NARROW >= count:
            size //= NARROW
        remaining = own_M.argsort(descending=True, stable=True)[:size].sort().values
        self._stepper.narrow(remaining)
        self._sentences_M = remaining if self._sentences_M is None else self._sentences_M[remaining]
        self.rows_M = rows_of(self._sentences_M, self._each)


def rows_of(sentences_N: Tensor, rows_per_sentence: int) -> Tensor:
    """Return the rows [N * each] of some sentences that have `rows_per_sentence` rows apiece."""
    return (
        sentences_N[:, None] * rows_per_sentence
        + torch.arange(rows_per_sentence, device=sentences_N.device)
    ).flatten()
