"""Words as text, written such that each begins exactly one piece of a tokenizer.

A piece begins with U+2581 if and only if it begins a word, so the pieces of a sentence determine
the word boundaries (`word_starts`).
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

import numpy as np

from .symbols import SPACE, Symbols

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from .symbols import Vocabulary

NOTHING = "?"
"""Replacement for a word that the tokenizer would drop completely."""


def visible(word: str) -> str:
    """Return a word as given to the tokenizer: normalized, and always one word.

    >>> visible("New\u00a0York"), visible("\u200b")
    ('NewYork', '?')
    """
    shown = unicodedata.normalize("NFKC", word)
    return "".join(character for character in shown if _is_visible(character)) or NOTHING


def _is_visible(letter: str) -> bool:
    """Return whether a tokenizer neither drops a character nor treats it as a space."""
    kind = unicodedata.category(letter)
    return kind[0] not in "ZC" and letter not in (SPACE, "\ufffd", "\u2585")


def source_text(words: Iterable[str]) -> str:
    """Return the text of words for the tokenizer."""
    return " ".join(map(visible, words))


def word_starts(vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """Return a mask of the ids that begin a word; shape (vocabulary,).

    Of symbols that are not spelled, each is a word.
    """
    size = vocabulary.vocab_size
    starts = np.array([piece.startswith(SPACE) for piece in vocabulary.pieces(range(size))])
    if isinstance(vocabulary, Symbols) and vocabulary.spelling is None and not starts.any():
        return ~np.isin(np.arange(size), (vocabulary.pad, vocabulary.bos, vocabulary.eos))
    return starts
