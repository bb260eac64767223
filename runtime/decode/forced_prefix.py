"""Foreseen: what every output begins with is read at once, not token by token.

A search goes on as ever, a position at a time, and its controls let nothing come but what
was told.  The model has then read these tokens already, so its scores are there.

Axes: N sentences, R rows, T tokens that are known, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import torch
from torch import Tensor

from .active_rows import Stepper

NUMBERS = 1 << 25
"""Logits that are held at most, if that is more than those of one position; 128 MB."""


class Reading(Stepper, Protocol):
    """A stepper that takes several tokens at once."""

    def steps(self, tokens_RT: Tensor, position: int, /) -> Tensor:
        """Append tokens to every row and return the logits [R, T, V] after each."""


def common(prefixes: Sequence[Sequence[int]], impossible: Collection[int]) -> int:
    """Return how many tokens of every prefix can be read at once.

    Args:
        prefixes: with which the outputs begin.
        impossible: tokens that a search does not write whatever it is told; what comes
            after one is not foreseen.

    >>> common([[5, 6, 7], [8, 9]], {1})
    2
    >>> common([[5, 6, 7], [8, 1, 9]], {1})
    1
    """
    fitting = (
        next((place for place, token in enumerate(one) if token in impossible), len(one))
        for one in prefixes
    )
    return min(fitting, default=0)


class ForcedPrefix:
    """A stepper whose rows all begin as told."""

    def __init__(self, stepper: Reading, first_NT: Tensor, *, beams: int, vocabulary: int) -> None:
        """Take a stepper before its first step.

        Args:
            stepper: what reads.
            first_NT: the tokens that every row of a sentence is fed first.
            beams: rows of each sentence.
            vocabulary: how many logits there are for each of them.
        """
        self.rows = stepper.rows
        self._stepper, self._first_NT, self._beams = stepper, first_NT, beams
        self._vocabulary = max(1, vocabulary)
        self._start = self._read = self._last = 0
        self._logits_RTV = torch.empty(0)

    def step(self, tokens_R: Tensor, position: int) -> Tensor:
        """Return the logits [R, V] that follow one more token, which may have been read."""
        if position >= self._first_NT.size(1):
            self._logits_RTV = self._logits_RTV[:0]
            return self._stepper.step(tokens_R, position)
        if position >= self._read:
            most = max(1, NUMBERS // (len(tokens_R) * self._vocabulary))
            some_NT = self._first_NT[:, position : position + most]
            self._start, self._read = position, position + some_NT.size(1)
            self._logits_RTV = self._stepper.steps(
                some_NT.repeat_interleave(self._beams, 0), position
            )
        self._last = position
        return self._logits_RTV[:, position - self._start]

    def reorder(self, rows_R: Tensor) -> None:
        """Let rows change places; those that begin alike need not."""
        if self._last + 1 >= self._first_NT.size(1):
            self._stepper.reorder(rows_R)

    def narrow(self, sentences_N: Tensor) -> None:
        """Keep these sentences alone, in this order."""
        if len(self._logits_RTV):
            by_sentence = self._logits_RTV.unflatten(0, (-1, self._beams))
            self._logits_RTV = by_sentence[sentences_N].flatten(0, 1)
        self._first_NT = self._first_NT[sentences_N]
        self._stepper.narrow(sentences_N)
        self.rows = self._stepper.rows
