"""Lexical constraints: phrases that outputs must not contain, and phrases that they must.

Banned phrases are matched as text, however the text is split into tokens; required phrases
are matched as the token sequence that the tokenizer gives them.

Axes: R rows, V vocabulary, L tokens written so far.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from .logits_processors import NEVER, LogitsProcessor


class _State(NamedTuple):
    """The state of matching a text against one phrase."""

    matched: frozenset[int]
    """Lengths of the prefixes of the phrase that the text ends with."""
    in_word: bool
    """Whether the last character of the text belongs to a word."""


class Avoidance:
    """Bans every token that would complete one of the given phrases.

    A phrase that begins or ends with a letter or digit matches only at the beginning or end
    of a word: `dog` in `a dog.`, not in `dogma`.
    """

    def __init__(
        self, phrases: Sequence[str], texts: Sequence[str | None], ends: Collection[int]
    ) -> None:
        """Store the phrases, and the text of every token of the vocabulary."""
        self._phrases = [" ".join(phrase.split()) for phrase in phrases]
        self._texts, self._ends = texts, frozenset(ends)
        self._next: dict[tuple[int, _State, int], _State] = {}
        self._banned: dict[tuple[int, _State, bool], Tensor] = {}

    def required(self, texts: Iterable[Sequence[int]]) -> list[str]:
        """Return the phrases that one of some texts contains, given their tokens."""
        spelled = ["".join(self._texts[token] or "" for token in text) + " " for text in texts]
        return [self._phrases[which] for which in self._within(spelled)]

    def _within(self, texts: Iterable[str]) -> frozenset[int]:
        """Return which phrases one of some texts contains."""
        start = _State(frozenset(), in_word=False)
        return frozenset(
            which
            for text in texts
            for which in range(len(self._phrases))
            if self._read(which, start, text)[1]
        )

    def processor(
        self, limits_R: Tensor, required: Sequence[Sequence[Sequence[int]]] = ()
    ) -> LogitsProcessor:
        """Return a logits processor for rows that end at their limits at the latest.

        Args:
            limits_R: maximum tokens of every row.
            required: tokens of the texts that every row must contain; phrases in them are not
                banned in that row.
        """
        limits = limits_R.tolist()
        permitted = [self.required(texts) for texts in required] or [[]] * len(limits)

        def processor(log_p_RV: Tensor, written_RL: Tensor) -> Tensor:
            last = written_RL.size(1) + 1
            for row, tokens in enumerate(written_RL.tolist()):
                for which, phrase in enumerate(self._phrases):
                    if phrase in permitted[row]:
                        continue
                    state = _State(frozenset(), in_word=False)
                    for token in tokens:
                        state = self._after(which, state, token)
                    banned = self._tokens(which, state, closing=last >= limits[row])
                    log_p_RV[row, banned.to(log_p_RV.device)] = NEVER
            return log_p_RV

        return processor

    def _after(self, which: int, state: _State, token: int) -> _State:
        key = which, state, token
        if key not in self._next:
            self._next[key], _ = self._read(which, state, self._texts[token] or "")
        return self._next[key]

    def _tokens(self, which: int, state: _State, *, closing: bool) -> Tensor:
        """Return the tokens that complete a phrase; `closing` if the output ends after them."""
        key = which, state, closing
        if key not in self._banned:
            # Byte pieces of multi-byte characters cannot be matched, so all of them are banned
            # where a phrase contains such characters.
            foreign = not self._phrases[which].isascii()
            self._banned[key] = torch.tensor(
                [
                    token
                    for token, text in enumerate(self._texts)
                    if (text is None and foreign)
                    or self._read(
                        which, state, (text or "") + " " * (closing or token in self._ends)
                    )[1]
                ],
                dtype=torch.long,
            )
        return self._banned[key]

    def _read(self, which: int, state: _State, text: str) -> tuple[_State, bool]:
        """Return the state after more text, and whether the text completed the phrase."""
        phrase, hit = self._phrases[which], False
        matched, in_word = state
        starts_word, ends_word = phrase[0].isalnum(), phrase[-1].isalnum()
        for letter in text:
            is_word = letter.isalnum()
            hit = hit or (len(phrase) in matched and not is_word)
            begun = set() if starts_word and in_word else {0}
            longer = {n + 1 for n in (*matched, *begun) if n < len(phrase) and phrase[n] == letter}
            hit = hit or (len(phrase) in longer and not ends_word)
            matched, in_word = frozenset(longer), is_word
        return _State(matched, in_word), hit


class Standing(NamedTuple):
    """Progress of a token sequence towards its required phrases."""

    met: int
    """Phrase tokens in the sequence, including those of a phrase begun at its end."""
    begun: int
    """Tokens at its end that begin a phrase."""
    missing: int
    """Tokens of the phrases that the sequence does not contain completely."""
    next: frozenset[int]
    """Tokens that make progress: they continue the current phrase, or begin another."""


def standing(tokens: Sequence[int], phrases: Sequence[Sequence[int]]) -> Standing:
    """Return the progress of a token sequence.

    >>> standing([7, 1, 2, 3], [[1, 2], [3, 4]])
    Standing(met=3, begun=1, missing=2, next=frozenset({4}))
    """
    remaining, met = [], 0
    for phrase in phrases:
        if _holds(tokens, phrase):
            met += len(phrase)
        else:
            remaining.append(phrase)
    begun = max((_begun(tokens, phrase) for phrase in remaining), default=0)
    following = {p[begun] for p in remaining if _begun(tokens, p) == begun}
    return Standing(met + begun, begun, sum(map(len, remaining)), frozenset(following))


def _holds(tokens: Sequence[int], phrase: Sequence[int]) -> bool:
    size = len(phrase)
    return any(
        list(tokens[start : start + size]) == list(phrase)
        for start in range(len(tokens) - size + 1)
    )


def _begun(tokens: Sequence[int], phrase: Sequence[int]) -> int:
    """Return the length of the longest proper prefix of a phrase that the tokens end with."""
    for size in range(min(len(phrase) - 1, len(tokens)), 0, -1):
        if list(tokens[-size:]) == list(phrase[:size]):
            return size
    return 0


@dataclass(slots=True)
class Inclusion:
    """Phrases that the outputs of each sentence must contain.

    End tokens are banned until all phrases are complete; when only enough length is left for
    the phrases, only their tokens are allowed.  So every output that ends contains them.
    Beam positions are divided among hypotheses by how many phrase tokens they contain.

    Source: Post & Vilar 2018, section 3.
    """

    phrases: Sequence[Sequence[Sequence[int]]]
    """Tokens of each phrase of each sentence."""
    rows_each: int
    """Rows of each sentence."""
    limits: Sequence[int]
    """Maximum tokens of each sentence's outputs, including the end token."""
    ends: Sequence[int]
    """Tokens that end an output."""
    no_repeat: int = 0
    """Length of n-grams that may not occur twice, except in the phrases; 0 for no limit."""
    _known: dict[tuple[int, tuple[int, ...]], Standing] = field(default_factory=dict)

    @property
    def most(self) -> int:
        """Maximum number of tokens that make progress in any hypothesis at one step."""
        return max((len(phrases) for phrases in self.phrases), default=0)

    def of(self, sentence: int, tokens: Sequence[int]) -> Standing:
        """Return the progress of a hypothesis, given its tokens."""
        key = sentence, tuple(tokens)
        if key not in self._known:
            self._known[key] = standing(tokens, self.phrases[sentence])
        return self._known[key]

    def next(self, row: int, tokens: Sequence[int]) -> frozenset[int]:
        """Return the tokens with which a row continues a phrase, or begins another."""
        return self.of(row // self.rows_each, tokens).next

    def __call__(
        self, log_p_RV: Tensor, written_RL: Tensor, free_RV: Tensor | None = None
    ) -> Tensor:
        """Ban an early end, and tokens that leave too little length for the phrases.

        A phrase that repeats an n-gram must be completed once it is begun, so that nothing else
        repeats one.  The arguments are those of a `Requirement`.
        """
        free_RV = log_p_RV if free_RV is None else free_RV
        position = written_RL.size(1)
        for row, tokens in enumerate(written_RL.tolist()):
            sentence = row // self.rows_each
            now = self.of(sentence, tokens)
            if not now.missing:
                continue
            log_p_RV[row, list(self.ends)] = NEVER
            # Any other token could break off a begun phrase, which must then be written again.
            is_last_chance = self.limits[sentence] - 1 - position <= now.missing
            if is_last_chance or _repeats(tokens, now.begun, self.no_repeat):
                forced = list(now.next)
                log_p_M = free_RV[row, forced].clone()
                log_p_RV[row] = NEVER
                log_p_RV[row, forced] = log_p_M
        return log_p_RV


def _repeats(tokens: Sequence[int], last: int, size: int) -> bool:
    """Return whether one of the last tokens ends an n-gram of a size that occurred before.

    >>> _repeats([5, 6, 5], last=1, size=1), _repeats([5, 6, 7], last=1, size=1)
    (True, False)
    """
    if not size:
        return False
    runs = [tuple(tokens[start : start + size]) for start in range(len(tokens) - size + 1)]
    return any(run in runs[:index] for index, run in list(enumerate(runs))[-last:] if last)
