"""Tokenizers of prompts and their continuations: of a vocabulary, or of written ids.

That of a Hugging Face `tokenizer.json` is in `hub.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from ...specs.findings import InputError
from .symbols import Vocabulary, lacking

_BYTE = len("<0x00>")
_ASCII = 0x80


class PromptTokenizer(Protocol):
    """Tokenizer for prompts and their continuations."""

    def prompt(self, text: str) -> list[int]:
        """Return the ids of a prompt, starting with the beginning token if there is one."""

    def lacking(self, text: str, ids: Sequence[int], what: str) -> str:
        """Return what to warn about a text with characters that the tokenizer lacks, or ""."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text inside a continuation, without special tokens."""

    @property
    def texts(self) -> list[str | None]:
        """The text that each id adds; None for a part of a character."""

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids."""

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the piece of each id."""


@dataclass
class VocabularyPrompts:
    """A vocabulary, for prompts: they start with its beginning token, if it has one."""

    vocabulary: Vocabulary

    def prompt(self, text: str) -> list[int]:
        """Return the ids of a prompt, starting with the beginning token if there is one."""
        begin = [self.vocabulary.bos] if self.vocabulary.bos >= 0 else []
        return [*begin, *self.vocabulary.encode(text)]

    def lacking(self, text: str, ids: Sequence[int], what: str) -> str:
        """Return what to warn about a text with characters that the vocabulary lacks, or ""."""
        return lacking(self.vocabulary, text, ids, what)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text inside a continuation."""
        return self.vocabulary.encode(text)

    @cached_property
    def texts(self) -> list[str | None]:
        """The text that each id adds; None for a part of a character."""
        return texts_of_vocabulary(self.vocabulary)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids."""
        return self.vocabulary.decode(ids)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the piece of each id."""
        return self.vocabulary.pieces(ids)


class WrittenIds:
    """Ids written as numbers, in place of a tokenizer."""

    def prompt(self, text: str) -> list[int]:
        """Return the ids of a prompt.

        Raises:
            InputError: it has something else.
        """
        try:
            return [int(word) for word in text.split()]
        except ValueError:
            raise InputError(
                "not a line of token ids", help="write whole numbers separated by spaces"
            ) from None

    def lacking(self, text: str, ids: Sequence[int], what: str) -> str:  # noqa: ARG002 - nothing
        """Return ""."""
        return ""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text inside a continuation."""
        return self.prompt(text)

    @property
    def texts(self) -> list[str | None]:
        """The text that each id adds.

        Raises:
            InputError: always, as ids have no texts.
        """
        raise InputError(
            "'avoid' bans texts, but there is no tokenizer", help="leave it out for token ids"
        )

    def decode(self, ids: Iterable[int]) -> str:
        """Return the ids as numbers separated by spaces."""
        return " ".join(map(str, ids))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return each id as a number."""
        return [str(token) for token in ids]


def texts_of(pieces: Sequence[str], special_tokens: Iterable[int]) -> list[str | None]:
    """Return the text of each SentencePiece piece; None for a byte of a multi-byte character.

    Args:
        pieces: the piece of each id.
        special_tokens: ids that add nothing to the text.
    """
    silent = frozenset(special_tokens)

    def text(number: int, piece: str) -> str | None:
        if number in silent:
            return ""
        if len(piece) == _BYTE and piece.startswith("<0x") and piece.endswith(">"):
            code = int(piece[3:-1], 16)
            return chr(code) if code < _ASCII else None
        return piece.replace("\u2581", " ")

    return [text(number, piece) for number, piece in enumerate(pieces)]


def texts_of_vocabulary(vocabulary: Vocabulary) -> list[str | None]:
    """Return the text that each id of a vocabulary adds, as `texts_of` does."""
    special_tokens = (vocabulary.pad, vocabulary.bos, vocabulary.eos)
    return texts_of(vocabulary.pieces(range(vocabulary.vocab_size)), special_tokens)
