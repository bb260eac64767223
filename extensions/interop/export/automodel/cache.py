"""The decoding state of `generate`; exported files contain these definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..torch_kernels import enlarge, reorder

FIRST = 16
"""Positions for which buffers are allocated at first; they are doubled."""


def rolled(rows: Tensor, steps_B: Tensor) -> Tensor:
    """Return rows [B, T, ...] moved to the left by a number of positions each, around the end."""
    positions_T = torch.arange(rows.size(1), device=rows.device)
    source_BT = (positions_T + steps_B[:, None]) % rows.size(1)
    return rows[torch.arange(rows.size(0), device=rows.device)[:, None], source_BT]


def mask_of(mask_BT: Tensor | None, ids_BT: Tensor) -> Tensor:
    """Return a mask of the positions of ids, true everywhere if there is none."""
    if mask_BT is None:
        return torch.ones(ids_BT.shape[:2], dtype=torch.bool, device=ids_BT.device)
    return mask_BT.bool()


def padding_before(mask_BT: Tensor) -> Tensor:
    """Return the number of masked positions before the first other one of each row, [B]."""
    return mask_BT.int().argmax(1)


class GenerationCache:
    """Decoding state of rows whose prompts may be padded on the left.

    Rows with equally many padding positions share a state, in which positions count from the first
    token, so that padding changes nothing.
    """

    is_compileable = False

    def __init__(
        self, begin: Callable[[Tensor], Any], step: Callable[[Tensor, Any, int], Tensor]
    ) -> None:
        """Start without positions.

        Args:
            begin: maps indices of rows to their state before the first position.
            step: maps the next ids [R, T], the state of their rows and the position of the first of
                them to logits [R, T, V].
        """
        self.begin, self.step = begin, step
        self.length, self.room = 0, FIRST
        self.groups: list[tuple[int, Tensor, Any]] = []

    def get_seq_length(self) -> int:
        """Return the number of positions so far, with padding."""
        return self.length

    def extend(self, ids_RT: Tensor, mask_RL: Tensor | None = None) -> Tensor:
        """Append ids to all rows, and return the logits [R, T, V] after each.

        Args:
            ids_RT: the next ids.
            mask_RL: false at padding before the first token, for all L positions so far.
        """
        if not self.groups:
            rows_R = torch.arange(ids_RT.size(0), device=ids_RT.device)
            padding_R = torch.zeros_like(rows_R) if mask_RL is None else padding_before(mask_RL)
            for padding in padding_R.unique().tolist():
                rows_M = rows_R[padding_R == padding]
                self.groups.append((padding, rows_M, self.begin(rows_M)))
        end = self.length + ids_RT.size(1)
        if end > self.room:
            self.room = max(end, 2 * self.room)
            for _, _, state in self.groups:
                enlarge(state, self.room)
        logits = [self._step_of(ids_RT, *group) for group in self.groups]
        self.length = end
        order_R = torch.cat([rows_M for _, rows_M, _ in self.groups]).argsort()
        return torch.cat(logits)[order_R]

    def _step_of(self, ids_RT: Tensor, padding: int, rows_M: Tensor, state: Any) -> Tensor:
        """Return the logits of the rows of a group, zero at padding."""
        before = max(0, padding - self.length)
        position = self.length + before - padding
        logits_MTV = self.step(ids_RT[rows_M, before:], state, position)
        return F.pad(logits_MTV, (0, 0, before, 0))

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Let each row continue another row of the same prompt."""
        for _, rows_M, state in self.groups:
            reorder(state, torch.searchsorted(rows_M, beam_idx[rows_M]))
