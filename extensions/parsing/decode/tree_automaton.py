"""Tree automaton: allow only outputs that are a tree over exactly the words of the sentence.

The automaton determines the symbols that may come next: a leaf while words are left; the
closing of a constituent that is open and not empty; an opening while words are left and the
length limit allows all closings; and the end when everything is closed.  No output needs
repair, even from an untrained model.

All rows advance together.  The depth of every symbol is a cumulative sum over the symbols
before it, and the innermost open constituent is the last opening at the current depth.

Axes: R rows, N sentences, V symbols of the vocabulary, L symbols written so far, C labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from ..trees.linearization import Action, Linearization

MAX_UNARY = 8
"""Maximum number of consecutive openings."""


class _State(NamedTuple):
    """The state of each row; every value is [R]."""

    depth: Tensor
    """Number of open constituents."""
    used: Tensor
    """Number of leaf symbols written."""
    opened: Tensor
    """Number of openings since the last leaf or closing."""
    top: Tensor
    """The symbol that opened the innermost constituent; 0 if none is open."""
    filled: Tensor
    """Whether the innermost constituent is not empty."""


class TreeProcessor:
    """Bans every symbol after which the output could no longer become a tree.

    Where leaves are words, the next word is given rather than chosen by the model.  It gets
    the total probability of all word pieces, so the score is that of the constituents only.

    The symbols of a vocabulary have fixed meanings: in the tensor2tensor form a bare symbol
    opens a constituent if the vocabulary contains its closing, and is a tag otherwise.
    """

    def __init__(
        self,
        form: Linearization,
        symbols: Sequence[str],
        lengths: Sequence[int],
        limits: Sequence[int],
        *,
        rows_each: int,
        eos: int,
        special_tokens: Sequence[int] = (),
        words: Sequence[Sequence[Sequence[int]]] | None = None,
    ) -> None:
        """Determine the action of every symbol.

        Args:
            form: the linearization, which maps symbols to actions.
            symbols: the text of each id.
            lengths: words of each of the N sentences, at least one.
            limits: maximum number of symbols of each output, including the end.
            rows_each: rows of each sentence.
            eos: the id that ends an output.
            special_tokens: other ids that are not symbols, including all word pieces.
            words: the ids of each word of each sentence, where leaves are words (`top_down`).

        Raises:
            ValueError: a limit is too small for a tree over the sentence.
        """
        # Actions depend on the complete vocabulary: a closing makes its bare label an opening.
        actions = form.actions(list(symbols))
        for token in (eos, *special_tokens):
            actions[token] = None
        for piece in {piece for sentence in words or () for word in sentence for piece in word}:
            actions[piece] = Action("leaf")
        self._eos = eos
        self._open_V, self._leaf_V = _of(actions, "open"), _of(actions, "leaf")
        self._close_V = _of(actions, "close")
        self._closing_CV, self._label_V = _closings(actions)
        leaves = [length * [0] for length in lengths]
        self._copied = words is not None
        self._piece_V = torch.zeros(len(symbols), dtype=torch.bool)
        self._piece_V[[token for token in special_tokens if token != eos]] = True
        if words is not None:
            leaves = [[piece for word in sentence for piece in word] for sentence in words]
            spelled = [[len(word) for word in sentence] for sentence in words]
        else:
            spelled = [length * [1] for length in lengths]
        longest = max(map(len, leaves), default=0)
        # One extra column, so that the index stays valid in rows whose words are all written.
        next_NW = torch.zeros(len(leaves), longest + 1, dtype=torch.long)
        between_NW = torch.zeros(len(leaves), longest + 1, dtype=torch.bool)
        for row, (ids, sizes) in enumerate(zip(leaves, spelled, strict=True)):
            next_NW[row, : len(ids)] = torch.tensor(ids, dtype=torch.long)
            between_NW[row, [0, *accumulate(sizes)]] = True
        for ids, limit in zip(leaves, limits, strict=True):
            if limit < len(ids) + 3:
                msg = (
                    f"a tree over {len(ids)} leaves needs {len(ids) + 3} symbols; limit is {limit}"
                )
                raise ValueError(msg)

        def by_row(values: Tensor) -> Tensor:
            return values.repeat_interleave(rows_each, 0)

        self._length_R = by_row(torch.tensor([len(ids) for ids in leaves]))
        self._limit_R = by_row(torch.tensor(list(limits)))
        self._next_RW, self._between_RW = by_row(next_NW), by_row(between_NW)

    def __call__(self, log_p_RV: Tensor, written_RL: Tensor) -> Tensor:
        """Ban every symbol that cannot lead to a tree."""
        if self._open_V.device != log_p_RV.device:
            for name, value in vars(self).items():
                if isinstance(value, Tensor):
                    setattr(self, name, value.to(log_p_RV.device))
        state = self._state(written_RL)
        allowed_RV = self._allowed(state, written_RL.size(1))
        if self._copied:
            any_R = log_p_RV[:, self._piece_V].logsumexp(1)
            log_p_RV = log_p_RV.scatter(1, self._next(state), any_R[:, None])
        return log_p_RV.masked_fill(~allowed_RV, -torch.inf)

    def _state(self, written_RL: Tensor) -> _State:
        """Return the state of each row; undefined for rows that have ended."""
        rows, length = written_RL.shape
        if length == 0:
            zero_R = torch.zeros(rows, dtype=torch.long, device=written_RL.device)
            return _State(zero_R, zero_R, zero_R, zero_R, zero_R.bool())
        open_RL, close_RL = self._open_V[written_RL], self._close_V[written_RL]
        depth_RL = (open_RL.int() - close_RL.int()).cumsum(1)
        depth_R = depth_RL[:, -1]
        place_L = torch.arange(1, length + 1, device=written_RL.device)
        # Positions are counted from 1; 0 means that there is none.
        top_R = ((open_RL & (depth_RL == depth_R[:, None])) * place_L).amax(1)
        other_R = (~open_RL * place_L).amax(1)
        symbol_R = written_RL.gather(1, (top_R - 1).clamp(min=0)[:, None])[:, 0]
        return _State(
            depth_R,
            self._leaf_V[written_RL].sum(1),
            length - other_R,
            torch.where((top_R > 0) & (depth_R > 0), symbol_R, 0),
            top_R < length,
        )

    def _next(self, state: _State) -> Tensor:
        """Return the next word piece of each row, [R, 1]."""
        used_R1 = torch.minimum(state.used, self._length_R)[:, None]
        return self._next_RW.gather(1, used_R1)

    def _allowed(self, state: _State, written: int) -> Tensor:
        """Return which symbols may come next, [R, V]."""
        used_R1 = torch.minimum(state.used, self._length_R)[:, None]
        left_R = self._length_R - used_R1[:, 0]
        within_R = ~self._between_RW.gather(1, used_R1)[:, 0]
        is_open_R = state.depth > 0
        over_R = ~is_open_R & (state.used > 0)
        # Symbols left to spend if this one is an opening, minus the symbols that must follow.
        spare_R = self._limit_R - written - 1 - left_R - (state.depth + 1) - 1
        opens_R = (left_R > 0) & (spare_R >= 0) & (state.opened < MAX_UNARY)
        opens_R = opens_R & ~over_R & ~within_R
        closes_R = is_open_R & state.filled & ((state.depth > 1) | (left_R == 0)) & ~within_R
        leaf_R = is_open_R & (left_R > 0)
        label_R = torch.where(closes_R, self._label_V[state.top], 0)
        allowed_RV = self._closing_CV[label_R] | (opens_R[:, None] & self._open_V)
        if self._copied:
            next_R1 = self._next(state)
            # Word pieces are never openings or closings, so this overwrites nothing.
            allowed_RV.scatter_(1, next_R1, leaf_R[:, None] | allowed_RV.gather(1, next_R1))
        else:
            allowed_RV = allowed_RV | (leaf_R[:, None] & self._leaf_V)
        allowed_RV[:, self._eos] = over_R
        return allowed_RV


def _of(actions: Sequence[Action | None], kind: str) -> Tensor:
    """Return whether each id is of a kind, [V]."""
    return torch.tensor([action is not None and action.kind == kind for action in actions])


def _closings(actions: Sequence[Action | None]) -> tuple[Tensor, Tensor]:
    """Return the ids that close each label, [C, V], and the label that each id opens, [V].

    Label 0 means no label; nothing closes it.
    """
    labels = sorted(
        {action.label for action in actions if action is not None and action.kind == "open"}
    )
    numbers = {label: number for number, label in enumerate(labels, 1)}
    closing_CV = torch.zeros(len(labels) + 1, len(actions), dtype=torch.bool)
    label_V = torch.zeros(len(actions), dtype=torch.long)
    for index, action in enumerate(actions):
        if action is None or action.kind == "leaf":
            continue
        if action.kind == "open":
            label_V[index] = numbers[action.label]
        elif not action.label:
            closing_CV[1:, index] = True
        elif action.label in numbers:
            closing_CV[numbers[action.label], index] = True
    return closing_CV, label_V
