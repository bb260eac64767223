"""Log probabilities of the next tokens of every row, and the best of them.

A vocabulary is large, and few of its tokens are needed.  On the CPU, a few rows at a time
are normalized and searched, so that their values stay in the cache and no second table of
all rows is allocated; within a row, only the runs of tokens with the largest maxima are
searched.

Axes in this file, also used as suffixes of tensor names:

    R  rows                          C  candidates of a row
    V  vocabulary                    G  runs of tokens
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

TOGETHER = 1 << 20
"""Values normalized at a time on the CPU; 4 MB."""
RUNS = 128
"""Runs that a vocabulary is divided into, if each run gets at least this many tokens."""


@dataclass(frozen=True, slots=True)
class BannedTokens:
    """Tokens that are never written, and the minimum length before which end tokens are banned."""

    never: Collection[int]
    ends: Sequence[int]
    """Tokens that end an output."""
    min_length: int
    """Minimum tokens of an output, not counting the end token; `limits` take precedence."""
    limits: Tensor
    """Maximum tokens of every row, including the end token, [R]."""

    def log_probabilities(
        self, logits_RV: Tensor, position: int, these: Tensor | None = None
    ) -> Tensor:
        """Return log probabilities [R, V] in float32, minus infinity for banned tokens.

        Args:
            logits_RV: the model's logits.
            position: number of tokens written before.
            these: the rows that the logits belong to; None for all.
        """
        log_p_RV = torch.log_softmax(logits_RV, dim=-1, dtype=torch.float32)
        self._apply(log_p_RV, self._early(position, these))
        return log_p_RV

    def best(
        self, logits_RV: Tensor, position: int, count: int, these: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the `count` best log probabilities [R, C] and their tokens, best first.

        Args:
            logits_RV: the model's logits.
            position: number of tokens written before.
            count: from 1 to V; with 1, ties go to the lowest index.
            these: as in `log_probabilities`.
        """
        rows, size = logits_RV.shape
        if logits_RV.device.type != "cpu":
            return _best(self.log_probabilities(logits_RV, position, these), count, 1)
        runs = RUNS if size >= RUNS * RUNS else 1
        chunk_rows = max(1, TOGETHER // size)
        early_R = self._early(position, these)
        chunks = []
        for start in range(0, rows, chunk_rows):
            part_RV = logits_RV[start : start + chunk_rows]
            log_p_RV = torch.log_softmax(part_RV, dim=-1, dtype=torch.float32)
            self._apply(log_p_RV, None if early_R is None else early_R[start : start + chunk_rows])
            chunks.append(_best(log_p_RV, count, runs))
        best, tokens = zip(*chunks, strict=True)
        return torch.cat(best), torch.cat(tokens)

    def _early(self, position: int, these: Tensor | None) -> Tensor | None:
        """Return which rows must not end yet; None if all may."""
        if position >= self.min_length:
            return None
        return position + 1 < (self.limits if these is None else self.limits[these])

    def _apply(self, log_p_RV: Tensor, early_R: Tensor | None) -> None:
        for token in self.never:
            log_p_RV[:, token] = -torch.inf
        if early_R is not None:
            for token in self.ends:
                log_p_RV[:, token].masked_fill_(early_R, -torch.inf)


def _best(values_RV: Tensor, count: int, runs: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest values of each row and their positions, largest first.

    Args:
        values_RV: values.
        count: number of values to return.
        runs: number of runs that a row is divided into. The largest values are in the `count` runs
            with the largest maxima, or in the remainder at the end of the row.
    """
    if runs <= count:
        return _greatest(values_RV, count)
    width = values_RV.size(1) // runs
    runs_RGW = values_RV[:, : runs * width].unflatten(1, (runs, width))
    _, run_RC = _greatest(runs_RGW.amax(2), count)
    run_RC = run_RC.sort(1).values  # so that ties go to the lowest index
    top_RCW = runs_RGW.gather(1, run_RC[:, :, None].expand(-1, -1, width))
    searched = torch.cat((top_RCW.flatten(1), values_RV[:, runs * width :]), 1)
    best_RC, place_RC = _greatest(searched, count)
    run = run_RC.gather(1, (place_RC // width).clamp(max=count - 1))
    inside_RC = run * width + place_RC % width
    after_RC = place_RC + (runs - count) * width
    return best_RC, torch.where(place_RC < count * width, inside_RC, after_RC)


def _greatest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest values of each row and their positions, largest first.

    With a count of 1, ties go to the lowest index.
    """
    if count > 1:
        best, indices = values.topk(count)
        return best, indices
    indices = values.argmax(1, keepdim=True)
    return values.gather(1, indices), indices
