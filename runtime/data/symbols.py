"""Symbols: a vocabulary of whole symbols, kept as JSON.

Where a text is made of few kinds of tokens, parted by spaces, each is one id: none can be
misspelt.  A token that is no symbol may be spelled in the pieces of a tokenizer; the ids
are then those of the pieces, and after them those of the symbols.

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
SYMBOLS = "target.symbols.json"
"""File of the symbols of targets, in prepared data and in checkpoints."""
Content = bytes
"""What a file holds; its name inside classes that have a property `bytes`."""
SPACE = "\u2581"
"""With it a piece begins that begins a word."""


class Vocabulary(Protocol):
    """Text to ids and back, by pieces or by whole symbols."""

    vocab_size: int
    pad: int
    eos: int
    unk: int
    bos: int

    @property
    def spells_all(self) -> bool:
        """Whether anything can be written, so that nothing is unknown."""

    @property
    def bytes(self) -> Content:
        """What its file holds."""

    @property
    def digest(self) -> str:
        """SHA-256 of the file, in hexadecimal."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without an end token."""

    def encode_many(self, texts: Sequence[str], *, threads: int | None = None) -> list[list[int]]:
        """Return the ids of each text; `threads` work at it."""

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids: up to the first end, without padding and beginning."""

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the piece or symbol of each id, special ones too."""


class Symbols:
    """A vocabulary of whole symbols; immutable."""

    def __init__(self, symbols: Sequence[str], spelling: Tokenizer | None = None) -> None:
        """Number the symbols in their order.

        Args:
            symbols: different texts, without white space, none of them empty.
            spelling: spells tokens that are no symbols; without it they are unknown.

        Raises:
            InputError: a symbol is empty, has white space or comes twice.
        """
        twice = [symbol for symbol, count in Counter(symbols).items() if count > 1]
        bad = twice or [one for one in symbols if not one or " " in one or "\n" in one]
        if bad:
            problem = f"symbol {bad[0]!r} comes twice, is empty or has white space"
            raise InputError(problem, help="prepare the data again")
        self.symbols, self.spelling = tuple(symbols), spelling
        first = len(SPECIAL_TOKENS) if spelling is None else spelling.vocab_size
        self.pad, self.eos, self.unk, self.bos = PAD, EOS, UNK, BOS
        self.vocab_size = first + len(self.symbols)
        """Number of ids; ids are below it."""
        self._first = first
        self._ids = {symbol: first + place for place, symbol in enumerate(self.symbols)}

    @property
    def spells_all(self) -> bool:
        """Whether anything can be written, so that nothing is unknown."""
        return self.spelling is not None and self.spelling.spells_all

    @cached_property
    def bytes(self) -> Content:
        """What the file holds."""
        value = {
            "format": FORMAT,
            "spelled": self.spelling is not None,
            "symbols": self.symbols,
        }
        return (json.dumps(value, indent=0, ensure_ascii=False) + "\n").encode()

    @property
    def digest(self) -> str:
        """SHA-256 of the file and of what spells, in hexadecimal."""
        spelled = b"" if self.spelling is None else self.spelling.bytes
        return hashlib.sha256(self.bytes + spelled).hexdigest()

    @classmethod
    def from_bytes(cls, data: Content, source: Tokenizer, place: str = "") -> Symbols:
        """Read a file.

        Args:
            data: what it holds.
            source: the tokenizer that spells what is no symbol, if the file says so.
            place: where it came from, for messages.

        Raises:
            InputError: it is damaged.
        """
        try:
            value = json.loads(data)
            known = value["format"] == FORMAT
            symbols, spelled = value["symbols"], value["spelled"]
            sound = isinstance(symbols, list) and all(isinstance(one, str) for one in symbols)
        except (ValueError, KeyError, TypeError) as error:
            msg = "file of symbols is damaged"
            raise InputError(msg, place=place, help="prepare the data again") from error
        if not (known and sound and isinstance(spelled, bool)):
            msg = "file of symbols is damaged, or of another version"
            raise InputError(msg, place=place, help="prepare the data again")
        return cls(symbols, source if spelled else None)

    def id_of(self, symbol: str) -> int | None:
        """Return the id of a symbol; None when it is none."""
        return self._ids.get(symbol)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without an end token."""
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str], *, threads: int | None = None) -> list[list[int]]:
        """Return the ids of each text; `threads` work at what is spelled."""
        tokens = [_parted(text) for text in texts]
        unknown = sorted({one for row in tokens for one in row if one not in self._ids})
        spelled: dict[str, list[int]] = {}
        if self.spelling is not None:
            found = self.spelling.encode_many(unknown, threads=threads)
            spelled = {token: ids or [UNK] for token, ids in zip(unknown, found, strict=True)}
        return [
            [
                each
                for token in row
                for each in (
                    (self._ids[token],) if token in self._ids else spelled.get(token, (UNK,))
                )
            ]
            for row in tokens
        ]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the symbol or piece of each id, special ones too."""
        return [self._piece(int(each)) for each in ids]

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
        """Return the tokens of ids, up to the first end, each with whether it was spelled."""
        found: list[tuple[str, bool]] = []
        within = False
        for number in map(int, ids):
            if number == self.eos:
                break
            if number in (self.pad, self.bos):
                continue
            piece = UNKNOWN if number == self.unk else self._piece(number)
            is_spelled = number < self._first
            if is_spelled and within and not piece.startswith(SPACE):
                found[-1] = (found[-1][0] + piece, True)
            else:
                found.append((piece.removeprefix(SPACE) if is_spelled else piece, is_spelled))
            within = is_spelled
        return [token for token in found if token[0]]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the tokens of ids, parted by spaces.

        Raises:
            IndexError: an id is not in the vocabulary.
        """
        return " ".join(text for text, _ in self.tokens(ids))


def _parted(text: str) -> list[str]:
    return [token for token in text.split(" ") if token]


def count_symbols(lines: Iterable[str]) -> Counter[str]:
    """Count the tokens of lines, parted by spaces."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(_parted(line))
    return counts


def open_symbols(path: Path, source: Tokenizer) -> Symbols:
    """Read a file of symbols.

    Raises:
        InputError: it cannot be read or is damaged.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        msg = f"cannot read symbols '{path.name}': {error.strerror}"
        raise InputError(msg, place=str(path), help="prepare the data again") from error
    return Symbols.from_bytes(data, source, str(path))
