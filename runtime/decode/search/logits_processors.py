"""Logits processors: restrict the next tokens, given the tokens that each row has written.

What an output must contain wins over all other restrictions (`winning`).

A processor is a function of log probabilities and of the tokens written so far.  It bans a
token by setting its log probability to minus infinity and leaves the others unchanged, so
the score of an output equals its score under forced decoding.  It has no state between
calls, so the search may reorder its beams freely.

Axes in this file, also used as suffixes of tensor names:

    R  rows, sentences x hypotheses      L  tokens written so far
    V  vocabulary                        N  sentences
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import torch
from torch import Tensor

LogitsProcessor = Callable[[Tensor, Tensor], Tensor]
"""Takes log probabilities [R, V] and tokens written [R, L]; returns log probabilities [R, V]."""

NEVER = -torch.inf


def chained(processors: Sequence[LogitsProcessor]) -> LogitsProcessor | None:
    """Return one processor that applies several in order; None if there are none."""
    if len(processors) < 2:  # noqa: PLR2004 - none or one
        return processors[0] if processors else None

    def processor(log_p_RV: Tensor, written_RL: Tensor) -> Tensor:
        for inner in processors:
            log_p_RV = inner(log_p_RV, written_RL)
        return log_p_RV

    return processor


class TokenRequirement(Protocol):
    """Forces tokens of an output."""

    def __call__(
        self, log_p_RV: Tensor, written_RL: Tensor, free_RV: Tensor | None = None, /
    ) -> Tensor:
        """Ban all tokens but forced ones, whose log probabilities are those of `free_RV`.

        Args:
            log_p_RV: log probabilities, which other processors may have changed.
            written_RL: tokens written.
            free_RV: log probabilities before the other processors; None is `log_p_RV`.
        """


def winning(bans: LogitsProcessor | None, required: TokenRequirement) -> LogitsProcessor:
    """Return a processor that applies bans, and then a requirement that wins over them."""
    if bans is None:
        return required

    def processor(log_p_RV: Tensor, written_RL: Tensor) -> Tensor:
        free_RV = log_p_RV.clone()  # processors may change it
        return required(bans(log_p_RV, written_RL), written_RL, free_RV)

    return processor


def no_repeat(
    size: int, required: Callable[[int, Sequence[int]], Collection[int]] | None = None
) -> LogitsProcessor:
    """Ban every token that would repeat an n-gram of length `size`.

    Args:
        size: length of the n-grams.
        required: returns the tokens that are not banned, given a row and its tokens.

    Source: Paulus et al. 2017, section 2.5.
    """

    def processor(log_p_RV: Tensor, written_RL: Tensor) -> Tensor:
        if written_RL.size(1) < size:
            return log_p_RV
        runs_RLn = written_RL.unfold(1, size, 1)
        last_Rn = written_RL[:, written_RL.size(1) - size + 1 :]
        same_RL = (runs_RLn[:, :, :-1] == last_Rn[:, None]).all(-1)
        rows_M, places_M = same_RL.nonzero(as_tuple=True)
        free_RV = None if required is None else log_p_RV.clone()
        log_p_RV[rows_M, runs_RLn[rows_M, places_M, -1]] = NEVER
        if required is not None and free_RV is not None:
            for row in set(rows_M.tolist()):
                exempt = list(required(row, written_RL[row].tolist()))
                log_p_RV[row, exempt] = free_RV[row, exempt]
        return log_p_RV

    return processor


def repetition_penalty(strength: float) -> LogitsProcessor:
    """Multiply the log probability of every token that a row already contains.

    This is the only processor that changes scores.

    Source: Keskar et al. 2019, section 4.1, on log probabilities.
    """

    def processor(log_p_RV: Tensor, written_RL: Tensor) -> Tensor:
        had_RL = log_p_RV.gather(1, written_RL)
        return log_p_RV.scatter(1, written_RL, had_RL * strength)

    return processor


class Beginning:
    """Forces every output to begin with the given tokens of its sentence."""

    def __init__(self, prefixes: Sequence[Sequence[int]], rows_each: int) -> None:
        """Store the prefixes.

        Args:
            prefixes: tokens of each of the N sentences, of any length.
            rows_each: rows of each sentence.
        """
        self._prefixes, self._rows_each = prefixes, rows_each
        self.until = max((len(prefix) for prefix in prefixes), default=0)
        """Number of tokens after which nothing is banned any more."""

    def __call__(
        self, log_p_RV: Tensor, written_RL: Tensor, free_RV: Tensor | None = None
    ) -> Tensor:
        """Ban all tokens except the forced one, within the prefix; see `TokenRequirement`."""
        free_RV = log_p_RV if free_RV is None else free_RV
        position = written_RL.size(1)
        if position >= self.until:
            return log_p_RV
        for sentence, prefix in enumerate(self._prefixes):
            if position < len(prefix):
                rows = slice(sentence * self._rows_each, (sentence + 1) * self._rows_each)
                forced = free_RV[rows, prefix[position]].clone()
                log_p_RV[rows] = NEVER
                log_p_RV[rows, prefix[position]] = forced
        return log_p_RV


def still(processor: LogitsProcessor | None, position: int) -> LogitsProcessor | None:
    """Return a processor if it may ban tokens after `position` tokens, else None."""
    over = isinstance(processor, Beginning) and position >= processor.until
    return None if over else processor
