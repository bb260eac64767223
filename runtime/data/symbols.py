"""Vocabulary of whole symbols, stored as JSON.

For text with few distinct tokens, separated by spaces: each token is one id and cannot be
misspelled.  Other tokens may be encoded as the pieces of a tokenizer; the ids of the pieces
then come first, followed by the ids of the symbols.

Ids 0 to 3 are padding, end, unknown and beginning, as in every tokenizer.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

from ...specs.findings import InputError
from .settings import SPECIAL_TOKENS
from .tokenizer import BOS, EOS, PAD, UNK, UNKNOWN, Tokenizer

FORMAT = 1
Content = bytes
"""Alias of `bytes`, for use inside classes that have a property `bytes`."""
SPACE = "\u2581"
"""First character of a piece that begins a word."""


class Vocabulary(Protocol):
    """Conversion of text to ids and back, by pieces or whole symbols."""

    vocab_size: int
    pad: int
    eos: int
    unk: int
    bos: int

    @property
    def spells_all(self) -> bool:
        """Whether every text can be encoded without unknown tokens."""

    @property
    def bytes(self) -> Content:
        """Serialized content of the file."""

    @property
    def digest(self) -> str:
        """SHA-256 of the file, in hexadecimal."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without an end token."""

    def encode_many(self, texts: Sequence[str], *, threads: int | None = None) -> list[list[int]]:
        """Return the ids of each text, computed by `threads` threads."""

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids up to the first end token, without padding and beginning."""

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the piece or symbol of each id, including special tokens."""


_SHOWN = 10
"""Maximum number of characters in a message about unknown ones."""


def lacking(vocabulary: Vocabulary, text: str, ids: Sequence[int], what: str) -> str:
    """Return what to warn about a text with characters or symbols that a vocabulary lacks, or "".

    Args:
        vocabulary: the vocabulary.
        text: the text.
        ids: its ids.
        what: what to call the text, such as `the prefix`.
    """
    if vocabulary.unk not in ids:
        return ""
    units = _split(text) if isinstance(vocabulary, Symbols) else text
    unknown = [
        unit
        for unit in dict.fromkeys(units)
        if not unit.isspace() and vocabulary.unk in vocabulary.encode(unit)
    ]
    shown = ", ".join(map(repr, unknown[:_SHOWN])) or "a character"
    more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
    return f"the vocabulary lacks {shown}{more} of {what}: unknown tokens stand for what it lacks"


