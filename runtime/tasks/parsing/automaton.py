"""Automaton: a control under which every output is a tree over exactly the words of its sentence.

It knows what may follow: a leaf while words are left, the closing of what is open and
holds something, an opening while words are left and room for all closings, and the end
when all is closed.  So no output needs repair, not even of a model that knows nothing.

Axes: R rows, N sentences, V symbols of the vocabulary, L symbols written so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .linearization import Action, Linearization

MAX_UNARY = 8
"""Constituents that may open one right after the other."""


class _Open(NamedTuple):
    """A constituent that is open, and those around it."""

    label: str
    filled: bool
    """Whether it holds something."""
    around: _Open | None


class _State(NamedTuple):
    """Where a sequence of symbols stands."""

    top: _Open | None = None
    depth: int = 0
    used: int = 0
    """Words that have their leaf."""
    opened: int = 0
    """Openings since the last leaf or closing."""

    def after(self, action: Action | None) -> _State:
        """Return the state after a symbol that was allowed; another changes nothing."""
        if action is None:
            return self
        if action.kind == "open":
            top = _Open(action.label, filled=False, around=self.top)
            return _State(top, self.depth + 1, self.used, self.opened + 1)
        if self.top is None:
            return self
        if action.kind == "leaf":
            return _State(self.top._replace(filled=True), self.depth, self.used + 1, 0)
        around = self.top.around
        outer = None if around is None else around._replace(filled=True)
        return _State(outer, self.depth - 1, self.used, 0)


class TreeControl:
    """Forbids every symbol after which the output could no longer become a tree.

    The symbols of a vocabulary have fixed meanings here: in the form of tensor2tensor a
    bare symbol opens a constituent if the vocabulary has its closing, and is a tag if not.
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
        special: Sequence[int] = (),
        words: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Learn what the symbols do.

        Args:
            form: how symbols write a tree.
            symbols: the text of each id.
            lengths: words of each of the N sentences, at least one.
            limits: most symbols of each output, the end among them.
            rows_each: rows of each sentence.
            eos: the id that ends an output.
            special: other ids that are no symbols.
            words: the ids of each sentence's words, where leaves are words (`top_down`).

        Raises:
            ValueError: a limit has no room for a tree over so many words.
        """
        for length, limit in zip(lengths, limits, strict=True):
            if limit < length + 3:
                msg = f"{limit} symbols have no room for {length} words in a bracket and an end"
                raise ValueError(msg)
        self._lengths, self._limits = lengths, limits
        self._rows_each, self._eos, self._words = rows_each, eos, words
        # Every closing is read together with the others, so that bare labels are known.
        self._actions = form.actions(list(symbols))
        for one in (eos, *special):
            self._actions[one] = None
        size = len(symbols)
        self._nothing = torch.zeros(size, dtype=torch.bool)
        self._opens = self._of("open")
        self._leaves = self._of("leaf")
        self._closes = {
            action.label: self._of("close", action.label)
            for action in self._actions
            if action is not None and action.kind == "close"
        }
        self._states: dict[tuple[int, tuple[int, ...]], _State] = {}

    def _of(self, kind: str, label: str | None = None) -> Tensor:
        """Return which ids are of a kind, and of a label if one is given, [V]."""
        return torch.tensor(
            [
                action is not None and action.kind == kind and label in (None, action.label)
                for action in self._actions
            ]
        )

    def __call__(self, log_p_RV: Tensor, written_RL: Tensor) -> Tensor:
        """Forbid what leads to no tree."""
        states: dict[tuple[int, tuple[int, ...]], _State] = {}
        allowed = []
        for row, tokens in enumerate(map(tuple, written_RL.tolist())):
            sentence = row // self._rows_each
            key = sentence, tokens
            if key not in states:
                states[key] = self._state(sentence, tokens)
            allowed.append(self._allowed(sentence, states[key], len(tokens)))
        self._states = states
        return log_p_RV.masked_fill(~torch.stack(allowed).to(log_p_RV.device), -torch.inf)

    def _state(self, sentence: int, tokens: tuple[int, ...]) -> _State:
        """Return the state after symbols; it is known after all but the last."""
        if not tokens:
            return _State()
        before = self._states.get((sentence, tokens[:-1]))
        if before is not None:
            return before.after(self._actions[tokens[-1]])
        state = _State()
        for token in tokens:
            state = state.after(self._actions[token])
        return state

    def _allowed(self, sentence: int, state: _State, written: int) -> Tensor:
        """Return which symbols may come next, [V]."""
        # Rows that are dead already may have written anything.
        words_left = max(0, self._lengths[sentence] - state.used)
        allowed = self._nothing.clone()
        if state.top is None and state.used:
            allowed[self._eos] = True
            return allowed
        # What is left when this symbol is an opening, without those that must follow it.
        spare = self._limits[sentence] - written - 1 - words_left - (state.depth + 1) - 1
        if words_left and spare >= 0 and state.opened < MAX_UNARY:
            allowed |= self._opens
        if state.top is None:
            return allowed
        if words_left:
            allowed |= self._leaf(sentence, state.used)
        if state.top.filled and (state.depth > 1 or not words_left):
            allowed |= self._closes.get(state.top.label, self._closes.get("", self._nothing))
        return allowed

    def _leaf(self, sentence: int, used: int) -> Tensor:
        """Return the symbols of the next word: any leaf, or where leaves are words its own."""
        if self._words is None:
            return self._leaves
        only = self._nothing.clone()
        only[self._words[sentence][used]] = True
        return only
