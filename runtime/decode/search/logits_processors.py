"""Logits processors: restrict the next tokens, given the tokens that each row has written.

A processor is a function of log probabilities and of the tokens written so far.  It bans a
token by setting its log probability to minus infinity and leaves the others unchanged, so
the score of an output equals its score under forced decoding.  It has no state between
calls, so the search may reorder its beams freely.

Axes in this file, also used as suffixes of tensor names:

    R  rows, sentences x hypotheses      L  tokens written so far
    V  vocabulary                        N  sentences
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
        for one in processors:
            log_p_RV = one(log_p_RV, written_RL)
        return log_p_RV

    return processor


def no_repeat(size: int) -> LogitsProcessor:
    """Ban every token that would repeat an n-gram of length `size`.

    Source: Paulus et al. 2017, section 2.5.
    """

    def processor(log_p_RV: Tensor, written_RL: Tensor) -> Tensor:
        if written_RL.size(1) < size:
            return log_p_RV
        runs_RLn = written_RL.unfold(1, size, 1)
        last_Rn = written_RL[:, written_RL.size(1) - size + 1 :]
        same_RL = (runs_RLn[:, :, :-1] == last_Rn[:, None]).all(-1)
        rows_M, places_M = same_RL.nonzero(as_tuple=True)
        log_p_RV[rows_M, runs_RLn[rows_M, places_M, -1]] = NEVER
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

    def __call__(self, log_p_RV: Tensor, written_RL: Tensor) -> Tensor:
        """Ban all tokens except the forced one, within the prefix."""
        position = written_RL.size(1)
        if position >= self.until:
            return log_p_RV
        for sentence, prefix in enumerate(self._prefixes):
            if position < len(prefix):
                rows = slice(sentence * self._rows_each, (sentence + 1) * self._rows_each)
                wanted = log_p_RV[rows, prefix[position]].clone()
                log_p_RV[rows] = NEVER
                log_p_RV[rows, prefix[position]] = wanted
        return log_p_RV


def still(processor: LogitsProcessor | None, position: int) -> LogitsProcessor | None:
    """Return a processor if it may ban tokens after `position` tokens, else None."""
    over = isinstance(processor, Beginning) and position >= processor.until
    return None if over else processor