class Symbols:
    """Vocabulary of whole symbols; immutable."""

    def __init__(self, symbols: Sequence[str], spelling: Tokenizer | None = None) -> None:
        """Assign ids to the symbols in the given order.

        Args:
            symbols: distinct non-empty strings without white space.
            spelling: tokenizer for all other tokens; without it they are unknown.

        Raises:
            InputError: a symbol is empty, has white space or is repeated.
        """
        twice = [symbol for symbol, count in Counter(symbols).items() if count > 1]
        bad = twice or [
            symbol for symbol in symbols if not symbol or " " in symbol or "\n" in symbol
        ]
        if bad:
            problem = f"symbol {bad[0]!r} is repeated, empty or contains white space"
            raise InputError(problem, help="prepare the data again")
        self.symbols, self.spelling = tuple(symbols), spelling
        first = len(SPECIAL_TOKENS) if spelling is None else spelling.vocab_size
        self.pad, self.eos, self.unk, self.bos = PAD, EOS, UNK, BOS
        self.vocab_size = first + len(self.symbols)
        """Number of ids; all ids are smaller."""
        self._first = first
        self._ids = {symbol: first + index for index, symbol in enumerate(self.symbols)}

    @property
    def spells_all(self) -> bool:
        """Whether every text can be encoded without unknown tokens."""
        return self.spelling is not None and self.spelling.spells_all

    @cached_property
    def bytes(self) -> Content:
        """Serialized content of the file."""
        value = {
            "format": FORMAT,
            "spelled": self.spelling is not None,
            "symbols": self.symbols,
        }
        return (json.dumps(value, indent=0, ensure_ascii=False) + "\n").encode()

    @property
    def digest(self) -> str:
        """SHA-256 of the file and the spelling tokenizer, in hexadecimal."""
        spelled = b"" if self.spelling is None else self.spelling.bytes
        return hashlib.sha256(self.bytes + spelled).hexdigest()

    @classmethod
    def from_bytes(cls, data: Content, source: Tokenizer | None, location: str = "") -> Symbols:
        """Load a serialized vocabulary.

        Args:
            data: content of the file.
            source: tokenizer for other tokens, used if the file requires one.
            location: origin of the data, for messages.

        Raises:
            InputError: the data is damaged.
        """
        try:
            value = json.loads(data)
            is_known = value["format"] == FORMAT
            symbols, spelled = value["symbols"], value["spelled"]
            sound = isinstance(symbols, list) and all(isinstance(symbol, str) for symbol in symbols)
        except (ValueError, KeyError, TypeError) as error:
            msg = "symbol file is damaged"
            raise InputError(msg, location=location, help="prepare the data again") from error
        if not (is_known and sound and isinstance(spelled, bool)):
            msg = "symbol file is damaged or has another version"
            raise InputError(msg, location=location, help="prepare the data again")
        if spelled and source is None:
            msg = "symbol file needs the tokenizer that spells other tokens"
            raise InputError(msg, location=location, help="name it as 'spelling'")
        return cls(symbols, source if spelled else None)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without an end token."""
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str], *, threads: int | None = None) -> list[list[int]]:
        """Return the ids of each text; `threads` threads encode the tokens that are not symbols."""
        tokens = [_split(text) for text in texts]
        unknown = sorted({token for row in tokens for token in row if token not in self._ids})
        spelled: dict[str, list[int]] = {}
        if self.spelling is not None:
            spellings = self.spelling.encode_many(unknown, threads=threads)
            spelled = {token: ids or [UNK] for token, ids in zip(unknown, spellings, strict=True)}
        return [
            [
                token_id
                for token in row
                for token_id in (
                    (self._ids[token],) if token in self._ids else spelled.get(token, (UNK,))
                )
            ]
            for row in tokens
        ]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the symbol or piece of each id, including special tokens."""
        return [self._piece(int(token_id)) for token_id in ids]

    def _piece(self, number: int) -> str:
        if not 0 <= number < self.vocab_size:
            msg = f"id {number} is not in a vocabulary of {self.vocab_size}"
            raise IndexError(msg)
        if number >= self._first:
            return self.symbols[number - self._first]
        return (
            SPECIAL_TOKENS[number] if self.spelling is None else self.spelling.pieces([number])[0]
        )

    def tokens(self, ids: Iterable[int]) -> list[tuple[str, bool]]:
        """Return the tokens up to the first end token, each with whether it was spelled."""
        joined: list[tuple[str, bool]] = []
        within = False
        for number in map(int, ids):
            if number == self.eos:
                break
            if number in (self.pad, self.bos):
                continue
            piece = UNKNOWN if number == self.unk else self._piece(number)
            is_spelled = number < self._first
            if is_spelled and within and not piece.startswith(SPACE):
                joined[-1] = (joined[-1][0] + piece, True)
            else:
                joined.append((piece.removeprefix(SPACE) if is_spelled else piece, is_spelled))
            within = is_spelled
        return [token for token in joined if token[0]]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the tokens of ids, separated by spaces.

        Raises:
            IndexError: an id is not in the vocabulary.
        """
        return " ".join(text for text, _ in self.tokens(ids))


def _split(text: str) -> list[str]:
    return [token for token in text.split(" ") if token]


def count_symbols(lines: Iterable[str]) -> Counter[str]:
    """Count the tokens of lines, separated by spaces."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(_split(line))
    return counts


def open_symbols(path: Path, source: Tokenizer | None) -> Symbols:
    """Read a symbol file.

    Raises:
        InputError: the file cannot be read or is damaged.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        msg = f"cannot read symbols '{path.name}': {error.strerror}"
        raise InputError(msg, location=str(path), help="prepare the data again") from error
    return Symbols.from_bytes(data, source, str(path))
