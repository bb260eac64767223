"""Forced prefix: read the tokens that every output must begin with in one step.

The search still advances one position at a time, and its logits processors allow only the
forced token.  The model has read these tokens already, so its logits are looked up.

Axes: N sentences, R rows, T forced tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from .active_rows import BlockStepper

NUMBERS = 1 << 25
"""Maximum number of logits stored at once (128 MB), unless one position has more."""


def common(prefixes: Sequence[Sequence[int]], impossible: Collection[int]) -> int:
    """Return how many tokens of every prefix can be read at once.

    Args:
        prefixes: forced prefix of each output.
        impossible: tokens that a search never writes, even if they are forced; reading ahead stops
            before the first of them.

    >>> common([[5, 6, 7], [8, 9]], {1})
    2
    >>> common([[5, 6, 7], [8, 1, 9]], {1})
    1
    """
    fitting = (
        next((index for index, token in enumerate(prefix) if token in impossible), len(prefix))
        for prefix in prefixes
    )
    return min(fitting, default=0)


class ForcedPrefix:
    """A stepper whose rows all begin with a forced prefix."""

    def __init__(
        self, stepper: BlockStepper, first_NT: Tensor, *, beams: int, vocabulary: int
    ) -> None:
        """Wrap a stepper before its first step.

        Args:
            stepper: the model's stepper.
            first_NT: the first tokens of every row of a sentence.
            beams: rows of each sentence.
            vocabulary: number of logits per row.
        """
        self.rows = stepper.rows
        self._stepper, self._first_NT, self._beams = stepper, first_NT, beams
        self._vocabulary = max(1, vocabulary)
        self._start = self._read = self._last = 0
        self._logits_RTV = torch.empty(0)

    def step(self, tokens_R: Tensor, position: int) -> Tensor:
        """Append one token to every row and return the logits [R, V], stored if it was read."""
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
        """Permute rows; within the prefix, the rows of a sentence are equal and need no copy."""
        if self._last + 1 >= self._first_NT.size(1):
            self._stepper.reorder(rows_R)

    def narrow(self, sentences_N: Tensor) -> None:
        """Keep only these sentences, in this order."""
        if len(self._logits_RTV):
            by_sentence = self._logits_RTV.unflatten(0, (-1, self._beams))
            self._logits_RTV = by_sentence[sentences_N].flatten(0, 1)
        self._first_NT = self._first_NT[sentences_N]
        self._stepper.narrow(sentences_N)
        self.rows = self._stepper.rows
